"""How far each stage is behind: ingest by Kafka's offsets, the others by the table that they read."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from delta.tables import DeltaTable
from pyspark.sql import functions as F

from pipelines.config.streams import STREAMS, Query, TableQuery
from pipelines.delta.io import small_rows
from pipelines.delta.record_tables import topic_of_bronze
from pipelines.delta.stream_position import first_unread_version, unread_rows
from pipelines.delta.tables import exists, version
from pipelines.errors import InfrastructureError
from pipelines.kafka.backlog import Backlog, PartitionBacklog, backlog
from pipelines.lag.dedup_key_looks import keys_looked_at
from pipelines.lag.kafka_looks import looked_at
from pipelines.lag.stage_facts import PartitionLag, StageFacts, TopicHealth
from pipelines.spark.checkpoints import offsets_of, planned_at, query_files
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.stream_progress import read_progress, read_refusal

_EXECUTORS: Final = "spark.executor.instances"
_MOST_COMMITS: Final = 1_000


def stages(pipeline: Pipeline) -> Iterator[StageFacts]:
    """Yield what is known of each stage of a pipeline, in the order of the data.

    Raises:
        ConfigError: There is no such topic.
        SourceError: Ingest's checkpoint was reset, and bronze has offsets that Kafka has not.
        InfrastructureError: The cluster does not answer.
    """
    fed: float | None = None
    for query in pipeline.config.streams:
        rates = list[float | None]()
        for source in _sources(pipeline, query):
            facts = replace(
                _evidence(source, query) if source is pipeline else _evidence_of_cluster(source),
                upstream_rate=fed,
                cluster=source.config.cluster,
            )
            yield facts
            rates.append(facts.rate_out)
        known = [rate for rate in rates if rate is not None]
        fed = sum(known) if len(known) == len(rates) and rates else None


def _sources(pipeline: Pipeline, query: Query) -> tuple[Pipeline, ...]:
    """Return the pipeline as it is for each stream of a stage: of ingest one for each cluster in use."""
    if query != "ingest":
        return (pipeline,)
    return tuple(source for source in pipeline.sources() if not source.config.kafka.retired)


def _evidence(pipeline: Pipeline, query: Query) -> StageFacts:
    match query:
        case "ingest":
            return _behind_kafka(pipeline)
        case "speed":
            return _behind_table(pipeline, query, _of_speed, "bronze")
        case "publish":
            return _behind_table(pipeline, query, _of_publish, "speed layer")


def _evidence_of_cluster(source: Pipeline) -> StageFacts:
    """Return what is known of the ingest of one of several clusters: one that is down hides no other."""
    try:
        return _behind_kafka(source)
    except InfrastructureError as error:
        return replace(_with_stream(source, "ingest", ()), unreachable=str(error))


def _behind_kafka(pipeline: Pipeline) -> StageFacts:
    found = backlog(pipeline)
    facts = replace(
        _with_stream(pipeline, "ingest", lag_of_partitions(found), found.at),
        usual_rate_in=sum(each.usual_rate_in for each in found.partitions.values()),
        health=TopicHealth(
            found.offline,
            found.under_replicated,
            found.moved,
            None if found.retention is None else found.retention.total_seconds(),
            _is_other_topic(pipeline, found),
        ),
    )
    return looked_at(pipeline, facts, found)


def _behind_table(
    pipeline: Pipeline,
    query: TableQuery,
    behind: Callable[[Pipeline], tuple[PartitionLag, ...]],
    source: str,
) -> StageFacts:
    """Return what is known of a stage that reads a table, of this name."""
    if exists(pipeline.spark, pipeline.table(STREAMS[query].reads[0])):
        return keys_looked_at(pipeline, _with_stream(pipeline, query, behind(pipeline)), query)
    return replace(_with_stream(pipeline, query, ()), missing_table=source)


def streams(pipeline: Pipeline) -> Iterator[StageFacts]:
    """Yield what the files of each stage's stream say; neither Kafka nor a table is asked for its lag."""
    for stage in pipeline.config.streams:
        for source in _sources(pipeline, stage):
            yield replace(_with_stream(source, stage, ()), cluster=source.config.cluster)


def _is_other_topic(pipeline: Pipeline, found: Backlog) -> bool:
    stored = topic_of_bronze(pipeline) if exists(pipeline.spark, pipeline.table("bronze")) else None
    return stored not in (None, found.topic.topic_id)


def lag_of_partitions(found: Backlog) -> tuple[PartitionLag, ...]:
    """Return how far ingest is behind in each partition."""
    return tuple(_of_ingest(number, each, found) for number, each in sorted(found.partitions.items()))


def _of_ingest(number: int, unread: PartitionBacklog, found: Backlog) -> PartitionLag:
    age = None if unread.first_at is None else max(found.at - unread.first_at, timedelta())
    left = found.retention - age if found.retention is not None and age is not None else None
    return PartitionLag(
        number,
        unread.unread,
        behind_s=None if age is None else age.total_seconds(),
        rate_in=unread.rate_in,
        rate_out=unread.rate_out,
        retention_s=None if left is None else max(left.total_seconds(), 0.0),
        lost=unread.lost,
        ahead=unread.ahead,
        hidden=unread.hidden,
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
    age = max(datetime.now(UTC).timestamp() - row["oldest"] / 1000, 0.0)
    return (PartitionLag(None, row["rows"], age, is_cut=newest - first >= _MOST_COMMITS),)


def _with_stream(
    pipeline: Pipeline, stage: Query, partitions: tuple[PartitionLag, ...], at: datetime | None = None
) -> StageFacts:
    checkpoint = pipeline.checkpoint(stage)
    stream = read_progress(pipeline.spark, checkpoint)
    files = query_files(pipeline.spark, checkpoint)
    newest = files.next_batch - 1 if files.in_flight is None else files.in_flight
    text = offsets_of(pipeline.spark, checkpoint, newest) if newest >= 0 else None
    return StageFacts(
        stage,
        at or datetime.now(UTC),
        partitions,
        stream,
        planned_at(text) if text else None,
        is_alive=stream.is_alive() if stream else None,
        refusal=read_refusal(pipeline.spark, checkpoint, stream),
        wanted_executors=_wanted_executors(pipeline),
    )


def _wanted_executors(pipeline: Pipeline) -> int | None:
    """Return how many executors there should be; None where their number is not fixed."""
    conf = pipeline.config.spark.conf
    is_local = (pipeline.spark.sparkContext.master or "").startswith("local")
    is_dynamic = conf.get("spark.dynamicAllocation.enabled", "false").lower() == "true"
    wanted = conf.get(_EXECUTORS)
    return int(wanted) if wanted and not is_local and not is_dynamic else None
