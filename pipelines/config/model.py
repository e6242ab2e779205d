"""What a pipeline's configuration may say: frozen models that refuse unknown keys.

Files, environments and command-line settings are merged in `pipelines.config.loader`; this module
only knows the result.
"""

import os
from datetime import timedelta
from typing import Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from pipelines.config.audit import AuditConfig
from pipelines.config.maintain import MaintainConfig, check_retentions
from pipelines.config.publish import PublishConfig, check_publish
from pipelines.config.speed import SpeedConfig
from pipelines.config.values import (
    AnyInterval,
    Command,
    Count,
    Headers,
    KafkaOptions,
    KafkaSecrets,
    LeaseInterval,
    Options,
    Place,
    PositiveInterval,
    RackMode,
    Servers,
    SparkSettings,
    Topic,
    Url,
    Variable,
    Webhook,
)

Ending = Literal["audit_failed", "source_error", "failed"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RackConfig(_Model):
    """How ingest spares bytes between racks (on a cloud: zones), where Kafka's brokers know theirs.

    Attributes:
        mode: `off`; `client`: each executor reads from replicas in its own rack, where there are some;
            `placement`: and the driver gives partitions to executors in racks that hold a replica.
        variable: the environment variable that names the rack on each executor. For placement they need
            `SPARK_EXECUTOR_ATTRIBUTE_RACK` as well, by which Spark tells the driver.
    """

    mode: RackMode = "off"
    variable: Variable = "NODE_RACK"


class KafkaConfig(_Model):
    """Where the events come from.

    Attributes:
        bootstrap_servers: `host:port`, several separated by commas.
        topic: the topic to read.
        starting_offsets: where a new checkpoint begins. `latest` skips what is already there.
        isolation_level: `read_committed` leaves out what a producer's aborted transaction wrote.
        max_offsets_per_trigger: an upper bound of records for one micro-batch of ingest.
        connect_timeout: how long to wait for the cluster before giving up.
        rack: how bytes between racks are spared.
        options: further settings of the Kafka client, by its own names (`security.protocol`, ...).
        secrets: the same, for values that are never shown or logged.
    """

    bootstrap_servers: Servers
    topic: Topic
    starting_offsets: Literal["earliest", "latest"] = "earliest"
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed"
    max_offsets_per_trigger: Count | None = None
    connect_timeout: PositiveInterval = timedelta(seconds=30)
    rack: RackConfig = RackConfig()
    options: KafkaOptions = {}
    secrets: KafkaSecrets = {}

    @model_validator(mode="after")
    def _one_rack(self) -> "KafkaConfig":
        if self.rack.mode != "off" and "client.rack" in {*self.options, *self.secrets}:
            raise ValueError(
                "kafka.options has client.rack, which would be the same on all executors, beside kafka.rack:"
                " remove it, or say kafka.rack.mode: off"
            )
        return self


class RegistryConfig(_Model):
    """The schema registry, where values name a schema by its id.

    Attributes:
        url: the address of an interface like Confluent's.
        timeout: how long to wait for one answer.
        options: further settings of confluent-kafka's `SchemaRegistryClient`, by its own names
            (`ssl.ca.location`, ...).
        secrets: the same, for values that are never shown or logged (`basic.auth.user.info`, ...).
    """

    url: Url
    timeout: PositiveInterval = timedelta(seconds=10)
    options: Options = {}
    secrets: dict[str, SecretStr] = {}


class LakeConfig(_Model):
    """Where the tables are: `root` is a path or a URI that Spark can write (`s3a://...`)."""

    root: Place


class IngestConfig(_Model):
    """How ingest takes micro-batches from Kafka.

    Attributes:
        trigger_interval: how often.
        max_clock_behind: by how much the clock may lie behind what bronze has been written at.
    """

    trigger_interval: PositiveInterval = timedelta(seconds=10)
    max_clock_behind: PositiveInterval = timedelta(minutes=10)


class DecodeConfig(_Model):
    """Limits on event times: how far one may lie after its record's Kafka timestamp."""

    max_future: PositiveInterval = timedelta(days=1)


class QuarantineConfig(_Model):
    """When broken records are so many that the stream stops instead of keeping them.

    Attributes:
        max_share: the share of broken records among a micro-batch's new records that is still normal; 1
            lets everything pass.
        min_records: fewer broken records in a micro-batch never stop the stream.
        dead_letter_topic: a topic to which broken records are copied, with the reason in headers; none if not
            set. Some may come more than once.
    """

    max_share: float = Field(default=0.5, ge=0, le=1)
    min_records: Count = 100
    dead_letter_topic: Topic | None = None


class BatchConfig(_Model):
    """The nightly rebuild.

    Attributes:
        dedup_horizon_days: over how many neighbouring days, each way, copies of a key are one event.
        chain_horizons: how many horizons away, each way, a run looks for copies that decide on its days.
        lookback_days: how many days back a run repairs days that late events came for.
        seal_by: `kafka`: bronze must have what the cluster has; `bronze`: a record of the day in bronze is
            enough, for rebuilds where the topic is gone.
        seal_grace: for how long after a day's end its events are waited for.
        seal_wait: for how long a run waits for ingest to catch up, before it gives up.
        lease_duration: how long a run that died keeps others from starting.
        max_duration: how long a run that hangs does: it prolongs its lease no longer.
        fewer_records: what becomes of a certified day that is asked for and of which bronze has lost records:
            it is refused, or `take`n as it is.
    """

    dedup_horizon_days: int = Field(default=1, ge=0, le=366)
    chain_horizons: int = Field(default=4, ge=2, le=366)
    lookback_days: int = Field(default=7, ge=0, le=366)
    seal_by: Literal["kafka", "bronze"] = "kafka"
    seal_grace: AnyInterval = timedelta(minutes=15)
    seal_wait: AnyInterval = timedelta(seconds=30)
    lease_duration: LeaseInterval = timedelta(hours=1)
    max_duration: LeaseInterval = timedelta(hours=12)
    fewer_records: Literal["refuse", "take"] = "refuse"


class ServingConfig(_Model):
    """The catalog view over both layers, such as `lake.flights`; none if not set."""

    view: str | None = Field(default=None, pattern=r"^\w+(\.\w+){0,2}$")


class NotifyConfig(_Model):
    """Who is told when a nightly run or a validation ends badly; nobody if neither hook is set.

    Attributes:
        when: of which endings: `audit_failed` (exit code 3), `source_error` (4), `failed` (1). Not `on`,
            which YAML reads as a truth.
        command: a program and its arguments; gets the summary as JSON on standard input.
        webhook: an address to which the summary is sent as JSON. Never shown, as many hold a secret.
        headers: sent to the webhook. Their values are never shown.
        timeout: how long each of the two hooks may take.
    """

    when: tuple[Ending, ...] = Field(default=("audit_failed",), min_length=1)
    command: Command | None = None
    webhook: Webhook | None = None
    headers: Headers = {}
    timeout: PositiveInterval = timedelta(seconds=10)


class SparkConfig(_Model):
    """The Spark session, when a job is not started by spark-submit."""

    master: str | None = None
    conf: SparkSettings = {}


class PipelineConfig(_Model):
    """Everything a pipeline is told, apart from its contract.

    Attributes:
        name: the pipeline's, that of its file.
        env: the environment, a folder of configuration.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    env: str
    contract: str = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]*([./][A-Za-z0-9_-]+)*$")
    lake: LakeConfig
    kafka: KafkaConfig
    registry: RegistryConfig | None = None
    ingest: IngestConfig = IngestConfig()
    speed: SpeedConfig
    decode: DecodeConfig = DecodeConfig()
    quarantine: QuarantineConfig = QuarantineConfig()
    batch: BatchConfig = BatchConfig()
    audit: AuditConfig = AuditConfig()
    maintain: MaintainConfig = MaintainConfig()
    serving: ServingConfig = ServingConfig()
    publish: PublishConfig | None = None
    notify: NotifyConfig = NotifyConfig()
    spark: SparkConfig = SparkConfig()

    @field_validator("maintain")
    @classmethod
    def _keeps_what_is_needed(cls, maintain: MaintainConfig, info: ValidationInfo) -> MaintainConfig:
        batch, decode = info.data.get("batch"), info.data.get("decode")
        # One that is missing was refused itself.
        if batch and decode:
            check_retentions(maintain, batch.lookback_days, batch.dedup_horizon_days, decode.max_future)
        return maintain

    @field_validator("publish")
    @classmethod
    def _fits_the_rest(cls, publish: PublishConfig | None, info: ValidationInfo) -> PublishConfig | None:
        kafka, quarantine = info.data.get("kafka"), info.data.get("quarantine")
        # Those that are missing were refused themselves.
        if publish and kafka and quarantine:
            taken = {kafka.topic, quarantine.dead_letter_topic}
            has_registry = info.data.get("registry", "refused") is not None
            check_publish(publish, kafka.bootstrap_servers, taken, has_registry=has_registry)
        return publish

    def table(self, layer: Literal["bronze", "speed", "batch", "quarantine"]) -> str:
        """The path of one of this pipeline's tables."""
        return f"{self.root}/{layer}/{self.name}"

    def ops_table(self, table: str) -> str:
        """The path of a table that all pipelines of a lake share."""
        return f"{self.root}/ops/{table}"

    def checkpoint(self, query: Literal["ingest", "speed", "publish"]) -> str:
        """The path of a streaming query's checkpoint."""
        return f"{self.root}/ops/checkpoints/{self.name}/{query}"

    @property
    def root(self) -> str:
        """`lake.root` without a trailing slash; a path is made absolute, as Delta needs it in SQL."""
        root = self.lake.root.rstrip("/")
        return root if "://" in root else os.path.abspath(root)  # noqa: PTH100 - Delta takes no `..`
