"""What `oncelake doctor` asks: one function for each part of the facts. They change no table."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from pipelines.config.model import PipelineConfig
from pipelines.config.streams import STREAMS, Query
from pipelines.delta.checkpoint_fit import BEGIN
from pipelines.delta.clocks import require_not_behind
from pipelines.delta.event_tables import require_same_days, require_same_dedup
from pipelines.delta.reader_position_check import require_not_read_ahead
from pipelines.delta.record_tables import topic_of_bronze
from pipelines.delta.stream_check import check_ingest, check_speed
from pipelines.delta.table_state import filled_since, last_commit_at
from pipelines.delta.tables import exists
from pipelines.doctor.pipeline_facts import (
    LeaseFacts,
    NightFacts,
    OutputFacts,
    PublishingFacts,
    RuntimeFacts,
    StreamFacts,
    TableFacts,
    TopicFacts,
)
from pipelines.errors import ConfigError, InfrastructureError, SourceError
from pipelines.kafka.topic_state import TopicState, read_topic_state
from pipelines.ledger.certifications import Verdict, certified, verdicts
from pipelines.ledger.leases import held_lease
from pipelines.nightly.recovery import holds_certified
from pipelines.publishing.cluster import asking, topic_id
from pipelines.publishing.cluster_advice import advice, facts, refuse_too_long
from pipelines.publishing.settings import settings_of, sink_of
from pipelines.racks.topology import describe_racks
from pipelines.runtime.jars import jar_state
from pipelines.runtime.java import find_java
from pipelines.spark.checkpoints import has_begun, query_files
from pipelines.spark.ingest_plans import read_until
from pipelines.spark.log_store import is_on_s3
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.session import is_submitted
from pipelines.spark.stream_progress import read_progress, read_refusal
from pipelines.steps.publish import publishing_status

_MONTH: Final = timedelta(days=30)


def runtime_facts(config: PipelineConfig) -> RuntimeFacts:
    """Look at what Spark runs on, without Spark.

    Raises:
        InfrastructureError: There is no usable Java.
    """
    if is_submitted():
        return RuntimeFacts(None)
    java = find_java()
    jars = jar_state("spark", *(("s3",) if is_on_s3(config.root) else ()))
    return RuntimeFacts(f"Java {java.version}, {java.home}", jars.missing, jars.damaged)


def topic_facts(pipeline: Pipeline) -> TopicFacts:
    """Ask the cluster for the topic.

    Raises:
        ConfigError: There is no such topic, or the client refuses its settings.
        InfrastructureError: The cluster does not answer in time.
    """
    spark, kafka = pipeline.spark, pipeline.config.kafka
    return TopicFacts(read_topic_state(spark, kafka), describe_racks(spark, kafka))


def dead_letter_facts(pipeline: Pipeline) -> TopicState | None:
    """Ask the cluster for the topic of broken records; None if there is to be none.

    Raises:
        ConfigError: There is no such topic.
        InfrastructureError: The cluster does not answer in time.
    """
    topic = pipeline.config.quarantine.dead_letter_topic
    setting = "quarantine.dead_letter_topic"
    return read_topic_state(pipeline.spark, pipeline.config.kafka, topic, setting) if topic else None


def queries_of(config: PipelineConfig) -> tuple[Query, ...]:
    """Return the streams that a configuration is of: each of several clusters has an ingest, and no other."""
    if config.kafka.clusters:
        return tuple(query for query in config.streams if query != "ingest")
    return ("ingest",) if config.kafka.has_others else config.streams


def stream_facts(pipeline: Pipeline) -> dict[Query, StreamFacts]:
    """Look at the checkpoints of the streams, and at what is beside them."""
    return {query: _stream(pipeline, query) for query in queries_of(pipeline.config)}


def _stream(pipeline: Pipeline, query: Query) -> StreamFacts:
    checkpoint = pipeline.checkpoint(query)
    files, progress = query_files(pipeline.spark, checkpoint), read_progress(pipeline.spark, checkpoint)
    is_under_way = has_begun(pipeline.spark, files) if query == "ingest" else files.query is not None
    return StreamFacts(
        is_under_way or BEGIN in files.note,
        progress,
        read_refusal(pipeline.spark, checkpoint, progress),
        read_until(pipeline) if query == "ingest" else {},
        progress.is_alive() if progress else None,
    )


def table_facts(pipeline: Pipeline) -> TableFacts:
    """Compare the tables with checkpoints, contract, verdicts and clock."""
    spark = pipeline.spark
    has_bronze, has_batch = (exists(spark, pipeline.table(layer)) for layer in ("bronze", "batch"))
    problem = _refusal(certified, pipeline)
    rules = (_refusal(each, pipeline) for each in (require_same_dedup, require_same_days))
    return TableFacts(
        topic_of_bronze(pipeline) if has_bronze else None,
        _misfits(pipeline),
        tuple(why for why in rules if why),
        problem,
        holds_certified(pipeline) if has_batch and problem is None else None,
        _refusal(require_not_behind, pipeline) if has_bronze else None,
        _lease(pipeline),
    )


def source_table_facts(source: Pipeline) -> TableFacts:
    """Compare bronze with the checkpoint of the ingest of one of several clusters."""
    has_bronze = exists(source.spark, source.table("bronze"))
    return TableFacts(topic_of_bronze(source) if has_bronze else None, _misfits(source))


def _misfits(pipeline: Pipeline) -> dict[Query, str]:
    checks: dict[Query, Callable[[Pipeline], object]] = {"ingest": check_ingest, "speed": check_speed}
    found = {
        query: _refusal(check, pipeline) or _read_ahead(pipeline, query)
        for query, check in checks.items()
        if query in queries_of(pipeline.config)
    }
    return {query: why for query, why in found.items() if why}


def _read_ahead(pipeline: Pipeline, query: Query) -> str | None:
    return _refusal(lambda each: require_not_read_ahead(each, *STREAMS[query].writes), pipeline)


def _lease(pipeline: Pipeline) -> LeaseFacts | None:
    held = held_lease(pipeline)
    if held is None:
        return None
    return LeaseFacts(held.words, held.since, held.until, held.process.is_gone())


def night_facts(pipeline: Pipeline) -> NightFacts:
    """Look at the newest verdict on each day."""
    try:
        newest = verdicts(pipeline)
    except SourceError:
        # Verdicts are gone, which `table_facts` tells.
        return NightFacts()
    recent = [each for each in newest if each.status == "certified" and _is_recent(each)]
    spark, bronze = pipeline.spark, pipeline.table("bronze")
    return NightFacts(
        tuple(each.day for each in newest if each.status != "certified"),
        max((each.decided_at.astimezone(UTC) for each in newest), default=None),
        last_commit_at(spark, bronze),
        sum(each.late for each in recent),
        sum(each.rows for each in recent),
        None if newest else filled_since(spark, bronze),
    )


def _is_recent(verdict: Verdict) -> bool:
    return datetime.now(UTC) - verdict.decided_at.astimezone(UTC) < _MONTH


def output_facts(pipeline: Pipeline) -> OutputFacts | None:
    """Ask the cluster that is published to, and nothing of the lake; None if nothing is published.

    Raises:
        ConfigError: There is no such topic, or librdkafka refuses its settings.
        InfrastructureError: The cluster does not answer.
    """
    if pipeline.config.publish is None:
        return None
    sink = sink_of(pipeline.config)
    with asking(sink) as cluster:
        topic_id(cluster, sink.topic)
        cluster_facts = facts(cluster, sink.topic)
    try:
        refuse_too_long(sink, cluster_facts)
        transactions = None
    except ConfigError as error:
        transactions = str(error)
    warnings = advice(sink, settings_of(pipeline.config).retraction, cluster_facts)
    return OutputFacts(cluster_facts, tuple(warnings), transactions)


def publishing_facts(pipeline: Pipeline) -> PublishingFacts | None:
    """Compare the progress of publishing with its checkpoint; None if nothing is published.

    Raises:
        ConfigError: There is no such topic.
        InfrastructureError: The cluster does not answer.
    """
    if pipeline.config.publish is None:
        return None
    try:
        return PublishingFacts(publishing_status(pipeline).problem)
    except SourceError as error:
        return PublishingFacts(str(error))


def _refusal(require: Callable[[Pipeline], object], pipeline: Pipeline) -> str | None:
    """Return why a job would be refused; None if it would not."""
    try:
        require(pipeline)
    except (ConfigError, SourceError, InfrastructureError) as error:
        return str(error)
    return None
