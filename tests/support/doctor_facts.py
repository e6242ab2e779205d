"""Facts of a sound pipeline for the checks of doctor, and what changes a part of them."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pipelines.config.loader import load_config
from pipelines.config.model import PipelineConfig
from pipelines.doctor.pipeline_facts import (
    Failure,
    LatenessFacts,
    NightFacts,
    OutputFacts,
    Part,
    PipelineFacts,
    PublishingFacts,
    RuntimeFacts,
    StreamFacts,
    TableFacts,
    TopicFacts,
)
from pipelines.kafka.topic_state import TopicState
from pipelines.publishing.cluster_advice import ClusterFacts
from pipelines.racks.topology import Partition, TopicReplicas
from pipelines.spark.log_store import StoreProbe
from pipelines.spark.stream_progress import BatchFigures, StreamProgress

NOW = datetime(2026, 1, 2, 3, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
SETTINGS = ("publish.topic=out", "publish.slots=2", "quarantine.dead_letter_topic=broken")
TOPIC = TopicState(
    "flights",
    "id",
    {
        "cleanup.policy": "delete",
        "max.message.bytes": "1048588",
        "message.timestamp.type": "CreateTime",
        "min.insync.replicas": "2",
        "retention.bytes": "-1",
        "retention.ms": str(7 * 86_400_000),
        "unclean.leader.election.enable": "false",
    },
    frozenset({"DESCRIBE", "READ"}),
    {0: 10, 1: 0},
    {0: 100, 1: 50},
)
RACKED = TopicReplicas(
    "flights",
    {1: "a", 2: "b", 3: "c"},
    dict.fromkeys((1, 2, 3), AWARE),
    tuple(Partition(n, 1 + n, (1, 2, 3), (1, 2, 3), 1) for n in range(2)),
)


def run(query: Any, *seconds: float, late: int = 0, **changes: Any) -> StreamProgress:
    batches = tuple(BatchFigures(n, NOW, each, 1_000, late=late) for n, each in enumerate(seconds))
    written = StreamProgress(query, "host", 7, NOW - HOUR, NOW, NOW, 10.0, batches=batches)
    return replace(written, **changes)


STREAMS: dict[Any, StreamFacts] = {
    "ingest": StreamFacts(True, run("ingest", 2, 3), None, {0: 60, 1: 50}),
    "speed": StreamFacts(True, run("speed", 2, 3)),
    "publish": StreamFacts(True, run("publish", 2, 3)),
}
SOUND = PipelineFacts(
    load_config("flights", environ={}, settings=SETTINGS),
    NOW,
    runtime=RuntimeFacts("Java 17"),
    topic=TopicFacts(TOPIC, RACKED),
    dead_letters=replace(TOPIC, name="broken", settings={**TOPIC.settings, "max.message.bytes": "1050636"}),
    store=StoreProbe(takes_over=False, is_clean=True, skew=timedelta(seconds=-1)),
    streams=STREAMS,
    logs=(),
    tables=TableFacts("id", is_as_certified=True),
    nights=NightFacts((), NOW - 20 * HOUR, NOW, 5, 1_000),
    lateness=LatenessFacts(1_000, 10, HOUR),
    output=OutputFacts(ClusterFacts(3, {}, {}, {}, partitions=2, max_message_bytes=1_048_588)),
    publishing=PublishingFacts(),
)


EU = "kafka.clusters.eu.bootstrap_servers=eu:1"


def source(config: PipelineConfig, **changes: Any) -> PipelineFacts:
    """What is known of one of several clusters, which is sound."""
    facts = PipelineFacts(
        config,
        NOW,
        topic=SOUND.topic,
        streams={"ingest": STREAMS["ingest"]},
        tables=TableFacts("id"),
    )
    return replace(facts, **changes)


def several(config: PipelineConfig, *sources: PipelineFacts) -> PipelineFacts:
    """A sound pipeline with several clusters, of which some are known."""
    streams = {query: facts for query, facts in STREAMS.items() if query != "ingest"}
    return replace(SOUND, config=config, streams=streams, sources=sources)


def configured(*settings: str, **changes: Any) -> PipelineFacts:
    """A sound pipeline with other settings."""
    # By publishing what is sound otherwise, a setting that is refused at once is not what is tried here.
    config = load_config("flights", environ={}, settings=(*SETTINGS, *settings))
    return replace(SOUND, config=config, **changes)


def kept(**changes: str) -> PipelineFacts:
    """A topic with other settings, their names with underscores."""
    names = {name.replace("_", "."): value for name, value in changes.items()}
    return described(settings={**TOPIC.settings, **names})


def described(**changes: Any) -> PipelineFacts:
    return replace(SOUND, topic=TopicFacts(replace(TOPIC, **changes), RACKED))


def replicated(*partitions: Partition, racks: Mapping[int, str | None] = RACKED.racks) -> PipelineFacts:
    return replace(SOUND, topic=TopicFacts(TOPIC, replace(RACKED, partitions=partitions, racks=racks)))


def stream(query: Any, facts: StreamFacts) -> PipelineFacts:
    return replace(SOUND, streams={**STREAMS, query: facts})


def tables(**changes: Any) -> PipelineFacts:
    return replace(SOUND, tables=replace(TableFacts("id", is_as_certified=True), **changes))


def failed(part: Part) -> PipelineFacts:
    # Of the session there are no facts.
    lost: dict[str, Any] = {part: None} if hasattr(SOUND, part) else {}
    return replace(SOUND, failures={part: Failure("it does not answer")}, **lost)
