"""The index of bronze: which micro-batches of ingest hold records of which event day.

Bronze keeps records in the order in which they came, whatever their event day. The index lets a rebuild
read only the micro-batches that it needs, and shows which days have new records since they were certified.
It is built in `pipelines.ledger.bronze_indexer`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from pipelines.delta.conditions import days_condition
from pipelines.delta.io import small_rows
from pipelines.delta.small_tables import read_small
from pipelines.delta.tables import shape, small_frame
from pipelines.ledger.forgotten import not_emptied
from pipelines.ledger.offset_ranges import PartitionOffsets, partition_offsets
from pipelines.records.watermark import moved_by
from pipelines.spark.pipeline import Pipeline
from pipelines.sql import instant

RECORDS: Final = "records"
OFFSETS: Final = "offsets"
EMPTIED: Final = "emptied"
_MOST_RANGES: Final = 64
_GAP: Final = "10 minutes"
_NEVER: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FROM: Final = "coalesce(ingested_from, ingested_at)"


class RecordCounts(NamedTuple):
    """How many records bronze holds.

    Attributes:
        valid: Those that meet the contract, by event day.
        broken: Those that break it.
    """

    valid: dict[date, int]
    broken: int


@dataclass(frozen=True)
class BronzeIndex:
    """What the index says of bronze at one version.

    Attributes:
        version: The version of bronze.
        bronze_id: Under which name its versions can be compared with others: the id of its table; where the
            table was replaced or restored meanwhile, with a hash of where that was found.
        rows: The rows of the index, in the shape of `ops_tables.BRONZE_INDEX`. Of kind `records`: the
            `records` of one micro-batch (`commit`, `ingested_at`) with one event `day`, their `newest` event
            time and newest `clock` (see `pipelines.records.watermark`); or, with no day, those that broke the
            contract for one `reason`. Of kind `offsets`: the `first` and `last` offset of a Kafka partition
            among what came until one version, how many `records` and how many `distinct` offsets, when the
            newest was `sent`, and when the newest was `appended`, if the broker's clock says so. Of kind
            `emptied`: the `records` of one micro-batch that were forgotten, and the `newest` event time and
            `clock` that they had.
            Old micro-batches of an hour are one row of kind `records` (`pipelines.ledger.index_folding`): its
            `commit` and `ingested_at` are those of the last one, `ingested_from` is the first ingestion, and
            `batches` has them all.
    """

    version: int
    bronze_id: str
    rows: DataFrame

    def until(self, version: int) -> "BronzeIndex":
        """Return what the index said at an earlier version; records are read from the same version as before.

        Exact for a version that a verdict names, and for recent ones; of offsets for recent ones alone.
        """
        rows = self.rows.where(f"until <= {version} OR commit <= {version}")
        return BronzeIndex(self.version, self.bronze_id, rows)

    @property
    def records(self) -> DataFrame:
        """The rows of kind `records`."""
        return self.rows.where(F.col("kind") == RECORDS)

    def offsets(self) -> list[PartitionOffsets]:
        """Return what bronze holds of each Kafka partition, in their order."""
        return list(self._offsets)

    @cached_property
    def _offsets(self) -> tuple[PartitionOffsets, ...]:
        rows = self.rows.where(F.col("kind") == OFFSETS)
        return tuple(PartitionOffsets(**row) for row in small_rows(partition_offsets(rows)))

    def counts(self) -> RecordCounts:
        """Return how many records are valid, and how many are not."""
        records = {row["day"]: row["n"] for row in self._totals if row["kind"] == RECORDS}
        broken = records.pop(None, 0)
        return RecordCounts(records, broken)

    def records_of(self, days: Sequence[date]) -> int:
        """Return how many valid records bronze holds of some days."""
        valid = self.counts().valid
        return sum(valid.get(day, 0) for day in days)

    @cached_property
    def _totals(self) -> list[dict[str, Any]]:
        """What runs ask for again and again: by kind and event day, in one query."""
        of_records = self.rows.where(F.col("kind").isin(RECORDS, EMPTIED)).groupBy("kind", "day")
        return small_rows(
            of_records.agg(_sum("n"), F.min("commit").alias("first"), F.max("ingested_at").alias("last"))
        )

    def total(self) -> int:
        """Return how many records the index counts, those that were forgotten among them."""
        return self._number(RECORDS, EMPTIED)

    def emptied(self) -> int:
        """Return how many of the records that `total` counts were forgotten."""
        return self._number(EMPTIED)

    def _number(self, *kinds: str) -> int:
        return sum(row["n"] for row in self._totals if row["kind"] in kinds)

    def reasons(self) -> dict[str, int]:
        """Return how many records break the contract for each reason."""
        broken = self.records.where("day IS NULL").groupBy("reason").agg(_sum("n"))
        return {row["reason"]: row["n"] for row in small_rows(broken)}

    def records_after(self, versions: Mapping[date, int], spark: SparkSession) -> dict[date, int]:
        """Return how many valid records came for each day after its version of bronze, if any did.

        Args:
            versions: A version of bronze for each event day.
            spark: The session.
        """
        if not versions:
            return {}
        day_versions = small_frame(
            spark,
            [{"day": day, "known": version} for day, version in versions.items()],
            shape("day date, known bigint"),
        )
        # For the files: what is older than all of these versions is not read.
        newer = self.records.where(f"commit > {min(versions.values())}")
        late = newer.join(F.broadcast(day_versions), "day").where("commit > known")
        return {row["day"]: row["n"] for row in small_rows(late.groupBy("day").agg(_sum("n")))}

    def ranges(self, days: Sequence[date], since: int) -> list[tuple[datetime, datetime]]:
        """Return spans of `_ingested_at` with all records of some days, and all that came since a version.

        At most 64, whatever the days: of the gaps between micro-batches the largest are left out.

        Args:
            days: The event days, sorted.
            since: A version of bronze.
        """
        of_days = days_condition(days, "day") or "false"
        needed = self.records.where(f"{of_days} OR commit > {since}")
        spans = needed.select(F.expr(_FROM).alias("first"), F.col("ingested_at").alias("last")).distinct()
        before = Window.orderBy("first", "last").rowsBetween(Window.unboundedPreceding, -1)
        width = "struct(first - after, -unix_micros(first))"
        widest = (
            f"max_by(struct(after, first AS until), {width}, {_MOST_RANGES - 1})"
            f" FILTER (WHERE first > after + INTERVAL {_GAP})"
        )
        (found,) = small_rows(
            spans.withColumn("after", F.max("last").over(before)).agg(
                F.min("first").alias("first"), F.max("last").alias("last"), F.expr(widest).alias("gaps")
            )
        )
        if found["first"] is None:
            return []
        gaps = sorted((gap["after"], gap["until"]) for gap in found["gaps"] or ())
        starts = [found["first"], *(until for _, until in gaps)]
        return list(zip(starts, [*(after for after, _ in gaps), found["last"]], strict=True))

    def newest_events(self, since: datetime, by_clock: datetime) -> DataFrame:
        """Return what moved the speed layer's watermark: `_ingested_at timestamp, _newest timestamp`.

        Args:
            since: Micro-batches before this moment are taken together, as one.
            by_clock: From which ingestion on it is the clock, see `pipelines.records.watermark.moved_by`.
        """
        valid = self.rows.where(f"day IS NOT NULL OR kind = '{EMPTIED}'")
        # Where a row covers micro-batches that have to be distinguished.
        straddles = F.col("ingested_at") >= F.lit(since)
        straddles |= (F.expr(_FROM) < F.lit(by_clock)) & (F.col("ingested_at") >= F.lit(by_clock))
        apart = F.col("ingested_from").isNotNull() & straddles
        batches = (
            valid.where(~apart)
            .select(F.col("ingested_at").alias("at"), "commit", "newest", "clock")
            .unionByName(valid.where(apart).selectExpr("inline(batches)"))
        )
        moved = F.expr(moved_by(by_clock, "at", "newest", "clock"))
        together = F.greatest("at", F.lit(since)).alias("_ingested_at")
        commit = F.when(F.col("at") >= F.lit(since), F.col("commit")).alias("commit")
        by_batch = batches.groupBy(together, commit).agg(F.max(moved).alias("moved"))
        # Of several clusters a micro-batch may be read after one of a later ingestion that was committed
        # before it.
        in_order = Window.orderBy(F.col("commit").asc_nulls_first(), "_ingested_at")
        committed = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
        newest = by_batch.select("_ingested_at", F.max("moved").over(committed).alias("newest"))
        return newest.groupBy("_ingested_at").agg(F.max("newest").alias("_newest"))

    def micro_batches(self) -> DataFrame:
        """Return each micro-batch, by the moment of its ingestion: `at timestamp, commit bigint`."""
        is_folded = F.col("ingested_from").isNotNull()
        single = self.rows.where(F.col("kind").isin(RECORDS, EMPTIED) & ~is_folded).select(
            F.col("ingested_at").alias("at"), "commit"
        )
        folded = self.records.where(is_folded).selectExpr("inline(batches)").select("at", "commit")
        return single.unionByName(folded).groupBy("at").agg(F.min("commit").alias("commit"))

    def first_commit(self) -> int | None:
        """Return the oldest version of bronze of which the index has a micro-batch; None if it has none.

        An index that was built from nothing counts all records of that time as one micro-batch.
        """
        return min((row["first"] for row in self._totals if row["kind"] == RECORDS), default=None)

    def newest_ingest(self) -> datetime | None:
        """Return when the last micro-batch was ingested; None if there is none."""
        return max((row["last"] for row in self._totals if row["kind"] == RECORDS), default=None)


@dataclass(frozen=True)
class BronzeSlice:
    """Those micro-batches of bronze that a rebuild, an audit or a report needs.

    Attributes:
        index: The index of bronze.
        envelopes: Their records, in the shape of bronze.
        since: When the first of them was ingested.
        until: When the last micro-batch of bronze was ingested.
    """

    index: BronzeIndex
    envelopes: DataFrame
    since: datetime
    until: datetime


def bronze_slice(pipeline: Pipeline, index: BronzeIndex, days: Sequence[date], since: int) -> BronzeSlice:
    """Return micro-batches that hold all records of some days, and those that came since a version of bronze.

    Args:
        pipeline: The pipeline.
        index: The index of bronze.
        days: The event days, sorted.
        since: A version of bronze.
    """
    spans = index.ranges(days, since)
    newest = index.newest_ingest() or _NEVER
    within = [f"_ingested_at BETWEEN {instant(first)} AND {instant(last)}" for first, last in spans]
    envelopes = read_small(pipeline.spark, pipeline.table("bronze"), index.version).where(
        " OR ".join(within) or "false"
    )
    return BronzeSlice(index, not_emptied(envelopes), spans[0][0] if spans else newest, newest)


def _sum(name: str) -> Column:
    return F.sum("records").alias(name)
