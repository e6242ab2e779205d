"""How far each stage is behind: ingest by Kafka's offsets, the others by the table that they read."""

import platform
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import psutil
from delta.tables import DeltaTable
from pyspark.sql import functions as F

from pipelines.delta.io import small_rows
from pipelines.delta.stream_position import first_unread_version, unread_rows
from pipelines.delta.tables import exists, version
from pipelines.kafka.backlog import RECENT, USUAL, Backlog, PartitionBacklog, backlog
from pipelines.lag.evidence import Evidence, PartitionLag, TopicHealth
from pipelines.spark.checkpoints import offsets_of, planned_at, query_files
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.stream_progress import Query, StreamProgress, read_progress

_EXECUTORS: Final = "spark.executor.instances"
_MOST_COMMITS: Final = 1_000


def stages(pipeline: Pipeline) -> Iterator[Evidence]:
    """Yield what is known of each stage of a pipeline, in the order of the data.

    Raises:
        ConfigError: there is no such topic.
        InfrastructureError: the cluster does not answer.
    """
    found = backlog(pipeline)
    ingest = _with_stream(pipeline, "ingest", found.at, partitions_of(found))
    usual = sum(each.came_usually for each in found.partitions.values()) / USUAL.total_seconds()
    health = TopicHealth(
        tuple(number for number, each in found.partitions.items() if not each.has_leader),
        tuple(number for number, each in found.partitions.items() if not each.is_in_sync),
    )
    yield ingest.of_topic(usual, health)
    if exists(pipeline.spark, pipeline.table("bronze")):
        speed = _with_stream(pipeline, "speed", datetime.now(UTC), _of_speed(pipeline))
        yield speed.fed_with(ingest.rate_out)
    if pipeline.config.publish and exists(pipeline.spark, pipeline.table("speed")):
        yield _with_stream(pipeline, "publish", datetime.now(UTC), _of_publish(pipeline))


def partitions_of(found: Backlog) -> tuple[PartitionLag, ...]:
    """Return how far ingest is behind in each partition."""
    return tuple(_of_ingest(number, each, found) for number, each in sorted(found.partitions.items()))


def _of_ingest(number: int, unread: PartitionBacklog, found: Backlog) -> PartitionLag:
    age = None if unread.first_at is None else max(found.at - unread.first_at, timedelta())
    left = found.retention - age if found.retention is not None and age is not None else None
    return PartitionLag(
        number,
        unread.unread,
        behind_s=None if age is None else age.total_seconds(),
        rate_in=unread.came / RECENT.total_seconds(),
        rate_out=unread.read / RECENT.total_seconds(),
        retention_s=None if left is None else max(left.total_seconds(), 0.0),
        lost=unread.lost,
    )


def _of_speed(pipeline: Pipeline) -> tuple[PartitionLag, ...]:
    oldest = F.unix_millis(F.min("_kafka_timestamp")).alias("oldest")
    unread = unread_rows(pipeline).groupBy("_partition").agg(F.count(F.lit(1)).alias("records"), oldest)
    now = datetime.now(UTC).timestamp()
    return tuple(
        PartitionLag(row["_partition"], row["records"], max(now - row["oldest"] / 1000, 0.0))
        for row in sorted(small_rows(unread), key=lambda row: row["_partition"])
    )


def _of_publish(pipeline: Pipeline) -> tuple[PartitionLag, ...]:
    """Return the rows of the speed layer's commits that the stream has not read, and the first one's age."""
    spark, table = pipeline.spark, pipeline.table("speed")
    first, newest = first_unread_version(pipeline, "publish") or 0, version(spark, table)
    if first > newest:
        return ()
    history = DeltaTable.forPath(spark, table).history(min(newest - first + 1, _MOST_COMMITS))
    added = F.col("operationMetrics")["numOutputRows"].cast("bigint")
    commits = history.where(F.col("version") >= first).where(added > 0)
    totals = commits.agg(F.sum(added).alias("rows"), F.unix_millis(F.min("timestamp")).alias("oldest"))
    (row,) = small_rows(totals)
    if not row["rows"]:
        return ()
    return (PartitionLag(None, row["rows"], max(datetime.now(UTC).timestamp() - row["oldest"] / 1000, 0.0)),)


def _with_stream(
    pipeline: Pipeline, stage: Query, at: datetime, partitions: tuple[PartitionLag, ...]
) -> Evidence:
    checkpoint = pipeline.checkpoint(stage)
    stream = read_progress(pipeline.spark, checkpoint)
    wanted = pipeline.config.spark.conf.get(_EXECUTORS)
    return Evidence(
        stage,
        at,
        partitions,
        stream,
        _in_flight_s(pipeline, checkpoint, at),
        is_alive=_is_alive(stream) if stream else None,
        wanted_executors=int(wanted) if wanted else None,
    )


def _in_flight_s(pipeline: Pipeline, checkpoint: str, at: datetime) -> float | None:
    files = query_files(pipeline.spark, checkpoint)
    if files.in_flight is None:
        return None
    text = offsets_of(pipeline.spark, checkpoint, files.in_flight)
    return max((at - planned_at(text)).total_seconds(), 0.0) if text else None


def _is_alive(stream: StreamProgress) -> bool | None:
    """Return whether the process of a run is there; None where that cannot be seen from here."""
    if stream.host != platform.node():
        return None
    try:
        # Its id may have been given to another, which began later.
        return psutil.Process(stream.pid).create_time() <= stream.started_at.timestamp()
    except psutil.NoSuchProcess:
        return False
