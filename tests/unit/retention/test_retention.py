"""What retention keeps, in days and moments, without a lake."""

import json
from collections.abc import Collection
from dataclasses import fields
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from pipelines.config.loader import load_config
from pipelines.config.model import PipelineConfig
from pipelines.delta.stream_position import Position, positions_of
from pipelines.errors import ConfigError
from pipelines.ledger.certifications import Verdict
from pipelines.ledger.retention_properties import first_day_by_age, first_moment_of, last_event_day
from pipelines.retention.blockers import DaysOfBronze, uncertified
from pipelines.retention.removal_terms import FirstOffset, below_offsets

NEW_YORK = ZoneInfo("America/New_York")
DAY = timedelta(days=1)
REBUILD = "run first: oncelake nightly_batch --pipeline flights"
NOW = datetime(2013, 6, 30, 12, tzinfo=UTC)


def config(*settings: str) -> PipelineConfig:
    return load_config("flights", environ={}, settings=settings)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            ["bronze_retention=10 days"],
            "2 x batch.dedup_horizon_days (1) + decode.max_future (1 day), which is 10 days",
        ),
        (["speed_retention=8 days"], "which is 9 days, at least, got '8 days'"),
        (
            ["quarantine_retention=30 days"],
            "bronze_retention, which is not set, so that bronze keeps everything",
        ),
        (["bronze_retention=60 days", "quarantine_retention=30 days"], "which is '60 days', got '30 days'"),
        (["vacuum_after=6 days"], "expected 7 days at least"),
    ],
)
def test_a_retention_that_takes_what_another_step_needs_is_refused(settings: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config(*(f"maintain.{setting}" for setting in settings))
    assert said in str(refused.value)
    assert str(refused.value).startswith("--set maintain.")


def test_retentions_that_just_last_are_taken() -> None:
    kept = ("bronze_retention=10 days 1 second", "speed_retention=9 days", "quarantine_retention=11 days")
    assert config(*(f"maintain.{setting}" for setting in kept)).maintain.speed_retention == 9 * DAY


def test_no_record_of_a_day_that_stays_whole_is_older_than_the_cut() -> None:
    # The clocks go forward on 10 March and back on 3 November.
    for day in (date(2013, 3, 10), date(2013, 3, 11), date(2013, 11, 3), date(2013, 11, 4)):
        for max_future in (timedelta(minutes=1), DAY, 3 * DAY):
            cut = first_moment_of(day, max_future, NEW_YORK)
            assert last_event_day(cut, max_future, NEW_YORK) == day
            assert last_event_day(cut - timedelta(microseconds=1), max_future, NEW_YORK) == day - DAY


def test_days_that_the_nightly_run_looks_back_to_stay_whole_however_short_the_retention() -> None:
    assert first_day_by_age(config(), 30 * DAY, NOW, NEW_YORK) == date(2013, 6, 1)
    looking_back = config("batch.lookback_days=7", "batch.dedup_horizon_days=2")
    assert first_day_by_age(looking_back, DAY, NOW, NEW_YORK) == date(2013, 6, 18)


def verdict(day: date, records: int, status: str = "certified") -> Verdict:
    values: dict[str, Any] = dict.fromkeys((field.name for field in fields(Verdict)), 0)
    return Verdict(**values | {"day": day, "records": records, "status": status})


def test_a_day_that_the_batch_layer_does_not_hold_as_bronze_does_keeps_its_neighbours_as_well() -> None:
    one, two, three, nine = (date(2013, 1, n) for n in (1, 2, 3, 9))
    records = {one: 5, two: 7, nine: 1}

    def need(
        *verdicts: Verdict, first: date | None = None, before: date = three, late: Collection[date] = ()
    ) -> tuple[date, str] | None:
        found = uncertified(config(), DaysOfBronze(records, verdicts, late), first, before)
        return None if found is None else (found.day, found.why)

    assert need(verdict(one, 5), verdict(two, 7)) is None
    assert need(verdict(one, 5)) == (one, f"2013-01-02 is not certified: {REBUILD} --date 2013-01-02")
    assert need(verdict(one, 5), verdict(two, 7, "failed")) == (
        one,
        f"2013-01-02 is not certified: {REBUILD} --date 2013-01-02",
    )
    # One that broke the contract since, and one that came, leave the number as it was.
    assert need(verdict(one, 5), verdict(two, 7), late=[two]) == (
        one,
        f"records of 2013-01-02 came after it was certified: {REBUILD} --date 2013-01-02",
    )
    late = need(verdict(one, 4), verdict(two, 7))
    assert late == (
        one - DAY,
        f"2013-01-01 has 5 records, and had 4 when it was certified: {REBUILD} --date 2013-01-01",
    )
    # All records of a day have become broken since.
    assert need(verdict(one, 5), verdict(two, 7), verdict(three, 3)) is not None
    assert need(verdict(two, 7), first=two) is None
    assert need(verdict(one, 5), verdict(two, 7), before=nine) == (
        nine - DAY,
        f"2013-01-09 is not certified: {REBUILD} --date 2013-01-09",
    )


def test_the_checkpoint_says_up_to_where_bronze_was_read() -> None:
    def at(index: int, is_start: bool) -> Position | None:
        offset = {"reservoirId": "x", "reservoirVersion": 5, "index": index, "isStartingVersion": is_start}
        found, other = positions_of(f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps(offset)}\n-', "offsets/1")
        assert other is None
        return found

    ended, within, at_start = at(-1, False), at(3, False), at(3, True)
    assert (ended, ended and ended.last) == (Position(5, is_start=False, is_whole=True), 4)
    assert (within, within and within.last) == (Position(5, is_start=False, is_whole=False), 5)
    assert (at_start, at_start and at_start.last) == (Position(5, is_start=True, is_whole=False), 5)


def test_a_cut_names_each_partition_and_without_any_takes_nothing() -> None:
    cuts = [FirstOffset("flights", 0, 3), FirstOffset("flights", 1, 9)]
    assert below_offsets(cuts) == (
        "(_topic = 'flights' AND _partition = 0 AND _offset < 3)"
        " OR (_topic = 'flights' AND _partition = 1 AND _offset < 9)"
    )
    assert below_offsets([]) == "false"
