"""Fold old rows of the index of bronze, so that it does not grow by a row for each micro-batch.

The micro-batches of an hour become one row for each event day and reason, but never across a version of
bronze that a verdict names: what came after it is asked for. Pieces of a partition's offsets that follow on
each other become one. What the index answers stays as it was (`pipelines.ledger.bronze_index`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.delta.epochs import Stamp
from pipelines.delta.fenced_commits import claim, replace_where_fenced
from pipelines.delta.io import small_rows
from pipelines.delta.tables import shape, small_frame
from pipelines.ledger.bronze_index import OFFSETS, RECORDS
from pipelines.ledger.index_making import folded
from pipelines.ledger.leases import Lease
from pipelines.ledger.offset_ranges import in_a_row
from pipelines.ledger.ops_tables import BRONZE_INDEX, CERTIFICATIONS, rows_of
from pipelines.spark.pipeline import Pipeline
from pipelines.sql import instant

# What is younger stays as it came: most look-ups are for it.
_LEFT_ALONE: Final = timedelta(days=2)
_HOUR: Final = 3600
_NONE: Final = -1
_ENDLESS: Final = 2**63 - 1
# What all rows say of the bronze that they were made from: the newest of them is right.
_MADE_FROM: Final = ("until", "made_for", "bronze_id", "until_commit", "topic_id", "whole_from")


def fold_index(pipeline: Pipeline, lease: Lease | None) -> int:
    """Fold what of the pipeline's index is old, as one commit that later runs' commits keep from being made.

    Args:
        pipeline: The pipeline.
        lease: The pipeline's lease; without it nothing is changed.

    Returns:
        How many rows fewer there are.

    Raises:
        StaleEpoch: Another run has taken the lease over. Nothing was changed.
    """
    if not BRONZE_INDEX.exists(pipeline):
        return 0
    lake = _Folding(pipeline)
    try:
        return folded(lake, lease.stamp if lease else None)
    finally:
        for rows in lake.kept:
            rows.unpersist()


@dataclass
class _Folding:
    """The index of a pipeline, see `pipelines.ledger.index_making.FoldedLake`.

    Attributes:
        pipeline: The pipeline.
        kept: Frames that are kept until the folding is done.
        condition: Which rows are folded.
    """

    pipeline: Pipeline
    kept: list[DataFrame] = field(default_factory=list)
    condition: str = "false"

    @property
    def _table(self) -> str:
        return BRONZE_INDEX.path(self.pipeline)

    def claim(self, stamp: Stamp) -> None:
        """Make the index refuse the commits of all earlier epochs."""
        BRONZE_INDEX.ensure(self.pipeline)
        claim(self.pipeline.spark, self._table, stamp)

    def old(self) -> DataFrame | None:
        """Return the rows that are to be folded; None if there are none that are new to it."""
        stored = BRONZE_INDEX.rows(self.pipeline)
        if "ingested_from" not in stored.columns:
            return None
        old = _old(stored, datetime.now(UTC) - _LEFT_ALONE)
        if old is None:
            return None
        # A run that finds rows of two ways of decoding rebuilds the index; folded, they would look like one.
        made_from = F.struct("made_for", "whole_from")
        (ends,) = small_rows(stored.agg(F.min(made_from).alias("first"), F.max(made_from).alias("last")))
        if ends["first"] != ends["last"]:
            return None
        self.condition = old
        return stored.where(old)

    def fold(self, rows: DataFrame) -> DataFrame:
        """Return the same in fewer rows."""
        fewer = fold(rows, _verdict_versions(self.pipeline)).persist()
        self.kept.append(fewer)
        return fewer

    def count(self, rows: DataFrame) -> int:
        """Return how many rows these are."""
        return rows.count()

    def replace(self, folded: DataFrame, stamp: Stamp) -> None:
        """Write folded rows in place of the old ones."""
        replace_where_fenced(folded, self._table, f"{rows_of(self.pipeline)} AND ({self.condition})", stamp)


def fold(rows: DataFrame, versions: Iterable[int]) -> DataFrame:
    """Return the same in fewer rows.

    Args:
        rows: Rows of the index of one pipeline, folded or not, in the shape of `ops_tables.BRONZE_INDEX`.
        versions: The versions of bronze that verdicts name: of each it must stay known what came after it.

    Returns:
        Rows in the same shape, in the order of ingestion.
    """
    names = BRONZE_INDEX.schema.names
    records = _folded_records(rows.where(F.col("kind") == RECORDS), versions)
    offsets = _folded_offsets(rows.where(F.col("kind") == OFFSETS))
    every = records.unionByName(offsets, allowMissingColumns=True)
    # Files whose rows lie in a row are left out by readers that ask for later ones.
    return every.select(names).orderBy("kind", "ingested_at")


def _old(stored: DataFrame, before: datetime) -> str | None:
    """Return the rows that are folded now, as a condition; None if none of them is new to it.

    Whole hours, from the first one on of which not all is folded.
    """
    end = before.replace(minute=0, second=0, microsecond=0)
    young = stored.where(F.col("kind") == RECORDS).where(F.col("ingested_at") < F.lit(end))
    as_came = F.when(F.col("ingested_from").isNull(), F.col("ingested_at"))
    (newest,) = small_rows(young.agg(F.min(as_came).alias("first"), F.max("commit").alias("commit")))
    if newest["first"] is None:
        return None
    first = newest["first"].astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    within = f"ingested_at >= {instant(first)} AND ingested_at < {instant(end)}"
    return f"(kind = '{RECORDS}' AND {within}) OR (kind = '{OFFSETS}' AND until <= {newest['commit']})"


def _verdict_versions(pipeline: Pipeline) -> list[int]:
    versions = CERTIFICATIONS.rows(pipeline).select("bronze_version").distinct()
    return [row["bronze_version"] for row in small_rows(versions)]


def _folded_records(records: DataFrame, versions: Iterable[int]) -> DataFrame:
    """Return one row for each hour, span between two versions, day and reason."""
    ends = sorted({*versions, _NONE, _ENDLESS})
    spans = small_frame(
        records.sparkSession,
        [{"after": after, "upto": upto} for after, upto in pairwise(ends)],
        shape("after bigint, upto bigint"),
    )
    single = F.array(F.struct(F.col("ingested_at").alias("at"), "commit", "newest", "clock"))
    apart = records.withColumns(
        {
            "hour": F.floor(F.unix_seconds("ingested_at") / _HOUR),
            "batches": F.coalesce("batches", single),
        }
    )
    apart = apart.join(
        F.broadcast(spans), (F.col("commit") > F.col("after")) & (F.col("commit") <= F.col("upto"))
    )
    together = apart.groupBy("pipeline", "hour", "upto", "day", "reason").agg(
        F.min(F.coalesce("ingested_from", "ingested_at")).alias("ingested_from"),
        *(F.max(name).alias(name) for name in ("ingested_at", "commit", "newest", "clock")),
        F.sum("records").alias("records"),
        F.array_sort(F.flatten(F.collect_list("batches"))).alias("batches"),
        _made_from(),
    )
    return together.select("*", "made_from.*", F.lit(RECORDS).alias("kind"))


def _folded_offsets(pieces: DataFrame) -> DataFrame:
    """Return one row for each run of offsets without a gap between the pieces."""
    together = (
        in_a_row(pieces)
        .groupBy("pipeline", "topic", "partition", "run")
        .agg(
            F.min("first").alias("first"),
            *(F.max(name).alias(name) for name in ("last", "sent", "appended")),
            *(F.sum(name).alias(name) for name in ("records", "distinct")),
            _made_from(),
        )
    )
    return together.select("*", "made_from.*", F.lit(OFFSETS).alias("kind"))


def _made_from() -> Column:
    return F.max_by(F.struct(*_MADE_FROM), "until").alias("made_from")
