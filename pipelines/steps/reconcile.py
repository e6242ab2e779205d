"""Reconcile: what Kafka has against what bronze has."""

from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.delta.record_tables import require_table, topic_of_bronze
from pipelines.delta.retention_cut import first_kept_of_source
from pipelines.delta.tables import version
from pipelines.errors import SourceError
from pipelines.kafka.bronze_offsets import bronze_of_topic
from pipelines.kafka.ingest_state import SparkIngestState
from pipelines.kafka.log_divergence import require_same_log
from pipelines.kafka.source import offsets_between
from pipelines.kafka.topic_offsets import TopicOffsets, records_within, topic_offsets
from pipelines.kafka.topics import Topic
from pipelines.lineage import offset_gaps
from pipelines.lineage.offset_comparison import (
    BronzeOffsets,
    OffsetDifference,
    Tail,
    TopicPolicy,
    asked_behind,
    compare_offsets,
)
from pipelines.spark.ingest_plans import read_until
from pipelines.spark.pipeline import Pipeline


@dataclass(frozen=True)
class Reconciliation:
    """What Kafka and bronze have of a topic.

    Attributes:
        name: The topic's name.
        topic: What Kafka has.
        bronze: What bronze has, of every partition that it has anything of.
        bronze_version: The version of bronze that was looked at.
        findings: Where they differ, in the order of the partitions; empty if bronze has all that Kafka has.
    """

    name: str
    topic: TopicOffsets
    bronze: Mapping[int, BronzeOffsets]
    bronze_version: int
    findings: list[OffsetDifference]

    @property
    def missing(self) -> int:
        """How many offsets are in findings that nothing explains."""
        return sum(finding.offsets for finding in self.findings if finding.alarm)


class RecordsMissing(SourceError):
    """Bronze lacks records, and nothing explains it.

    Attributes:
        reconciliation: What Kafka and bronze have.
    """

    def __init__(self, reconciliation: Reconciliation) -> None:
        name = reconciliation.name
        alarms = ", ".join(
            f"{finding.offsets:,} offsets of {name}-{finding.partition} ({finding.cause})"
            for finding in reconciliation.findings
            if finding.alarm
        )
        super().__init__(
            f"bronze and kafka.topic '{name}' differ without explanation: {alarms}."
            " See docs/runbook.md, 'Is everything in bronze?'"
        )
        self.reconciliation = reconciliation


def reconcile(pipeline: Pipeline) -> Reconciliation:
    """Compare the offsets that Kafka has with those that bronze has.

    Where bronze lacks offsets that Kafka still covers, Kafka is asked for the records there, with the
    pipeline's own settings: what gives no record is a marker, an aborted record or one that was compacted.

    Raises:
        ConfigError: There is no such topic.
        RecordsMissing: Records are missing that nothing explains, those among them that ingest's checkpoint
            says were read.
        SourceError: There is no bronze, or Kafka has other records under the offsets of bronze.
        InfrastructureError: The cluster does not answer.
    """
    spark, config = pipeline.spark, pipeline.config
    table = require_table(pipeline, "bronze")
    # In this order: what comes meanwhile counts as not read yet.
    until = read_until(pipeline)
    at = version(spark, table)
    topic = topic_offsets(spark, config.kafka)
    log = Topic(config.kafka.topic, topic.topic_id, len(topic.partitions))
    ingest = SparkIngestState(pipeline, log)
    kept = first_kept_of_source(pipeline)
    policy = TopicPolicy(
        is_compacted=topic.is_compacted,
        is_anew=topic_of_bronze(pipeline) not in (None, topic.topic_id),
        gaps_are_lawful=config.audit.offset_gaps == "warn",
        began_late=config.kafka.starting_offsets == "latest",
        is_cut=kept is None,
        began=_expected_from(ingest.first_began(), kept or {}),
        known_gaps=config.audit.known_gaps,
    )
    offsets = bronze_of_topic(pipeline, at).select("_partition", "_offset")
    in_bronze = offset_gaps.held_offsets(offsets, topic.partitions)
    in_bronze = offset_gaps.with_known(in_bronze, topic.partitions, config.audit.known_gaps, offsets)
    expected_from = {n: held.first for n, held in in_bronze.items()} if policy.began_late else kept or {}
    ranges = offset_gaps.asked_of_kafka(in_bronze, topic.partitions, expected_from)
    if not policy.is_anew:
        require_same_log(ingest, _last_within(in_bronze, topic))
    if ranges and not policy.is_anew:
        kafka_records = offsets_between(spark, config.kafka, ranges)
        in_bronze = offset_gaps.with_lost(in_bronze, kafka_records, offsets)
    behind = {} if policy.is_anew else asked_behind(topic.partitions, in_bronze, until)
    lost = records_within(spark, config.kafka, behind)
    tails = {partition: Tail(until[partition], lost.get(partition, 0)) for partition in behind}
    findings = compare_offsets(topic.partitions, in_bronze, policy, tails)
    result = Reconciliation(config.kafka.source_topic, topic, in_bronze, at, findings)
    if result.missing:
        raise RecordsMissing(result)
    return result


def _expected_from(began: Mapping[int, int], kept: Mapping[int, int]) -> dict[int, int]:
    """Return the first offset that bronze ought to have, by partition; none where nobody knows.

    Args:
        began: Where ingest first began, by partition; empty if nobody knows.
        kept: The first offset that retention kept, where it removed any.
    """
    return {n: max(began.get(n, 0), kept.get(n, 0)) for n in {*began, *kept}} if began else {}


def _last_within(bronze_offsets: Mapping[int, BronzeOffsets], topic: TopicOffsets) -> dict[int, int]:
    """Return the last offset in bronze of each partition that Kafka has up to there."""
    ends = {number: broker.end for number, broker in topic.partitions.items()}
    return {
        number: bronze.last for number, bronze in bronze_offsets.items() if bronze.last < ends.get(number, 0)
    }
