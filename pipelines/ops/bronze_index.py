"""The index of bronze: which micro-batches of ingest hold records of which event day.

Bronze keeps records in the order in which they came, whatever their event day. The index lets a rebuild
read only the micro-batches that it needs, and tells which days have got records since they were certified.
It is made in `pipelines.ops.indexing`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Final, cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.config import PipelineConfig
from pipelines.sinks.delta import days_condition, read, small_rows
from pipelines.sinks.tables import shape, small_frame
from pipelines.sql_text import literal
from pipelines.watermark import moved_by

INDEX: Final = (
    "pipeline string, made_for string, until bigint, kind string, commit bigint, ingested_at timestamp,"
    " day date, reason string, records bigint, newest timestamp, topic string, partition int, first bigint,"
    " last bigint, distinct bigint, sent timestamp, appended timestamp, bronze_id string,"
    " until_commit string, topic_id string, whole_from date, clock timestamp"
)
RECORDS: Final = "records"
OFFSETS: Final = "offsets"
_UNKNOWN: Final = "unknown_schema"
_MOST_RANGES: Final = 64
_GAP: Final = "10 minutes"
_NEVER: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class BronzeIndex:
    """What the index says of bronze at one version.

    Attributes:
        version: the version of bronze.
        bronze_id: under which name its versions can be compared with others: the id of its table; where the
            table was replaced or put back meanwhile, with a part of the commit at which that was found.
        rows: the rows of the index, in the shape of `INDEX`. Of kind `records`: the `records` of one
            micro-batch (`commit`, `ingested_at`) with one event `day`, their `newest` event time and newest
            `clock` (see `pipelines.watermark`); or, with no day, those that broke the contract for one
            `reason`. Of kind `offsets`: the `first` and `last` offset of a Kafka partition among what came
            until one version, how many `records` and how many `distinct` offsets, when the newest was `sent`,
            and when the newest was `appended`, if the broker's clock says so.
    """

    version: int
    bronze_id: str
    rows: DataFrame

    def until(self, version: int) -> "BronzeIndex":
        """What the index said at an earlier version; records are read from the same version as before."""
        rows = self.rows.where(f"until <= {version} OR commit <= {version}")
        return BronzeIndex(self.version, self.bronze_id, rows)

    @property
    def records(self) -> DataFrame:
        """The rows of kind `records`."""
        return self.rows.where(F.col("kind") == RECORDS)

    def offsets(self) -> list[dict[str, Any]]:
        """The rows of kind `offsets`, by partition and in the order in which they came."""
        ordered = self.rows.where(F.col("kind") == OFFSETS).orderBy("topic", "partition", "until")
        return small_rows(
            ordered.select("topic", "partition", "first", "last", "records", "distinct", "sent", "appended")
        )

    def counts(self) -> tuple[dict[date, int], int]:
        """Valid records of each event day, and records that break the contract."""
        found = {row["day"]: row["n"] for row in small_rows(self.records.groupBy("day").agg(_sum("n")))}
        broken = found.pop(None, 0)
        return found, broken

    def total(self) -> int:
        """All records that the index counts."""
        return int(small_rows(self.records.agg(_sum("n")))[0]["n"] or 0)

    def reasons(self) -> dict[str, int]:
        """How many records break the contract for each reason."""
        broken = self.records.where("day IS NULL").groupBy("reason").agg(_sum("n"))
        return {row["reason"]: row["n"] for row in small_rows(broken)}

    def came_since(self, versions: Mapping[date, int], spark: SparkSession) -> dict[date, int]:
        """Of each of these days, how many valid records came after a version of bronze, if any did."""
        if not versions:
            return {}
        known = small_frame(
            spark,
            [{"day": day, "known": version} for day, version in versions.items()],
            shape("day date, known bigint"),
        )
        late = self.records.join(F.broadcast(known), "day").where("commit > known")
        return {row["day"]: row["n"] for row in small_rows(late.groupBy("day").agg(_sum("n")))}

    def ranges(self, days: Sequence[date], since: int) -> list[tuple[datetime, datetime]]:
        """Spans of `_ingested_at` that hold all records of some days, and all that came since a version.

        Records whose schema was unknown may be of any day by now, so they are among them as well.

        Args:
            days: the event days, sorted.
            since: a version of bronze.
        """
        of_days = days_condition(days, "day") or "false"
        needed = self.records.where(f"{of_days} OR reason = {literal(_UNKNOWN)} OR commit > {since}")
        moments = needed.select("ingested_at").distinct()
        apart = f"ingested_at > lag(ingested_at) OVER (ORDER BY ingested_at) + INTERVAL {_GAP}"
        numbered = moments.selectExpr("ingested_at", f"int({apart}) AS apart")
        spans = numbered.selectExpr("ingested_at", "sum(apart) OVER (ORDER BY ingested_at) AS span")
        found = spans.groupBy("span").agg(
            F.min("ingested_at").alias("first"), F.max("ingested_at").alias("last")
        )
        rows = small_rows(found.orderBy("first"))
        return _fewer([(row["first"], row["last"]) for row in rows])

    def newest_events(self, since: datetime, by_clock: datetime) -> DataFrame:
        """What moved the speed layer's watermark: `_ingested_at timestamp, _newest timestamp`.

        Args:
            since: micro-batches before this moment are taken together, as one.
            by_clock: from which ingestion on it is the clock, see `pipelines.watermark.moved_by`.
        """
        valid = self.records.where("day IS NOT NULL")
        batch = F.greatest("ingested_at", F.lit(since)).alias("_ingested_at")
        moved = F.expr(moved_by(by_clock, "ingested_at", "newest", "clock"))
        return valid.groupBy(batch).agg(F.max(moved).alias("_newest"))

    def newest_ingest(self) -> datetime | None:
        """When the last micro-batch was ingested; None if there is none."""
        return cast(datetime | None, small_rows(self.records.agg(F.max("ingested_at").alias("t")))[0]["t"])


@dataclass(frozen=True)
class Pieces:
    """Those micro-batches of bronze that a rebuild, an audit or a report needs.

    Attributes:
        index: the index of bronze.
        envelopes: their records, in the shape of bronze.
        since: when the first of them was ingested.
        until: when the last micro-batch of bronze was ingested.
    """

    index: BronzeIndex
    envelopes: DataFrame
    since: datetime
    until: datetime


def pieces_of(
    spark: SparkSession, config: PipelineConfig, index: BronzeIndex, days: Sequence[date], since: int
) -> Pieces:
    """The micro-batches that hold all records of some days, and those that came since a version of bronze.

    Args:
        spark: the session.
        config: names the tables.
        index: the index of bronze.
        days: the event days, sorted.
        since: a version of bronze.
    """
    spans = index.ranges(days, since)
    newest = index.newest_ingest() or _NEVER
    within = [f"_ingested_at BETWEEN {_moment(first)} AND {_moment(last)}" for first, last in spans]
    envelopes = read(spark, config.table("bronze"), index.version).where(" OR ".join(within) or "false")
    return Pieces(index, envelopes, spans[0][0] if spans else newest, newest)


def _fewer(spans: list[tuple[datetime, datetime]]) -> list[tuple[datetime, datetime]]:
    """The same moments in fewer spans: those that are closest to each other are taken together."""
    gaps = sorted(range(1, len(spans)), key=lambda n: spans[n][0] - spans[n - 1][1], reverse=True)
    starts = sorted([0, *gaps[: _MOST_RANGES - 1]])
    ends = [*(n - 1 for n in starts[1:]), len(spans) - 1]
    return [(spans[a][0], spans[b][1]) for a, b in zip(starts, ends, strict=True)] if spans else []


def _moment(moment: datetime) -> str:
    return f"TIMESTAMP'{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}Z'"


def _sum(name: str) -> Column:
    return F.sum("records").alias(name)
