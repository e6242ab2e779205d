"""Reconcile: what Kafka has against what bronze has."""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import functions as F

from pipelines.delta.io import read
from pipelines.delta.table_properties import TOPIC_ID
from pipelines.delta.tables import require_table, table_property, unhidden, version
from pipelines.errors import SourceError
from pipelines.kafka import offset_gaps
from pipelines.kafka.offset_comparison import (
    BronzeOffsets,
    OffsetDifference,
    Tail,
    TopicPolicy,
    asked_behind,
    compare_offsets,
)
from pipelines.kafka.same_log import require_same_log
from pipelines.kafka.source import offsets_between
from pipelines.kafka.topic_offsets import TopicOffsets, records_within, topic_offsets
from pipelines.kafka.topics import Topic
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
        found: What Kafka and bronze have.
    """

    def __init__(self, message: str, found: Reconciliation) -> None:
        super().__init__(message)
        self.found = found


def reconcile(pipeline: Pipeline) -> Reconciliation:
    """Compare the offsets that Kafka has with those that bronze has.

    Where bronze lacks offsets that Kafka still covers, Kafka is asked for the records there, with the
    pipeline's own settings: what gives no record is a marker, an aborted record or one that was compacted.

    Raises:
        ConfigError: there is no such topic.
        RecordsMissing: records are missing that nothing explains, those among them that ingest's checkpoint
            says were read.
        SourceError: there is no bronze, or Kafka has other records under the offsets of bronze.
        InfrastructureError: the cluster does not answer.
    """
    spark, config = pipeline.spark, pipeline.config
    table = require_table(pipeline, "bronze")
    # In this order: what comes meanwhile counts as not read yet.
    until = read_until(pipeline)
    at = version(spark, table)
    bronze = read(spark, table, at).where(F.col("_topic") == config.kafka.topic)
    topic = topic_offsets(spark, config.kafka)
    known = table_property(spark, table, TOPIC_ID)
    habits = TopicPolicy(
        is_compacted=topic.is_compacted,
        is_anew=known is not None and unhidden(known) != topic.topic_id,
        gaps_are_lawful=config.audit.offset_gaps == "warn",
        began_late=config.kafka.starting_offsets == "latest",
    )
    offsets = bronze.select("_partition", "_offset")
    held = offset_gaps.held_offsets(offsets, topic.partitions)
    held = offset_gaps.with_known(held, topic.partitions, config.audit.known_gaps, offsets)
    asked = offset_gaps.asked_of_kafka(held, topic.partitions, from_start=not habits.began_late)
    if not habits.is_anew:
        log = Topic(config.kafka.topic, topic.topic_id, len(topic.partitions))
        require_same_log(pipeline, log, _last_within(held, topic))
    if asked and not habits.is_anew:
        given = offsets_between(spark, config.kafka, asked)
        held = offset_gaps.with_lost(held, given, offsets)
    behind = {} if habits.is_anew else asked_behind(topic.partitions, held, until)
    lost = records_within(spark, config.kafka, behind)
    tails = {partition: Tail(until[partition], lost.get(partition, 0)) for partition in behind}
    findings = compare_offsets(topic.partitions, held, habits, tails)
    found = Reconciliation(config.kafka.topic, topic, held, at, findings)
    if found.missing:
        alarms = "\n".join(f"{found.name}-{each.partition} @ {each.words}" for each in findings if each.alarm)
        raise RecordsMissing(
            f"bronze and kafka.topic '{found.name}' do not agree, and nothing explains it.\n{alarms}\n"
            "See docs/runbook.md, 'Is everything in bronze?'",
            found,
        )
    return found


def _last_within(held: Mapping[int, BronzeOffsets], topic: TopicOffsets) -> dict[int, int]:
    """Return last offset of each partition in bronze; that Kafka ends before some is a finding of its own."""
    ends = {number: kept.end for number, kept in topic.partitions.items()}
    return {number: here.last for number, here in held.items() if here.last < ends.get(number, 0)}
