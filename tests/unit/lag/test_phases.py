"""Where the time of a micro-batch goes, as far as it can be told apart."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from pipelines.lag.causes import find_cause
from pipelines.lag.phases import LongestPhase, longest_phase, phases_of
from pipelines.lag.stage_facts import PartitionLag, StageFacts
from pipelines.spark.stream_progress import (
    BatchFigures,
    StateFigures,
    StreamProgress,
    TaskFigures,
    progress_in,
)

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
# Of 20 seconds of tasks, 8 read and decode, 3 are the state's, and the other 9 write.
BATCH = BatchFigures(
    7,
    AT,
    20.0,
    1_000,
    {"source": 1.0, "planning": 2.0, "write": 15.0, "log": 1.5},
    StateFigures(0, 2.0, 0.5, 0.5),
    TaskFigures(8, 0, run_s=20.0, handing_on_s=8.0),
    parts={"commit": 3.0, "quarantine": 2.0},
)


def test_what_tasks_do_is_divided_as_they_divide_their_time() -> None:
    assert phases_of(BATCH, "speed") == pytest.approx(
        {
            "source": 1.0,
            "planning": 2.0,
            "decode": 4.0,
            "state": 1.5,
            "write": 4.5,
            "quarantine": 2.0,
            "commit": 3.0,
            "log": 1.5,
        }
    )
    assert sum(phases_of(BATCH, "speed").values()) == pytest.approx(sum(BATCH.phases.values()))


def test_only_the_speed_stream_decodes() -> None:
    for stage in ("ingest", "publish"):
        found = phases_of(replace(BATCH, state=None), stage)
        assert (found["decode"], found["write"]) == (0.0, 10.0)


@pytest.mark.parametrize(
    "batch",
    [
        replace(BATCH, tasks=None, parts={}),
        replace(BATCH, tasks=TaskFigures(8, 0), parts={}),
        replace(BATCH, tasks=None, parts={"commit": 99.0}),
        replace(BATCH, tasks=TaskFigures(8, 0, run_s=1.0, handing_on_s=2.0)),
        replace(BATCH, phases={}),
    ],
)
def test_what_is_not_known_apart_is_write_and_nothing_is_below_zero(batch: BatchFigures) -> None:
    found = phases_of(batch, "speed")
    assert min(found.values()) >= 0.0
    if not batch.parts:
        assert (found["write"], found["decode"], found["state"]) == (15.0, 0.0, 0.0)


def test_the_longest_is_that_of_most_micro_batches() -> None:
    # One commit that took long says nothing.
    odd = replace(BATCH, seconds=200.0, phases={"write": 190.0}, parts={"commit": 180.0})
    assert longest_phase([BATCH, odd, BATCH], "speed").phase == "write"
    found = longest_phase([BATCH], "speed")
    assert found.phase == "write"
    assert found.share == pytest.approx(4.5 / 20)
    assert longest_phase([], "speed") == LongestPhase("source", 0.0)


@pytest.mark.parametrize(
    ("phase", "changes", "advice"),
    [
        ("planning", {"phases": {"planning": 15.0, "write": 2.0}}, "longer_trigger"),
        ("decode", {"tasks": TaskFigures(8, 0, run_s=20.0, handing_on_s=15.0)}, "more_cores"),
        ("state", {"state": StateFigures(0, 9.5), "parts": {}}, "less_state"),
        ("write", {"tasks": TaskFigures(8, 0, run_s=20.0, handing_on_s=1.0)}, "more_cores"),
        ("quarantine", {"parts": {"quarantine": 12.0}}, "fewer_broken"),
        ("commit", {"parts": {"commit": 12.0}}, "check_store"),
        ("log", {"phases": {"log": 15.0, "write": 2.0}}, "check_checkpoints"),
    ],
)
def test_a_stage_at_its_limit_names_its_longest_phase_and_what_helps(
    phase: str, changes: dict[str, object], advice: str
) -> None:
    batch: BatchFigures = replace(BATCH, **changes)  # type: ignore[arg-type]
    stream = StreamProgress("speed", "host", 7, AT, AT, AT, 10.0, batches=(batch,) * 5)
    lag = PartitionLag(0, 90_000, 900.0, rate_in=55.0, rate_out=50.0)
    found = find_cause(StageFacts("speed", AT, (lag,), stream))
    assert (found.cause, found.symptoms[-1].figures["phase"], found.advice) == ("slow", phase, advice)


def test_figures_of_an_earlier_version_are_read() -> None:
    text = (
        '{"query":"speed","host":"a","pid":7,"started_at":"2026-01-01T12:00:00Z",'
        '"written_at":"2026-01-01T12:00:00Z","seen_at":"2026-01-01T12:00:00Z","trigger_s":10,"batches":'
        '[{"number":7,"at":"2026-01-01T12:00:00Z","seconds":20,"records":9,"phases":{"write":15},'
        '"tasks":{"tasks":8,"failed":0,"run_s":20,"gc_s":0,"spilled_bytes":0,"longest_s":1}}]}'
    )
    (batch,) = progress_in(text).batches
    assert phases_of(batch, "speed")["write"] == 15.0
