"""What moved the watermark follows the order of commits, where ingests of several clusters overlap."""

from datetime import UTC, date, datetime, timedelta

from pyspark.sql import SparkSession

from pipelines.delta.tables import small_frame
from pipelines.ledger.bronze_index import RECORDS, BronzeIndex
from pipelines.ledger.ops_tables import BRONZE_INDEX

DAY = date(2026, 1, 1)
BEGIN = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(minute: int) -> datetime:
    return BEGIN + timedelta(minutes=minute)


def newest(spark: SparkSession, since: int, *batches: tuple[int, int, int]) -> dict[datetime, datetime]:
    """What moved the watermark, by ingestion, of micro-batches: ingested at, commit, newest event."""
    nothing = dict.fromkeys(BRONZE_INDEX.schema.names)
    rows = [
        nothing
        | {
            "pipeline": "p",
            "kind": RECORDS,
            "day": DAY,
            "records": 1,
            "ingested_at": at(ingested),
            "commit": commit,
            "newest": at(event),
            "clock": at(event),
        }
        for ingested, commit, event in batches
    ]
    index = BronzeIndex(99, "b", small_frame(spark, rows, BRONZE_INDEX.schema))
    found = index.newest_events(at(since), BEGIN - timedelta(days=1)).toArrow().to_pylist()
    return {row["_ingested_at"].astimezone(UTC): row["_newest"].astimezone(UTC) for row in found}


def test_what_was_committed_before_a_micro_batch_of_an_earlier_ingestion_counts(spark: SparkSession) -> None:
    # The one of minute 2 was committed after that of minute 3, so it was read after it.
    found = newest(spark, 0, (1, 1, 10), (2, 3, 20), (3, 2, 90), (4, 4, 30))
    assert found == {at(1): at(10), at(2): at(90), at(3): at(90), at(4): at(90)}


def test_what_was_committed_later_does_not_count(spark: SparkSession) -> None:
    found = newest(spark, 0, (1, 1, 10), (2, 2, 20), (3, 3, 90))
    assert (found[at(1)], found[at(2)]) == (at(10), at(20))


def test_what_came_before_is_taken_together(spark: SparkSession) -> None:
    found = newest(spark, 3, (1, 1, 10), (2, 4, 20), (3, 2, 15), (4, 3, 30))
    assert found == {at(3): at(20), at(4): at(30)}
