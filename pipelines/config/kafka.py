"""What a pipeline's configuration says of the topic that it reads, and of the clusters that have it."""

from datetime import timedelta
from typing import Literal

from pydantic import BaseModel, ConfigDict, PrivateAttr, model_validator

from pipelines.config.client_templates import TemplateName
from pipelines.config.clusters import ClusterConfig, ClusterName, RackConfig, check_apart, qualified
from pipelines.config.values import Count, KafkaOptions, KafkaSecrets, PositiveInterval, Servers, Topic


class KafkaConfig(BaseModel):
    """The topic that events come from.

    Attributes:
        bootstrap_servers: `host:port`, several separated by commas.
        topic: Topic to read.
        starting_offsets: Where ingest starts on its first run. `latest` skips the records that are already in
            the topic, so the first run refuses it unless `accept_risks` has `starting_offsets_latest`. After
            `oncelake checkpoint reset` ingest continues after the last records in bronze, whatever this
            setting says.
        isolation_level: `read_committed`, or `read_uncommitted`, which also reads the records of aborted
            transactions.
        max_offsets_per_trigger: Maximum number of offsets in a micro-batch of ingest, over all partitions
            (Spark's `maxOffsetsPerTrigger`). Without it there is no limit. If it is set, a nightly run waits
            until bronze has all records that Kafka had when the run began; with `LogAppendTime`, a later
            record of each partition is enough.
        connect_timeout: How long to wait for the cluster.
        template: Client settings for one way of reading the topic: `realtime`, `backfill` or
            `nightly`, see [Client templates](#client-templates). `kafka.options` overrides them.
        rack: How bytes are kept within a rack.
        retired: Whether this cluster is lost for good, see [Clusters](clusters.md#a-lost-cluster). Only with
            `kafka.clusters`.
        clusters: Further clusters that have the stream, by their names, see [Clusters](clusters.md).
        options: Other settings of the Kafka client, by its own names, such as `security.protocol`. Those that
            Oncelake sets itself are refused, such as `group.id`, `auto.offset.reset` and
            `isolation.level`; and names that look like a secret, which belong in `kafka.secrets`.
        secrets: The same, for values that are never shown or logged.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    bootstrap_servers: Servers
    topic: Topic
    starting_offsets: Literal["earliest", "latest"] = "earliest"
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed"
    max_offsets_per_trigger: Count | None = None
    connect_timeout: PositiveInterval = timedelta(seconds=30)
    template: TemplateName | None = None
    rack: RackConfig = RackConfig()
    retired: bool = False
    clusters: dict[ClusterName, ClusterConfig] = {}
    options: KafkaOptions = {}
    secrets: KafkaSecrets = {}
    _cluster: str | None = PrivateAttr(None)
    _number: int = PrivateAttr(0)
    _is_one_of_several: bool = PrivateAttr(False)

    @model_validator(mode="after")
    def _one_rack(self) -> "KafkaConfig":
        for kafka in (self, *map(self.of_cluster, self.clusters)):
            if kafka.rack.executor_variable and "client.rack" in {*kafka.options, *kafka.secrets}:
                raise ValueError(
                    f"{kafka.setting('options')} has client.rack, which would be the same on all executors,"
                    f" beside kafka.rack: remove it, or set {kafka.setting('rack.mode')}: off"
                )
        return self

    @model_validator(mode="after")
    def _clusters_apart(self) -> "KafkaConfig":
        check_apart({kafka.cluster: kafka for kafka in (self, *map(self.of_cluster, self.clusters))})
        return self

    @property
    def cluster(self) -> str | None:
        """The name of the cluster; None for the first, which has none."""
        return self._cluster

    @property
    def number(self) -> int:
        """Its place among the clusters; 0 is the first."""
        return self._number

    @property
    def source_topic(self) -> str:
        """What the topic is called in bronze, as `_topic`: the one name that differs by cluster."""
        return qualified(self._cluster, self.topic)

    def setting(self, key: str) -> str:
        """Return where a key of this section stands in the configuration, for messages."""
        return f"kafka.{key}" if self._cluster is None else f"kafka.clusters.{self._cluster}.{key}"

    def of_cluster(self, name: str) -> "KafkaConfig":
        """Return the same section for a further cluster, which has none itself."""
        own = {key: value for key, value in self.clusters[name] if value is not None}
        view = self.model_copy(update={**own, "clusters": {}})
        view._cluster, view._number = name, list(self.clusters).index(name) + 1
        view._is_one_of_several = True
        return view

    def of_first(self) -> "KafkaConfig":
        """Return the same section for the first cluster alone."""
        view = self.model_copy(update={"clusters": {}})
        view._is_one_of_several = True
        return view

    @property
    def has_others(self) -> bool:
        """Whether the pipeline reads several clusters, also in the section of one of them."""
        return bool(self.clusters) or self._is_one_of_several
