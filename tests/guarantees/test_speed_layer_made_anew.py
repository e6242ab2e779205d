"""A speed layer that is made anew from compacted bronze ends in a certified night."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from random import Random
from typing import Any, Final

import pytest
from delta.tables import DeltaTable

from pipelines.steps.checkpoints import reset_checkpoint
from tests.support.lakes import Lake
from tests.support.nights import on, run, stream

DAYS: Final = range(1, 8)
_OPTIMIZE: Final = "spark.databricks.delta.optimize"


@pytest.fixture
def lake(make_lake: Callable[..., Lake], small: Any) -> Iterator[Lake]:
    """A lake whose state lies in one partition."""
    lake = make_lake("speed.state_partitions=1", contract=small)
    yield lake
    for key in ("minFileSize", "maxFileSize"):
        lake.spark.conf.unset(f"{_OPTIMIZE}.{key}")


def optimize(lake: Lake, size: int) -> None:
    """Compaction into files of about a size, as of years of bronze into files of 128 MB."""
    for key in ("minFileSize", "maxFileSize"):
        lake.spark.conf.set(f"{_OPTIMIZE}.{key}", size)
    DeltaTable.forPath(lake.spark, lake.config.table("bronze")).optimize().executeCompaction()


def fill(lake: Lake) -> int:
    """One micro-batch for each day; returns the bytes of the smallest file."""
    noise = Random(1)  # noqa: S311 - nothing secret
    for day in DAYS:
        # Compaction packs files by size, so it will put the first with the last, and so on.
        filler = noise.randbytes(150 * min(2 * day - 1, 2 * (DAYS[-1] - day) + 2))
        records = [on(day, number) for number in range(1, 4)]
        lake.ingest([replace(records[0], headers=(("noise", filler),)), *records[1:]])
    files = lake.table("bronze").selectExpr("_metadata.file_size AS size").distinct()
    return int(min(row["size"] for row in files.collect()))


def test_following_the_runbook_ends_in_a_certified_night(lake: Lake) -> None:
    small = fill(lake)
    stream(lake)
    optimize(lake, int(2.7 * small))
    reset_checkpoint(lake.pipeline, "reset", "speed")
    file_by_file = lake.config.speed.model_copy(update={"max_bytes_per_trigger": "1b"})
    lake.config = lake.config.model_copy(update={"speed": file_by_file})
    counts = stream(lake).counts
    assert (counts.records, counts.rows, counts.late) == (21, 21, 0)
    assert counts.batches > 3
    days = [date(2013, 1, day) for day in DAYS]
    assert set(run(lake, days[0], days[-1]).days.values()) == {"certified"}
