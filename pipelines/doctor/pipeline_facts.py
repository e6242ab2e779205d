"""The facts that the checks of a pipeline look at; `pipelines.steps.doctor` asks for them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Literal

from pipelines.config.model import PipelineConfig
from pipelines.config.risks import TakenRisk
from pipelines.config.streams import Query
from pipelines.doctor.findings import ClusterLabel
from pipelines.kafka.topic_state import TopicState
from pipelines.publishing.cluster_advice import ClusterFacts
from pipelines.racks.topology import TopicReplicas
from pipelines.spark.log_store import StoreProbe
from pipelines.spark.stream_progress import Refusal, StreamProgress

Part = Literal[
    "runtime",
    "session",
    "topic",
    "dead_letters",
    "store",
    "streams",
    "logs",
    "tables",
    "nights",
    "lateness",
    "output",
    "publishing",
]
"""What is asked for as a whole, within one limit of time."""
Scope = Literal["pipeline", "cluster", "streams"]
"""What a check looks at: the pipeline as a whole; each of its clusters; or its streams, of which each cluster
has an ingest of its own."""


@dataclass(frozen=True)
class RuntimeFacts:
    """What Spark runs on.

    Attributes:
        java: The Java that was found, in words; None under spark-submit, which has its own.
        missing_jars: Jars that are not there yet; they are fetched when a job starts.
        damaged_jars: Jars whose bytes are others than those of `conf/jars.lock`.
    """

    java: str | None
    missing_jars: tuple[str, ...] = ()
    damaged_jars: tuple[str, ...] = ()


@dataclass(frozen=True)
class TopicFacts:
    """The topic, and where its replicas are."""

    description: TopicState
    racked: TopicReplicas

    @property
    def replicas(self) -> int:
        """The number of replicas of the partition that has the fewest."""
        return min((len(each.replicas) for each in self.racked.partitions), default=0)

    @property
    def brokers(self) -> int:
        """How many brokers the cluster has."""
        return len(self.racked.racks)


@dataclass(frozen=True)
class StreamFacts:
    """A stream.

    Attributes:
        has_begun: Whether it has a checkpoint, of ingest one that says where it began, or continues after one
            that was reset.
        progress: The figures of its newest run; None if it has left none.
        refusal: Why its last start was refused, if no run was at work since.
        read_until: Of ingest, the first offset of each partition that it has not read.
        is_alive: Whether the process of that run is there; None where that cannot be seen from here.
    """

    has_begun: bool = False
    progress: StreamProgress | None = None
    refusal: Refusal | None = None
    read_until: Mapping[int, int] = field(default_factory=dict)
    is_alive: bool | None = None


@dataclass(frozen=True)
class LeaseFacts:
    """A lease that has not been given back.

    Attributes:
        holder: The run that holds it and its process, in words.
        since: When it took the lease.
        until: When the lease ends, if it is not extended.
        is_gone: Whether the process is known to have ended.
    """

    holder: str
    since: datetime
    until: datetime
    is_gone: bool


@dataclass(frozen=True)
class TableFacts:
    """What the tables say, compared with checkpoints, contract, verdicts and clock.

    Attributes:
        topic_id: The id of the topic that bronze was filled from; None if it does not say.
        misfits: Why a stream would not start, by its name: its tables and its checkpoint do not match.
        rules: Why a job would refuse the speed or the batch layer: contract or settings were changed.
        certified: Why readers of the certified version would fail; None if they do not.
        is_as_certified: Whether the batch layer holds what was certified and nothing else; None if there is
            none.
        clock: Why ingest would refuse this machine's clock; None if it does not.
        lease: The lease, if somebody has it.
    """

    topic_id: str | None = None
    misfits: Mapping[Query, str] = field(default_factory=dict)
    rules: tuple[str, ...] = ()
    certified: str | None = None
    is_as_certified: bool | None = None
    clock: str | None = None
    lease: LeaseFacts | None = None


@dataclass(frozen=True)
class NightFacts:
    """What nightly runs have decided.

    Attributes:
        failed: The days whose newest verdict is not that they are certified.
        decided_at: When the newest verdict was given; None if there is none.
        bronze_at: When bronze was last written; None if there is none.
        late: Events of the certified days that the last month has decided on which came too late for the
            speed layer.
        rows: All events of these days.
        bronze_since: When the table of bronze was made, if it has records; asked for only as long as there is
            no verdict.
    """

    failed: tuple[date, ...] = ()
    decided_at: datetime | None = None
    bronze_at: datetime | None = None
    late: int = 0
    rows: int = 0
    bronze_since: datetime | None = None


@dataclass(frozen=True)
class LatenessFacts:
    """How far records were behind the newest event time when they came.

    It is known by the event day, so it is a lower bound.

    Attributes:
        records: The records of the last month that the bronze index counts.
        behind: Those of them that were further behind than the watermark delay.
        most: The lateness that 99% of them do not exceed.
    """

    records: int
    behind: int
    most: timedelta


@dataclass(frozen=True)
class OutputFacts:
    """The cluster that is published to.

    Attributes:
        cluster: What it tells of itself.
        advice: What `oncelake publish doctor` warns of.
        transactions: Why the cluster would refuse all transactions; None if it does not.
    """

    cluster: ClusterFacts
    advice: tuple[str, ...] = ()
    transactions: str | None = None


@dataclass(frozen=True)
class PublishingFacts:
    """How far publishing is, by the lake and by the cluster.

    Attributes:
        problem: Why `publish_stream` would not start; None if checkpoint and cluster agree.
    """

    problem: str | None = None


@dataclass(frozen=True)
class Failure:
    """A part that could not be asked for.

    Attributes:
        words: Why.
        is_ours: Whether the words also say what was expected, and how to fix it.
    """

    words: str
    is_ours: bool = True


@dataclass(frozen=True)
class PipelineFacts:
    """All that is known of a pipeline. A part that is None was not asked for, or has failed.

    Attributes:
        config: The configuration.
        at: When it was asked for.
        failures: Parts that could not be asked for.
        left_out: Parts that were not asked for, since one that they build on has failed.
        runtime: What Spark runs on.
        topic: The topic.
        dead_letters: The topic of broken records.
        store: The store of the lake.
        streams: The streams.
        logs: Commits that are damaged: the files of tables whose newest commits are empty or cut off.
        tables: What the tables say.
        nights: What nightly runs have decided.
        lateness: How late records come; None also if too few are known.
        output: The cluster that is published to.
        publishing: Whether checkpoint and cluster agree on what was published.
        sources: With several clusters, the same of each that was asked: `config` is that of its source, and
            only topic, ingest, and what bronze says of it are known. What is beside them then has the topic
            of the first cluster, and no ingest.
        environment: The risks that variables of this process's environment take.
    """

    config: PipelineConfig
    at: datetime
    failures: Mapping[Part, Failure] = field(default_factory=dict)
    left_out: frozenset[Part] = frozenset()
    runtime: RuntimeFacts | None = None
    topic: TopicFacts | None = None
    dead_letters: TopicState | None = None
    store: StoreProbe | None = None
    streams: Mapping[Query, StreamFacts] | None = None
    logs: tuple[str, ...] | None = None
    tables: TableFacts | None = None
    nights: NightFacts | None = None
    lateness: LatenessFacts | None = None
    output: OutputFacts | None = None
    publishing: PublishingFacts | None = None
    sources: tuple["PipelineFacts", ...] = ()
    environment: tuple[TakenRisk, ...] = ()

    def of(self, scope: Scope) -> tuple["PipelineFacts", ...]:
        """Return the facts that a check looks at, one after the other."""
        if scope == "pipeline" or not self.config.kafka.has_others:
            return (self,)
        return self.sources if scope == "cluster" else (self, *self.sources)

    @property
    def cluster(self) -> ClusterLabel | None:
        """The cluster that they are of, where there are several; None if they are of the pipeline."""
        kafka = self.config.kafka
        is_source = kafka.has_others and not kafka.clusters
        return ClusterLabel(kafka.cluster, kafka.bootstrap_servers) if is_source else None
