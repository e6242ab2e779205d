"""Days on the output topic: those that the stream has settled, and those that were published as a whole."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.config import PipelineConfig
from pipelines.ops.certification import Verdict, certified_in, history, newest_certified
from pipelines.ops.query_files import query_files
from pipelines.sinks.delta import append, append_once, read, small_rows
from pipelines.sinks.tables import ensure_table, exists, shape, small_frame

_SHAPE: Final = "pipeline string, query string, batch bigint, day date, batch_version bigint"
_TABLE: Final = "published_days"
_WHOLE_SHAPE: Final = (
    "pipeline string, day date, batch_version bigint, topic_id string, run_id string, published_at timestamp"
)
_WHOLE_TABLE: Final = "publications"


@dataclass(frozen=True)
class Settled:
    """The days that a stream has settled.

    Attributes:
        version: the version of the batch table that the topic follows on these days; -1 before there is one.
        days: the days, in order.
    """

    version: int = -1
    days: tuple[date, ...] = ()

    def since(self, ledger: Iterable[Verdict]) -> "Settled | None":
        """The days that were certified since, at the version of now; None if there are none.

        Args:
            ledger: verdicts as `history` gives them.
        """
        ledger = list(ledger)
        state = certified_in(ledger)
        if state is None or state.version <= self.version:
            return None
        found = newest_certified(ledger)
        return Settled(
            state.version,
            tuple(day for day, verdict in found.items() if verdict.batch_version > self.version),
        )

    def and_then(self, newer: "Settled | None") -> "Settled":
        """These days and those that were settled after them."""
        if newer is None:
            return self
        return Settled(newer.version, tuple(sorted({*self.days, *newer.days})))


def settled_before(
    spark: SparkSession, config: PipelineConfig, query: str | None, batch: int | None = None
) -> Settled:
    """The days that a stream had settled before a micro-batch.

    Args:
        spark: the session.
        config: the pipeline's configuration.
        query: the id of the stream's query; None if there is none yet.
        batch: the number of the micro-batch; None for all that there were.
    """
    table = config.ops_table(_TABLE)
    if query is None or not exists(spark, table):
        return Settled()
    rows = read(spark, table).where((F.col("pipeline") == config.name) & (F.col("query") == query))
    if batch is not None:
        rows = rows.where(F.col("batch") < batch)
    found = small_rows(rows.groupBy("day").agg(F.max("batch_version").alias("version")).orderBy("day"))
    return Settled(max((row["version"] for row in found), default=-1), tuple(row["day"] for row in found))


def unsettled(spark: SparkSession, config: PipelineConfig, days: Iterable[date]) -> list[date]:
    """The certified days that publishing, if the pipeline does so, has not settled.

    Args:
        spark: the session.
        config: the pipeline's configuration.
        days: certified days.
    """
    query = query_files(spark, config.checkpoint("publish")).query if config.publish else None
    if query is None:
        return []
    return sorted({*days} - {*settled_before(spark, config, query).days})


def unsettled_since(spark: SparkSession, config: PipelineConfig) -> tuple[date, ...]:
    """The days that were certified, or certified anew, after publishing has settled what was certified then.

    There are none while no stream publishes the pipeline.
    """
    query = query_files(spark, config.checkpoint("publish")).query
    if query is None:
        return ()
    newer = settled_before(spark, config, query).since(history(spark, config))
    return newer.days if newer else ()


def record_settled(
    spark: SparkSession, config: PipelineConfig, query: str, batch: int, settled: Settled
) -> None:
    """Records what a micro-batch settles, unless an earlier try has done so.

    Args:
        spark: the session.
        config: the pipeline's configuration.
        query: the id of the stream's query.
        batch: the number of the micro-batch.
        settled: the days, and the version at which they are settled.
    """
    table = config.ops_table(_TABLE)
    ensure_table(spark, table, shape(_SHAPE), partitions=["pipeline"])
    one = {"pipeline": config.name, "query": query, "batch": batch, "batch_version": settled.version}
    rows = [{**one, "day": day} for day in settled.days]
    append_once(small_frame(spark, rows, shape(_SHAPE)), table, batch)


@dataclass(frozen=True)
class Publication:
    """How a day was published as a whole.

    Attributes:
        count: how often.
        version: the version of the batch table that it had the last time; -1 if there was none.
    """

    count: int = 0
    version: int = -1


def publication(spark: SparkSession, config: PipelineConfig, day: date, topic_id: str) -> Publication:
    """How a day was published to a topic as a whole."""
    table = config.ops_table(_WHOLE_TABLE)
    if not exists(spark, table):
        return Publication()
    ours = (F.col("pipeline") == config.name) & (F.col("day") == F.lit(day)) & (F.col("topic_id") == topic_id)
    rows = read(spark, table).where(ours)
    (found,) = small_rows(rows.agg(F.count("*").alias("n"), F.max("batch_version").alias("version")))
    return Publication(found["n"], -1 if found["version"] is None else found["version"])


def record_publication(
    spark: SparkSession,
    config: PipelineConfig,
    day: date,
    version: int,
    topic_id: str,
    run_id: str,
    at: datetime,
) -> None:
    """Records that a day was published as a whole."""
    table = config.ops_table(_WHOLE_TABLE)
    ensure_table(spark, table, shape(_WHOLE_SHAPE), partitions=["pipeline"])
    row = {
        "pipeline": config.name,
        "day": day,
        "batch_version": version,
        "topic_id": topic_id,
        "run_id": run_id,
        "published_at": at,
    }
    append(small_frame(spark, [row], shape(_WHOLE_SHAPE)), table)
