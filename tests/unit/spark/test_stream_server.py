"""Metrics and health of a stream, asked for by HTTP."""

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pipelines.errors import ConfigError
from pipelines.kafka.offsets_group import CommitCounts
from pipelines.racks.traffic import read_bytes
from pipelines.spark.stream_metrics import stream_metrics
from pipelines.spark.stream_progress import (
    COUNTERS,
    BatchFigures,
    RunTotals,
    StateFigures,
    StreamProgress,
    TaskFigures,
)
from pipelines.spark.stream_server import StreamServer
from pipelines.steps.speed import quarantined_metric

NOW = datetime.now(UTC)
BATCH = BatchFigures(
    *(1, NOW, 2.5, 1_000),
    {"write": 2.0},
    StateFigures(4_096),
    TaskFigures(8, 0, 6.0, 0.5, 128, 1.0),
    watermark=datetime(2026, 1, 1, tzinfo=UTC),
    files_left=7,
)
RUNNING = StreamProgress(
    "speed", "host", 7, NOW, NOW, NOW, 10.0, executors=2, batches=(BATCH, replace(BATCH, records=0))
)
# What one stream alone has, of all streams.
OWN = (
    *CommitCounts(3, 1, datetime(2026, 1, 1, tzinfo=UTC)).metrics(),
    read_bytes({"a": {"a": 90, "b": 5}, "?": {"?": 5}}),
    quarantined_metric({"wrong_type": 2}),
)
LABELS = {"pipeline": 'a "b"\n', "env": "prod", "stream": "speed"}


class Served:
    """A server, and what it is told to show."""

    def __init__(self) -> None:
        # The module may have been loaded long ago.
        self.progress = replace(RUNNING, seen_at=datetime.now(UTC))
        self.totals = RunTotals({"records": 5_000.0, "late": 3.0}, {"write": 12.5})
        self.server = StreamServer(
            ("127.0.0.1", 0),
            LABELS,
            lambda: self.progress,
            lambda: stream_metrics(self.progress, self.totals, OWN),
        )

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.server.port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metrics(self) -> dict[str, float]:
        status, text = self.get("/metrics")
        assert status == 200
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        for sample in samples:
            assert LABELS.items() <= sample.labels.items()
        return {" ".join([sample.name, *self._own(sample.labels)]): sample.value for sample in samples}

    def _own(self, labels: dict[str, str]) -> list[str]:
        return [value for name, value in labels.items() if name not in LABELS]


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    yield served
    served.server.close()


def test_counters_are_of_the_run_and_gauges_of_the_last_micro_batch_with_records(served: Served) -> None:
    found = served.metrics()
    expected = {
        "records_total": 5_000,
        "late_total": 3,
        "duplicates_total": 0,
        "seconds_total write": 12.5,
        "healthy": 1,
        "executors": 2,
        "trigger_interval_seconds": 10,
        "last_micro_batch_records": 1_000,
        "last_micro_batch_seconds": 2.5,
        "state_memory_bytes": 4_096,
        "watermark_timestamp_seconds": 1_767_225_600,
        "watermark_delay_seconds": (NOW - datetime(2026, 1, 1, tzinfo=UTC)).total_seconds(),
        "files_outstanding": 7,
        "task_seconds": 6,
        "gc_seconds": 0.5,
        "spilled_bytes": 128,
        "offset_commits_total made": 3,
        "offset_commits_total failed": 1,
        "last_offset_commit_timestamp_seconds": 1_767_225_600,
        "read_bytes_total own": 90,
        "read_bytes_total other": 10,
        "quarantined_total wrong_type": 2,
        "quarantined_total null_value": 0,
    }
    assert {name: found[f"oncelake_stream_{name}"] for name in expected} == expected


def test_the_page_on_deployment_names_every_metric(served: Served) -> None:
    text = Path("docs/deploy.md").read_text()
    table = text.partition("| metric, after `oncelake_stream_` |")[2].partition("\n\n")[0]
    named = {
        name for row in table.splitlines() for name in re.findall(r"`([a-z_]+)`", row.split("|")[1:2][0])
    }
    shown = {name.split()[0].removeprefix("oncelake_stream_") for name in served.metrics()}
    assert shown == named


def test_counters_add_up_over_micro_batches() -> None:
    totals = RunTotals().plus(BATCH).plus(replace(BATCH, duplicates=2, phases={"write": 1.0, "log": 0.5}))
    assert totals.counters == {
        **dict.fromkeys(COUNTERS, 0),
        "records": 2_000,
        "micro_batches": 2,
        "duplicates": 2,
    }
    assert totals.phases == {"write": 3.0, "log": 0.5}
    # Of a micro-batch without a phase nothing is lost.
    assert totals.plus(replace(BATCH, phases={})).phases == totals.phases


def test_what_a_stream_does_not_know_is_left_out(served: Served) -> None:
    served.progress = replace(RUNNING, batches=())
    assert "oncelake_stream_last_micro_batch_records" not in served.metrics()
    served.progress = replace(RUNNING, batches=(BatchFigures(1, NOW, 2.5, 1_000),))
    assert {"oncelake_stream_state_memory_bytes", "oncelake_stream_gc_seconds"}.isdisjoint(served.metrics())


def test_health_is_bad_when_a_stream_is_silent_and_not_when_it_is_idle(served: Served) -> None:
    status, said = served.get("/healthz")
    assert (status, json.loads(said)["status"]) == (200, "ok")
    served.progress = replace(RUNNING, seen_at=datetime.now(UTC) - timedelta(minutes=6))
    status, said = served.get("/healthz")
    assert (status, json.loads(said)["status"]) == (503, "stuck")
    assert served.metrics()["oncelake_stream_healthy"] == 0


def test_a_stream_lives_whatever_it_waits_for_until_it_has_ended(served: Served) -> None:
    # A probe that kills a long micro-batch makes it begin anew, for ever.
    served.progress = replace(RUNNING, seen_at=datetime.now(UTC) - timedelta(hours=6))
    assert served.get("/healthz")[0] == 503
    status, said = served.get("/livez")
    assert (status, json.loads(said)["status"]) == (200, "ok")
    served.progress = replace(served.progress, ended_at=datetime.now(UTC))
    status, said = served.get("/livez")
    assert (status, json.loads(said)["status"]) == (503, "ended")


@pytest.mark.parametrize(
    ("trigger", "silent", "is_stuck"),
    [(10.0, 319, False), (10.0, 321, True), (3_600.0, 7_499, False), (3_600.0, 7_501, True)],
)
def test_a_stream_may_be_silent_for_five_minutes_and_two_trigger_intervals(
    trigger: float, silent: int, is_stuck: bool
) -> None:
    progress = replace(RUNNING, trigger_s=trigger, seen_at=NOW - timedelta(seconds=silent))
    assert (progress.silent_s(NOW) is not None) == is_stuck


def test_anything_else_is_not_found_and_a_port_in_use_is_refused(served: Served) -> None:
    assert served.get("/")[0] == 404
    with pytest.raises(ConfigError, match=r"metrics\.port: cannot bind to 127\.0\.0\.1:\d+"):
        StreamServer(("127.0.0.1", served.server.port), LABELS, lambda: RUNNING, tuple)
