"""Ingest: every Kafka record, whole, into the bronze table."""

import logging
from typing import Any

from pyspark.sql import SparkSession

from pipelines.config import PipelineConfig
from pipelines.ops.cluster import find_topic, require_same_topic
from pipelines.ops.rack_traffic import Reading
from pipelines.ops.streams import run_streams
from pipelines.sinks.delta import append_stream
from pipelines.sinks.tables import TOPIC_ID, ensure_bronze, hidden
from pipelines.sources.kafka import read_envelopes

_log = logging.getLogger(__name__)


def ingest(spark: SparkSession, config: PipelineConfig, *, once: bool) -> dict[str, Any]:
    """Copies the topic into bronze until it is told to stop, or once what is there.

    Args:
        spark: the session.
        config: the pipeline's configuration.
        once: take what the topic holds now and return.

    Returns:
        `counts` (`records`, `batches`) and `offsets`: for each partition the first offset of this run (null
        with a new checkpoint) and the one after its last. With `kafka.rack.mode` on also `racks`, as
        `pipelines.ops.rack_traffic.Reading` has it.

    Raises:
        ConfigError: there is no such topic.
        SourceError: offsets are gone, or the topic is not the one that bronze was filled from.
        InfrastructureError: the cluster or the lake does not answer.
    """
    topic = find_topic(spark, config.kafka)
    ensure_bronze(spark, config, {TOPIC_ID: hidden(topic.topic_id)})
    require_same_topic(spark, config, topic)
    _log.info("reading topic %s, %d partitions", topic.name, topic.partitions)
    reading = None if config.kafka.rack.mode == "off" else Reading(spark, config.kafka)
    totals = run_streams(
        spark,
        lambda: [
            append_stream(
                read_envelopes(spark, config.kafka),
                config.table("bronze"),
                name="ingest",
                checkpoint=config.checkpoint("ingest"),
                once=once,
                interval=config.ingest.trigger_interval,
            )
        ],
    )["ingest"]
    told = {
        "counts": {"records": totals.records, "batches": totals.batches},
        "offsets": _ranges(totals.start, totals.end),
    }
    if reading:
        told["racks"] = reading.summary(totals.source)
    return told


def _ranges(start: Any, end: Any) -> dict[str, dict[str, list[int | None]]]:
    """Kafka offsets of a run: topic -> partition -> [first, after last]; a new checkpoint knows no first."""
    before = start or {}
    return {
        topic: {
            p: [before.get(topic, {}).get(p, 0 if start else None), offset]
            for p, offset in partitions.items()
        }
        for topic, partitions in (end or {}).items()
    }
