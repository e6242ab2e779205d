"""Racks: what a pipeline's topic allows, what a read of it does, and how replicas would be spread better."""

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.config.values import RackMode
from pipelines.errors import ConfigError
from pipelines.kafka.admin import admin_client
from pipelines.kafka.source import read_envelopes
from pipelines.kafka.topics import end_offsets, find_topic, list_offsets
from pipelines.racks.advice import Advice, CrossRackCost, advise, crossing
from pipelines.racks.reassignment import reassignment, spread
from pipelines.racks.topology import Partition, TopicReplicas, describe_racks
from pipelines.racks.traffic import RackTraffic, RackTrafficMeter
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.streams import run_stream


@dataclass(frozen=True)
class RackDiagnosis:
    """Which share of a topic's bytes can be read within a rack, and what would raise it.

    Attributes:
        topic: The topic, with the racks of its brokers.
        mode: `kafka.rack.mode` as configured.
        executors: The rack of each executor.
        advice: The shares, and what would raise them.
        bill: The gigabytes that cross racks in a month, and what they cost, by `kafka.rack.mode`; empty if
            it is not known how many are read, or no broker has a rack.
    """

    topic: TopicReplicas
    mode: RackMode
    executors: list[str]
    advice: Advice
    bill: Mapping[RackMode, CrossRackCost]


def diagnose_racks(
    pipeline: Pipeline,
    executors: Sequence[str],
    gigabytes: float | None,
    price: float,
) -> RackDiagnosis:
    """Find which share of the topic's bytes can be read within a rack, and what would raise it.

    Args:
        pipeline: The pipeline.
        executors: The rack of each executor; empty for one in each of the brokers' racks.
        gigabytes: That are read in a month, for the bill.
        price: Of a gigabyte that crosses racks.

    Raises:
        ConfigError: There is no such topic.
        InfrastructureError: The cluster does not answer.
    """
    topic = describe_racks(pipeline.spark, pipeline.config.kafka)
    readers = list(executors) or sorted({rack for rack in topic.racks.values() if rack})
    mode = pipeline.config.kafka.rack.mode
    advice = advise(topic, readers, mode)
    bill: dict[RackMode, CrossRackCost] = {}
    if gigabytes is not None and readers:
        bill = {each: crossing(share, gigabytes, price) for each, share in advice.shares.items()}
    return RackDiagnosis(topic, mode, readers, advice, bill)


@dataclass(frozen=True)
class PlannedMoves:
    """The fewest moves that spread a topic's replicas over racks.

    Attributes:
        topic: The topic as it is.
        moved: The partitions that change, as they ought to be; empty if replicas are spread as well as can
            be.
        plan: The moves, in the format of `kafka-reassign-partitions`.
    """

    topic: TopicReplicas
    moved: tuple[Partition, ...]
    plan: dict[str, object]


def plan_moves(pipeline: Pipeline, out: Path | None) -> PlannedMoves:
    """Plan the fewest moves that spread replicas over racks, and change nothing.

    Args:
        pipeline: The pipeline.
        out: Where the plan goes, if there is anything to move; None to write it nowhere.

    Raises:
        ConfigError: There is no such topic, brokers have no racks, or the plan cannot be written.
        InfrastructureError: The cluster does not answer.
    """
    topic = describe_racks(pipeline.spark, pipeline.config.kafka)
    moved = spread(topic)
    plan = reassignment(topic.name, moved)
    if moved and out is not None:
        try:
            out.write_text(json.dumps(plan, indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"--out {out}: the plan cannot be written: {error.strerror}") from None
    return PlannedMoves(topic, moved, plan)


@dataclass(frozen=True)
class MeasuredTraffic:
    """What a read of the newest records took, and from where their bytes came.

    Attributes:
        records: How many records were read.
        batches: In how many micro-batches.
        seconds: From the query's start to its end.
        racks: What was read from which rack.
    """

    records: int
    batches: int
    seconds: float
    racks: RackTraffic


def measure_traffic(pipeline: Pipeline, records: int) -> MeasuredTraffic:
    """Read the newest records of the topic as ingest would, keep none, and count bytes by rack.

    Args:
        pipeline: The pipeline.
        records: How many to read at most.

    Raises:
        ConfigError: There is no such topic.
        SourceError: Records are gone before they could be read.
        InfrastructureError: The cluster does not answer.
    """
    spark, config = pipeline.spark, pipeline.config
    topic = find_topic(spark, config.kafka)
    reading = RackTrafficMeter(spark, config.kafka)
    ends = end_offsets(spark, config.kafka, topic)
    with admin_client(spark, config.kafka) as admin:
        earliest = list_offsets(admin, topic, "earliest")
    each = -(-records // max(len(ends), 1))
    starts = {str(number): max(end - each, earliest[number]) for number, end in ends.items()}
    source = read_envelopes(spark, config.kafka, starting=json.dumps({topic.name: starts}))
    with tempfile.TemporaryDirectory(prefix="oncelake-rack-") as checkpoint:
        writer = source.writeStream.queryName("measure").format("noop")
        # The driver's own disk, whatever file system the cluster takes for granted.
        writer = writer.option("checkpointLocation", Path(checkpoint).as_uri()).trigger(availableNow=True)
        began = time.monotonic()
        totals = run_stream(spark, writer.start)
        seconds = time.monotonic() - began
    return MeasuredTraffic(totals.records, totals.batches, seconds, reading.measured(totals.source))
