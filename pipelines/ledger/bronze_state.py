"""Whether bronze is still the table that its index was made from, and holds what that one held."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.delta.first_complete_day import first_complete_day_of_cluster
from pipelines.delta.io import read, small_rows
from pipelines.delta.record_tables import first_topic_of_bronze
from pipelines.delta.retention_cut import FirstKept, first_kept
from pipelines.delta.tables import shape, small_frame, table_id
from pipelines.delta.time_travel import commit_hash
from pipelines.errors import SourceError
from pipelines.ledger.offset_ranges import PartitionOffsets
from pipelines.message_texts import first_items
from pipelines.spark.pipeline import Pipeline

_SHOWN: Final = 5


@dataclass(frozen=True)
class Indexed:
    """The bronze that an index was made from. What is None was not yet written down when it was made.

    Attributes:
        made_for: The way of decoding that the index holds for.
        until: The newest version of bronze that it knows.
        bronze_id: See `BronzeIndex`.
        until_commit: The hash of the commit that made that version.
        topic_id: The id of the Kafka topic that bronze was filled from.
        whole_from: The first day of which retention had removed nothing.
    """

    made_for: str
    until: int
    bronze_id: str | None
    until_commit: str | None
    topic_id: str | None
    whole_from: date | None


@dataclass(frozen=True)
class BronzeState:
    """Bronze at a version.

    Attributes:
        table: Its path.
        version: The version.
        table_id: The id that Delta gave the table.
        commit: The hash of the commit that made the version.
        topic_id: The id of the Kafka topic that it is filled from; None if it was never asked for.
        whole_from: The first day of which retention has removed nothing; None if it never did.
        first_kept: The first offset of each partition that retention kept; None if other records were lost,
            too.
    """

    table: str
    version: int
    table_id: str
    commit: str | None
    topic_id: str | None
    whole_from: date | None
    first_kept: FirstKept | None


def bronze_state(pipeline: Pipeline, version: int) -> BronzeState:
    """Return what distinguishes bronze at a version from other tables, and from its other states."""
    spark = pipeline.spark
    table = pipeline.table("bronze")
    whole_from = first_complete_day_of_cluster(pipeline, None)
    return BronzeState(
        table,
        version,
        table_id(spark, table),
        commit_hash(spark, table, version),
        first_topic_of_bronze(pipeline),
        whole_from,
        first_kept(pipeline, whole_from),
    )


def unexplained_loss(bronze: BronzeState) -> date | None:
    """Return the first complete day of bronze, if others than retention have lost records before it."""
    return bronze.whole_from if bronze.first_kept is None else None


def was_cut(bronze: BronzeState, indexed: Indexed | None) -> bool:
    """Return whether retention has removed records, or a loss was told, since an index was made."""
    return indexed is not None and indexed.whole_from != bronze.whole_from


def continues(spark: SparkSession, bronze: BronzeState, indexed: Indexed) -> bool:
    """Return whether bronze continues the table that an index was made from, see `is_continued`."""
    return is_continued(bronze, indexed, partial(commit_hash, spark, bronze.table))


def is_continued(bronze: BronzeState, indexed: Indexed, hash_of: Callable[[int], str | None]) -> bool:
    """Return whether bronze is the table that an index was made from, and continues what the index knows.

    A table that was restored from a copy has the same id, and soon the same versions, made by other commits.

    Args:
        bronze: Bronze as it is.
        indexed: What the index was made from.
        hash_of: Returns the hash of the commit that made a version; None if the log lacks it.
    """
    if indexed.bronze_id is None:
        return indexed.until <= bronze.version
    if indexed.bronze_id.partition("/")[0] != bronze.table_id or indexed.until_commit is None:
        return False
    return hash_of(indexed.until) == indexed.until_commit


def bronze_id(bronze: BronzeState, indexed: Indexed | None, *, is_same: bool) -> str:
    """Return the name by which versions of bronze are compared: the table's id, with a hash if need be.

    A bronze that took the place of another gets a hash of where the other was left, and of its own commit. So
    one that is put back from the same copy twice has two names: what came after the copy is not the same.

    Args:
        bronze: Bronze as it is.
        indexed: What the index was made from, if there is one.
        is_same: What `continues` says.
    """
    if indexed is None or (is_same and indexed.bronze_id is None):
        return bronze.table_id
    if is_same and indexed.bronze_id:
        return indexed.bronze_id
    left = f"{indexed.bronze_id} {indexed.until} {indexed.until_commit} {bronze.commit}"
    return f"{bronze.table_id}/{hashlib.sha256(left.encode()).hexdigest()[:8]}"


def require_same_bronze(begun: BronzeState, found_id: str, found_commit: str | None) -> None:
    """Make sure that bronze is still the table that it was, at the same version.

    Args:
        begun: Bronze as it was before it was read.
        found_id: The id of the table that is there now.
        found_commit: The hash of the commit that made its version of that number; None if its log lacks it.

    Raises:
        SourceError: It is not.
    """
    if (begun.table_id, begun.commit) != (found_id, found_commit):
        raise SourceError(
            f"{begun.table}: the table was replaced, or restored from a copy, while this run read it: found"
            f" table id {found_id} and commit {_short(found_commit)} at version {begun.version}, expected"
            f" {begun.table_id} and {_short(begun.commit)}. Nothing of what was read was written. Start the"
            " run again"
        )


def _short(commit: str | None) -> str:
    return "none" if commit is None else commit[:8]


def require_indexed_offsets(
    spark: SparkSession, bronze: BronzeState, indexed: Indexed, indexed_offsets: list[PartitionOffsets]
) -> None:
    """Make sure that bronze holds every offset that the index knows, see `require_offsets_of_index`."""
    expected = without_removed(indexed_offsets, bronze.first_kept or {})
    require_offsets_of_index(bronze, indexed, lambda: _lacking(spark, bronze, expected))


def require_offsets_of_index(bronze: BronzeState, indexed: Indexed, find: Callable[[], list[str]]) -> None:
    """Make sure that bronze holds every offset that the bronze held from which an index was made.

    Those that retention has removed since are not missed. Bronze that says for another reason, since then,
    from which day on it is whole is taken at its word.

    Args:
        bronze: Bronze as it is.
        indexed: What the index was made from.
        find: Finds which of the offsets that the index knows, and that retention kept, bronze lacks: a
            text for each partition.

    Raises:
        SourceError: It does not.
    """
    if is_taken_at_its_word(bronze, indexed):
        return
    if None not in (bronze.topic_id, indexed.topic_id) and bronze.topic_id != indexed.topic_id:
        lacking = [
            f"it was filled from another topic: found id {bronze.topic_id}, expected {indexed.topic_id}"
        ]
    else:
        lacking = find()
    if lacking:
        said = _latest(bronze, indexed)
        later = "" if said is None else f", later than {said}"
        raise SourceError(
            f"{bronze.table}: records are gone that nightly runs have seen: the table was replaced or"
            f" restored, or rows were deleted: found table id {bronze.table_id} at version {bronze.version},"
            f" expected {indexed.bronze_id or 'a table'} at version {indexed.until} or later."
            f" Missing: {first_items(lacking, _SHOWN, 'partitions')}. No day was certified."
            " Restore the table, let ingest read again what Kafka still has, or set the first day of which"
            f" this table holds all records{later}: see docs/runbook.md, 'Bronze is another table'"
        )


def is_taken_at_its_word(bronze: BronzeState, indexed: Indexed) -> bool:
    """Return whether bronze says since the index was made, and not by retention, that it lost records."""
    return _latest(bronze, indexed) != indexed.whole_from and bronze.first_kept is None


def _latest(bronze: BronzeState, indexed: Indexed) -> date | None:
    return max(filter(None, (bronze.whole_from, indexed.whole_from)), default=None)


def without_removed(indexed: Iterable[PartitionOffsets], kept: FirstKept) -> list[PartitionOffsets]:
    """Return what an index knows of each partition, without the offsets that retention has removed since.

    Of a partition that has gaps nobody knows how many of its offsets were removed: as many are taken off as
    there can have been.

    Args:
        indexed: What the index knows.
        kept: The first offset of each partition that retention kept, which bronze has.
    """
    expected = []
    for each in indexed:
        first = max(each.first, kept.get((each.topic, each.partition), each.first))
        distinct = each.distinct
        if distinct is not None:
            distinct = max(distinct - (first - each.first), 1)
        if first <= each.last:
            expected.append(replace(each, first=first, distinct=distinct))
    return expected


def _lacking(spark: SparkSession, bronze: BronzeState, indexed_offsets: list[PartitionOffsets]) -> list[str]:
    if not indexed_offsets:
        return []
    names = ("topic", "partition", "first", "last")
    requested = [{name: getattr(offsets, name) for name in names} for offsets in indexed_offsets]
    ranges = F.broadcast(
        small_frame(spark, requested, shape("topic string, partition int, first bigint, last bigint"))
    )
    present_rows = small_rows(_within(read(spark, bronze.table, bronze.version), ranges))
    by_partition: dict[tuple[str, int], dict[str, Any]] = {
        (row["topic"], row["partition"]): row for row in present_rows
    }
    lacking = []
    for offsets in indexed_offsets:
        row = by_partition.get((offsets.topic, offsets.partition))
        place = f"{offsets.topic}-{offsets.partition}"
        span = f"{offsets.first}..{offsets.last}"
        if row is None:
            lacking.append(f"{place}: all of the offsets {span}")
        elif (row["from"], row["to"]) != (offsets.first, offsets.last):
            lacking.append(f"{place}: the offsets {span} except {row['from']}..{row['to']}")
        elif offsets.distinct is not None and row["distinct"] < offsets.distinct:
            lacking.append(f"{place}: {offsets.distinct - row['distinct']:,} of the offsets {span}")
    return lacking


def _within(bronze: DataFrame, ranges: DataFrame) -> DataFrame:
    """Return what bronze holds within ranges of offsets, by partition."""
    offsets = bronze.selectExpr("_topic AS topic", "_partition AS partition", "_offset AS offset")
    return (
        offsets.join(ranges, ["topic", "partition"])
        .where("offset BETWEEN first AND last")
        .groupBy("topic", "partition")
        .agg(
            F.min("offset").alias("from"),
            F.max("offset").alias("to"),
            F.count_distinct("offset").alias("distinct"),
        )
    )
