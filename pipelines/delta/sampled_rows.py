"""Some rows of the commits that a query has not read: a bounded number, whatever the commits hold."""

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import accumulate
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from pipelines.config.streams import STREAMS, TableQuery
from pipelines.delta.commits import appended_files
from pipelines.delta.log import newest_snapshot, rows_of_files
from pipelines.delta.stream_position import first_unread_version
from pipelines.delta.tables import version
from pipelines.spark.files import HadoopFile
from pipelines.spark.pipeline import Pipeline

PLACES: Final = 16
MOST_ROWS: Final = 2_000
"""Rows of a sample, at most."""

_AT_ONCE: Final = MOST_ROWS // PLACES
# Of a file, as it is stored.
_BYTES: Final = 1 << 20
_MOST_COMMITS: Final = 1_000
_MOST_LINES: Final = 200


def sampled_rows(pipeline: Pipeline, query: TableQuery) -> DataFrame | None:
    """Return some rows of the table that a query reads: those that it has not read, or has read last.

    They are the first rows of 16 files at most, of 16 commits at most, which are spread over what is unread.
    A large file stands for several of the 16, and has as many times the rows.

    Args:
        pipeline: The pipeline.
        query: The query.

    Returns:
        `MOST_ROWS` rows at most, and about `PLACES` MiB at most; None if these commits have no rows.

    Raises:
        SourceError: A commit of the table is damaged.
    """
    spark, table = pipeline.spark, pipeline.table(STREAMS[query].reads[0])
    newest, unread = version(spark, table), first_unread_version(pipeline, query) or 0
    # What has made the last tasks long may be read by now.
    first = max(min(unread, newest - PLACES + 1), newest - _MOST_COMMITS + 1, 0)
    versions = spread(range(first, newest + 1))
    files = [file for at in versions for file in appended_files(spark, table, at, _MOST_LINES)]
    by_number = picked([int(file["add"]["size"]) for file in files])
    chosen = [(files[number], times) for number, times in by_number.items()]
    snapshot = newest_snapshot(spark, table)
    parts = [
        _rows(spark, table, snapshot, file).limit(row_limit(file["add"], times))
        for file, times in chosen
        # VACUUM removes what compaction has replaced.
        if HadoopFile.of_url(spark, file["add"]["path"], table).exists()
    ]
    return reduce(DataFrame.unionByName, parts) if parts else None


def spread(numbers: range) -> list[int]:
    """Return some numbers of a range: the last of each sixteenth."""
    parts = min(PLACES, len(numbers))
    return [numbers[len(numbers) * (part + 1) // parts - 1] for part in range(parts)]


def picked(sizes: Sequence[int]) -> Counter[int]:
    """Return which of some files are sampled, by their numbers, and how many places each stands for.

    Args:
        sizes: The bytes of each.
    """
    ends = list(accumulate(max(size, 1) for size in sizes))
    if not ends:
        return Counter()
    marks = (ends[-1] * (2 * place + 1) / (2 * PLACES) for place in range(PLACES))
    return Counter(bisect_left(ends, mark) for mark in marks)


def row_limit(added: Mapping[str, Any], times: int) -> int:
    """Return how many rows of a file are read.

    Args:
        added: What the log says of the file.
        times: How many places it stands for.
    """
    records = json.loads(added.get("stats") or "{}").get("numRecords")
    size = max(int(added["size"]), 1)
    within = max(_BYTES * records // size, 1) if records else _AT_ONCE
    return times * min(_AT_ONCE, within)


def _rows(spark: SparkSession, table: str, snapshot: Any, action: Mapping[str, Any]) -> DataFrame:
    jvm: Any = spark.sparkContext._jvm
    file = jvm.org.apache.spark.sql.delta.actions.Action.fromJson(json.dumps(action))
    return rows_of_files(spark, table, snapshot, [file])
