"""Whether Kafka still has the log that bronze was read from.

A cluster that loses records (an election of an unclean leader, a disk that was wiped) gives their offsets to
others. Topic and offsets then look as before, and ingest, which goes on behind what it has read, never reads
what stands there now.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Final

from pyspark.sql import functions as F

from pipelines.config.model import PipelineConfig
from pipelines.delta.io import small_rows
from pipelines.delta.table_properties import DIVERGENCE_ACCEPTED, table_property
from pipelines.errors import SourceError
from pipelines.kafka.admin import admin_client
from pipelines.kafka.bronze_offsets import bronze_of_topic, last_by_partition
from pipelines.kafka.source import records_between
from pipelines.kafka.topics import Topic, offset_bounds
from pipelines.spark.checkpoints import first_micro_batch, first_offsets, offsets_of, planned_at
from pipelines.spark.ingest_plans import ends_of
from pipelines.spark.pipeline import Pipeline

_NEAREST_WITHIN: Final = 100
_LOOKED_BACK: Final = (1_000, 100_000)
_WHOLE: Final = "_whole"
_DIGEST: Final = "_digest"


@dataclass(frozen=True)
class _Compared:
    """Records of a partition that both have: the last that are the same, and the last that differ."""

    same: int | None
    other: int | None

    @property
    def differs(self) -> bool:
        """Whether the newer of the two is one that differs."""
        return self.other is not None and (self.same is None or self.same < self.other)


def last_offsets(pipeline: Pipeline, topic: Topic) -> dict[int, int]:
    """Return the last offset of each partition in bronze.

    The records of the micro-batches that ingest's checkpoint still knows are looked at first. Only of a
    partition without any among them the offsets in all of bronze are; records that a backfill brought from
    before these micro-batches do not count.
    """
    bronze = bronze_of_topic(pipeline).select("_partition", "_offset", "_ingested_at")
    checkpoint = pipeline.checkpoint("ingest")
    oldest = first_micro_batch(pipeline.spark, checkpoint)
    text = None if oldest is None else offsets_of(pipeline.spark, checkpoint, oldest)
    came = last_by_partition(bronze.where(F.col("_ingested_at") >= F.lit(planned_at(text)))) if text else {}
    before = (
        ends_of(pipeline, oldest) if oldest else first_offsets(pipeline.spark, checkpoint).get(topic.name, {})
    )
    recent = {number: last for number, last in came.items() if last >= before.get(number, 0) - 1}
    others = [number for number in range(topic.partitions) if number not in recent]
    return recent | (last_by_partition(bronze.where(F.col("_partition").isin(others))) if others else {})


def require_same_log(pipeline: Pipeline, topic: Topic, last: Mapping[int, int]) -> None:
    """Compare the last record of each partition in bronze with the one that Kafka has under its offset.

    Kafka is asked for this one record. Where it was compacted, the nearest before it is compared, if there is
    one; of a partition that Kafka has deleted up to there nothing can be said.

    Args:
        pipeline: The pipeline.
        topic: the topic.
        last: the last offset of each partition in bronze.

    Raises:
        SourceError: they are not the same, or Kafka ends before.
        InfrastructureError: the cluster does not answer.
    """
    name = pipeline.config.kafka.source_topic
    with admin_client(pipeline.spark, pipeline.config.kafka) as admin:
        available = offset_bounds(admin, topic)
    for number, offset in sorted(last.items()):
        end = available.get(number, range(0)).stop
        if offset >= end:
            raise SourceError(
                f"{pipeline.table('bronze')} has {name}-{number} up to offset {offset}, but Kafka's end"
                f" offset is {end}: the topic has lost records. Nothing was read or"
                " decided. See docs/runbook.md, 'Kafka has lost what bronze has'"
            )
    # A person writes it, as docs/runbook.md says.
    text = table_property(pipeline.spark, pipeline.table("bronze"), DIVERGENCE_ACCEPTED) or ""
    accepted = {each.strip() for each in text.split(",")}
    compared_offsets = {
        number: offset
        for number, offset in last.items()
        if offset in available.get(number, range(0)) and f"{name}-{number}@{offset}" not in accepted
    }
    comparisons = _compare(pipeline, {number: range(at, at + 1) for number, at in compared_offsets.items()})
    before = {
        n: _up_to(at, available[n], _NEAREST_WITHIN)
        for n, at in compared_offsets.items()
        if n not in comparisons
    }
    comparisons |= _compare(pipeline, before)
    others = {
        number: compared_offsets[number] for number, compared in comparisons.items() if compared.differs
    }
    if others:
        raise SourceError(_divergence_message(pipeline.config, _since(pipeline, available, others), others))


def _since(pipeline: Pipeline, available: Mapping[int, range], others: Mapping[int, int]) -> dict[int, int]:
    """Return the first offset from which on records differ, as far back as it is looked for."""
    since: dict[int, int] = {}
    for width in _LOOKED_BACK:
        windows = {n: _up_to(at, available[n], width) for n, at in others.items() if n not in since}
        for number, compared in _compare(pipeline, windows).items():
            window = windows[number]
            if (
                compared.same is not None
                or window.start == available[number].start
                or width == _LOOKED_BACK[-1]
            ):
                since[number] = window.start if compared.same is None else compared.same + 1
    return since


def _up_to(last: int, available: range, width: int) -> range:
    return range(max(available.start, last - width + 1), last + 1)


def _compare(pipeline: Pipeline, ranges: Mapping[int, range]) -> dict[int, _Compared]:
    """Compare records within some offsets; a partition of which both have none is not in the result."""
    nonempty_ranges = {number: offsets for number, offsets in ranges.items() if offsets}
    if not nonempty_ranges:
        return {}
    digest = F.xxhash64(F.col("key").isNull(), "key", F.col("value").isNull(), "value").alias(_DIGEST)
    theirs = records_between(pipeline.spark, pipeline.config.kafka, nonempty_ranges).select(
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("timestamp").alias("_stamped"),
        digest.alias("_theirs"),
    )
    within = reduce(
        or_,
        (
            (F.col("_partition") == n) & F.col("_offset").between(r.start, r.stop - 1)
            for n, r in nonempty_ranges.items()
        ),
    )
    # What was forgotten no longer has a value, but still its timestamp.
    whole = F.expr("coalesce(length(value) > 0, false)").alias(_WHOLE)
    ours = bronze_of_topic(pipeline).where(within)
    ours = ours.select("_partition", "_offset", "_kafka_timestamp", digest, whole)
    is_same = F.col("_kafka_timestamp").eqNullSafe(F.col("_stamped")) & (
        ~F.col(_WHOLE) | (F.col(_DIGEST) == F.col("_theirs"))
    )
    both = theirs.join(ours, ["_partition", "_offset"]).withColumn("_same", is_same)
    by_partition = both.groupBy("_partition").agg(
        F.max(F.when(F.col("_same"), F.col("_offset"))).alias("same"),
        F.max(F.when(~F.col("_same"), F.col("_offset"))).alias("other"),
    )
    return {row["_partition"]: _Compared(row["same"], row["other"]) for row in small_rows(by_partition)}


def _divergence_message(config: PipelineConfig, since: Mapping[int, int], others: Mapping[int, int]) -> str:
    ranges = ", ".join(
        f"{config.kafka.source_topic}-{number} @ {since.get(number, last)}..{last}"
        for number, last in sorted(others.items())
    )
    return (
        f"Kafka has lost records and given their offsets to others: found other records than"
        f" {config.table('bronze')} has at {ranges}, expected the same. The records that Kafka has there now"
        " are in no table. Nothing was read or decided. See docs/runbook.md, 'Kafka has lost what bronze has'"
    )
