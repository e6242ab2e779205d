"""A clock of the reader that is behind makes no good record invalid."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import functions as F

from pipelines.contracts.contract import DataContract
from pipelines.delta.io import append
from pipelines.delta.record_tables import ensure_bronze
from pipelines.delta.stream_position import unread_rows
from pipelines.fault_points import Point, armed
from pipelines.ledger.decoding import decode_all
from pipelines.ledger.quarantine import Selection
from pipelines.records.decode import ERROR
from pipelines.retention.removal import first_offsets_kept
from pipelines.steps.nightly import nightly
from pipelines.steps.serving import read_serving
from tests.support.lakes import Lake
from tests.support.nights import ONE, on, run, stream
from tests.support.replays import replay

TEN = datetime(2013, 1, 1, 10, tzinfo=UTC)


@pytest.fixture
def lake(make_lake: Callable[..., Lake], small: DataContract) -> Lake:
    return make_lake(contract=replace(small, day_rules=()))


def read_at(lake: Lake, moment: datetime, *numbers: int, sent: datetime = TEN) -> None:
    """A micro-batch of ingest, on a machine whose clock says so."""
    ensure_bronze(lake.pipeline)
    rows = lake.envelopes([on(1, n, sent=sent) for n in numbers])
    append(rows.withColumn("_ingested_at", F.lit(moment)), lake.config.table("bronze"))


def flights(lake: Lake) -> list[int]:
    return sorted(row["flight"] for row in read_serving(lake.pipeline).collect())


def reasons(lake: Lake) -> list[str | None]:
    bronze = lake.table("bronze").orderBy("_offset")
    judged = decode_all(lake.pipeline, bronze)
    return [row["reason"] for row in judged.select(f"{ERROR}.reason").collect()]


def test_records_that_were_read_by_a_clock_days_behind_are_certified(lake: Lake) -> None:
    read_at(lake, TEN + timedelta(minutes=1), 1)
    read_at(lake, TEN - timedelta(days=2), 2, 3, 4, 5, 6)
    read_at(lake, TEN + timedelta(minutes=2), 7)
    assert stream(lake).counts.quarantined == 0

    def clock_steps_back() -> None:
        """A micro-batch comes to both layers after bronze was sealed, with an earlier time."""
        read_at(lake, TEN + timedelta(seconds=90), 8)
        assert stream(lake).counts.rows == 1

    with armed(Point.DAYS_BUILT, clock_steps_back):
        assert run(lake, ONE).days[ONE] == "certified"
    assert flights(lake) == [1, 2, 3, 4, 5, 6, 7]


def test_a_producer_whose_clock_is_far_ahead_still_cannot_date_events_so(lake: Lake) -> None:
    # The events are of the morning of the first.
    read_at(lake, TEN - timedelta(days=7, hours=23), 1)
    read_at(lake, TEN - timedelta(days=9), 2)
    assert reasons(lake) == [None, "event_time_future"]


@pytest.mark.thorough
def test_records_that_a_clock_further_behind_put_aside_have_a_way_back(lake: Lake) -> None:
    read_at(lake, TEN + timedelta(minutes=1), 1)
    read_at(lake, TEN - timedelta(days=300), 2)
    assert stream(lake).counts.quarantined == 1
    assert run(lake, ONE).days[ONE] == "certified"
    assert flights(lake) == [1]
    decode = lake.config.decode.model_copy(update={"max_future": timedelta(days=300)})
    config = lake.config.model_copy(update={"decode": decode})
    counts = replay(replace(lake.pipeline, config=config), "r", Selection(), dry_run=False).counts
    assert (counts.still_broken, counts.closed) == (0, 1)
    nightly(replace(lake.pipeline, config=config), "again", [ONE])
    assert flights(lake) == [1, 2]


def test_retention_takes_them_for_as_new_as_they_are(lake: Lake) -> None:
    read_at(lake, TEN - timedelta(days=2), 1, 2)
    assert [cut.offset for cut in first_offsets_kept(lake.table("bronze"), TEN)] == [0]


def test_records_that_came_after_a_clock_was_far_ahead_are_not_taken_for_read(lake: Lake) -> None:
    now = datetime.now(UTC)
    read_at(lake, now - timedelta(hours=1), 1)
    read_at(lake, now + timedelta(days=3), 2)
    stream(lake)
    read_at(lake, now, 3, 4)
    assert sorted(row["_offset"] for row in unread_rows(lake.pipeline).collect()) == [2, 3]
