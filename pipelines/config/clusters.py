"""The further clusters of a pipeline, and what does not work with several."""

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Final, Literal, Protocol
from zlib import crc32

from pydantic import BaseModel, ConfigDict

from pipelines.config.client_templates import TemplateName
from pipelines.config.values import (
    Count,
    KafkaOptions,
    KafkaSecrets,
    PositiveInterval,
    RackMode,
    Servers,
    Topic,
    Variable,
)
from pipelines.errors import ConfigError
from pipelines.model_errors import like

ClusterName = Annotated[
    str,
    like(
        r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?",
        "the name of a cluster, of 1 to 40 small letters, digits and '-', a letter or a digit first and last",
    ),
]
"""The name of a further cluster: it is part of topics, checkpoints, groups and properties."""

SEPARATOR: Final = "/"
"""Between the name of a cluster and that of its topic; Kafka refuses it in the name of a topic."""

NOT_SUPPORTED: Final[Mapping[str, str]] = {
    "rack": "it asks one cluster; kafka.rack works for each",
    "batch.seal_by: bronze": "a newest record in bronze says nothing of other clusters",
}
"""What is refused for a pipeline with several clusters, and why."""

_MOST_MICROS: Final = 999


class RackConfig(BaseModel):
    """How ingest keeps bytes within a rack (in a cloud: a zone).

    Attributes:
        mode: `off`: racks are ignored; `client`: each executor reads from replicas in its own rack, if there
            are any; `placement`: in addition, the driver assigns partitions to executors in racks that hold a
            replica.
        variable: Environment variable that holds the rack of an executor. `placement` also needs
            `SPARK_EXECUTOR_ATTRIBUTE_RACK`, from which the driver learns the rack.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: RackMode = "off"
    variable: Variable = "NODE_RACK"

    @property
    def is_off(self) -> bool:
        """Whether racks are ignored: consumers read each partition from its leader."""
        return self.mode == "off"

    @property
    def executor_variable(self) -> str | None:
        """The variable from which clients on executors take their rack; None where racks are ignored."""
        return None if self.is_off else self.variable

    @property
    def assigns_partitions(self) -> bool:
        """Whether the driver assigns partitions to executors by rack."""
        return self.mode == "placement"


class ClusterConfig(BaseModel):
    """A further cluster with the stream. What it leaves out is as in `kafka`, but for options and secrets.

    Attributes:
        bootstrap_servers: `host:port`, several separated by commas.
        topic: Topic to read, if it is not `kafka.topic`.
        retired: Whether the cluster is lost for good: no run connects to it, and each nightly run warns
            of that. Its records stay in bronze.
        starting_offsets: As `kafka.starting_offsets`.
        isolation_level: As `kafka.isolation_level`.
        max_offsets_per_trigger: As `kafka.max_offsets_per_trigger`.
        connect_timeout: As `kafka.connect_timeout`.
        template: As `kafka.template`.
        rack: How bytes are kept within a rack.
        options: As `kafka.options`, which are not passed on to this cluster.
        secrets: As `kafka.secrets`, which are not passed on to this cluster.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    bootstrap_servers: Servers
    topic: Topic | None = None
    retired: bool = False
    starting_offsets: Literal["earliest", "latest"] | None = None
    isolation_level: Literal["read_committed", "read_uncommitted"] | None = None
    max_offsets_per_trigger: Count | None = None
    connect_timeout: PositiveInterval | None = None
    template: TemplateName | None = None
    rack: RackConfig | None = None
    options: KafkaOptions = {}
    secrets: KafkaSecrets = {}


def qualified(cluster: str | None, topic: str) -> str:
    """Return what a topic is called in the lake: the first cluster, which has no name, keeps its own."""
    return topic if cluster is None else f"{cluster}{SEPARATOR}{topic}"


def cluster_of(source_topic: str) -> str | None:
    """Return the cluster of a topic by what it is called in the lake; None for the first."""
    cluster, separator, _ = source_topic.partition(SEPARATOR)
    return cluster if separator else None


def micros_of(cluster: str | None) -> timedelta:
    """Return what is added to the ingestion time of a cluster's micro-batches.

    Spark's times are whole milliseconds, so two ingests may plan a micro-batch at the same time. The
    ingestion time must identify one micro-batch, for example to find its commit.
    """
    if cluster is None:
        return timedelta()
    return timedelta(microseconds=1 + crc32(cluster.encode()) % _MOST_MICROS)


def retired(kafka: "_Kafka") -> tuple[str, ...]:
    """Return the clusters that no run asks, in words."""
    first = ("the first cluster",) if kafka.retired else ()
    return (*first, *(name for name, cluster in kafka.clusters.items() if cluster.retired))


def require_one_cluster(clusters: Collection[str], what: str) -> None:
    """Make sure that a pipeline has no further clusters.

    Args:
        clusters: The names of those that it has.
        what: A key of `NOT_SUPPORTED`.

    Raises:
        ConfigError: It has some.
    """
    if clusters:
        raise ConfigError(f"oncelake {what}: {unsupported(what)}; found {', '.join(clusters)}")


def require_not_retired(kafka: "_Kafka") -> None:
    """Make sure that no run reads from a cluster that nightly runs do not ask.

    Raises:
        ConfigError: It would.
    """
    if kafka.retired:
        raise ConfigError(
            f"{kafka.setting('retired')}: found true, expected false to read from this cluster, which"
            " nightly runs do not ask: what it has could be missing from certified days. Remove the setting"
        )


class _Kafka(Protocol):
    """What `KafkaConfig` says of one cluster."""

    @property
    def cluster(self) -> str | None: ...
    @property
    def bootstrap_servers(self) -> str: ...
    @property
    def topic(self) -> str: ...
    @property
    def retired(self) -> bool: ...
    @property
    def clusters(self) -> Mapping[str, ClusterConfig]: ...
    def setting(self, key: str) -> str: ...


def check_apart(by_cluster: Mapping[str | None, _Kafka]) -> None:
    """Make sure that clusters are different ones, that one is asked, and that their names tell them apart.

    Args:
        by_cluster: By the name of the cluster, None for the first, what is said of it.

    Raises:
        ValueError: They are not.
    """
    if all(kafka.retired for kafka in by_cluster.values()):
        raise ValueError("retired: expected a cluster that is not, got none: nothing would be read or asked")
    seen: dict[tuple[str, str], str] = {}
    # Nobody reads the topic of a retired one: it may be the one that was deleted, and made again.
    for kafka in (each for each in by_cluster.values() if not each.retired):
        own = kafka.setting("bootstrap_servers")
        for server in kafka.bootstrap_servers.split(","):
            other = seen.setdefault((server, kafka.topic), own)
            if other != own:
                raise ValueError(
                    f"{own}: expected another cluster or another topic than {other} has, got {server} and"
                    f" topic '{kafka.topic}' for both: each record would be read twice"
                )
    names: dict[timedelta, str] = {}
    for name in filter(None, by_cluster):
        other = names.setdefault(micros_of(name), name)
        if other != name:
            raise ValueError(
                f"clusters.{name}: expected a name that gives other ingestion times than '{other}', see"
                " docs/clusters.md; choose another name"
            )


def check_clusters(
    kafka: _Kafka, gap_clusters: Collection[str], seal_by: str, needs_first: Sequence[str]
) -> None:
    """Make sure that the rest of a configuration fits several clusters.

    Args:
        kafka: The section, with its clusters.
        gap_clusters: The clusters that `audit.known_gaps` names.
        seal_by: `batch.seal_by`.
        needs_first: Settings that need the first cluster.

    Raises:
        ValueError: It does not.
    """
    if kafka.clusters and seal_by == "bronze":
        raise ValueError(f"batch.seal_by: {unsupported('batch.seal_by: bronze')}; set kafka")
    if odd := sorted({*gap_clusters} - {*kafka.clusters}):
        raise ValueError(
            f"audit.known_gaps: expected a cluster of kafka.clusters ({', '.join(kafka.clusters) or 'none'}),"
            f" got {', '.join(odd)}"
        )
    if kafka.retired and needs_first:
        raise ValueError(
            f"kafka.retired: expected false, since {' and '.join(needs_first)} uses the cluster of kafka, got"
            " true; remove that, or name another cluster there"
        )


def unsupported(what: str) -> str:
    """Return what is said of something that does not work with several clusters."""
    return (
        f"not supported with kafka.clusters: {NOT_SUPPORTED[what]}."
        " See docs/clusters.md, 'What is not supported'"
    )
