"""What micro-batches took by phase, in shapes and in words that say the same."""

from datetime import UTC, datetime

import pytest

from pipelines.console.batch_chart import OTHER, SHOWN, batch_chart, phase_bar
from pipelines.lag.phases import phases_of
from pipelines.spark.stream_progress import BatchFigures, StateFigures, TaskFigures

AT = datetime(2026, 1, 1, tzinfo=UTC)
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
OLD = BatchFigures(6, AT, 10.0, 500, {"write": 9.96})


def test_a_bar_has_the_phases_that_lag_tells_apart_and_the_rest() -> None:
    found = phase_bar([BATCH], "speed")
    assert found
    seconds: dict[str, float] = {OTHER: 0.5}
    for phase, took in phases_of(BATCH, "speed").items():
        seconds[phase] = took
    assert {each.phase: each.seconds for each in found.sums} == pytest.approx(seconds)
    assert [each.phase for each in found.parts] == list(SHOWN)
    at = 0.0
    for part in found.parts:
        assert part.x == pytest.approx(at, abs=0.06)
        assert part.width == pytest.approx(5 * seconds[part.phase], abs=0.06)
        at += 5 * seconds[part.phase]
    assert found.words == (
        "write 22 %, decode 20 %, commit 15 %, planning 10 %, quarantine 10 %, state 8 %, log 8 %,"
        " source 5 %, other 2 %"
    )


def test_figures_that_know_less_are_not_divided_and_little_is_not_nothing() -> None:
    found = phase_bar([OLD], "speed")
    assert found
    assert found.words == "write 100 %, other < 1 %"
    # A stream that does not decode has no such phase.
    ingest = phase_bar([BATCH], "ingest")
    assert ingest
    assert "decode" not in ingest.words


def test_a_chart_and_a_bar_say_the_same_of_several_micro_batches() -> None:
    chart, bar = batch_chart([OLD, BATCH], "speed"), phase_bar([OLD, BATCH], "speed")
    assert chart
    assert bar
    assert sorted(chart.sums, key=lambda each: each.share, reverse=True) == list(bar.sums)
    assert [each.phase for each in chart.sums] == [phase for phase in SHOWN if phase in bar.words]
    assert chart.seconds == pytest.approx(30.0)
    assert chart.longest_s == pytest.approx(20.0)


def test_of_nothing_there_is_neither() -> None:
    assert batch_chart([], "speed") is None
    assert phase_bar([], "speed") is None
    assert phase_bar([BatchFigures(1, AT, 0.0, 5)], "speed") is None
