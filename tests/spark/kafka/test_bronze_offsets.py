"""Where recent records end is read once, and again as soon as bronze is another."""

from collections.abc import Callable
from datetime import datetime

import pytest
from pyspark.sql import DataFrame

from pipelines.kafka import bronze_offsets
from pipelines.kafka.bronze_offsets import Ingestion, RecentOffsets, bronze_of_topic
from pipelines.spark.pipeline import Pipeline
from tests.support.lakes import Lake, Record, flight


def test_recent_offsets_are_read_once_for_each_state_of_bronze(
    make_lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, recent, reads = make_lake(), RecentOffsets(), list[Pipeline]()
    for number in range(3):
        lake.ingest([Record(flight(), partition=n, offset=10 * number) for n in range(number + 1)])
    moments = lake.table("bronze").select("_ingested_at").distinct().collect()
    first, second, third = sorted(row[0].astimezone() for row in moments)

    def counted(pipeline: Pipeline) -> DataFrame:
        reads.append(pipeline)
        return bronze_of_topic(pipeline)

    monkeypatch.setattr(bronze_offsets, "bronze_of_topic", counted)

    def last(since: datetime, until: datetime | None = None, after: datetime | None = None) -> dict[int, int]:
        return recent.last_by_partition(lake.pipeline, Ingestion(since, until, after))

    assert last(first, until=second) == {0: 10, 1: 10}
    assert last(first, after=second) == {0: 20, 1: 20, 2: 20}
    assert last(first) == {0: 20, 1: 20, 2: 20}
    assert len(reads) == 1
    assert last(first, until=first) == {0: 0}
    assert last(second, until=second) == {0: 10, 1: 10}
    assert last(third, after=third) == {}
    assert len(reads) == 4
    lake.ingest([Record(flight(), partition=7, offset=70)])
    assert last(third, after=third) == {7: 70}
    assert len(reads) == 5
