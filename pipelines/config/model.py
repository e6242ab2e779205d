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
from pipelines.config.backfill import BackfillConfig
from pipelines.config.clusters import check_clusters
from pipelines.config.kafka import KafkaConfig
from pipelines.config.maintain import MaintainConfig, check_retentions
from pipelines.config.publish import PublishConfig, check_publish
from pipelines.config.risks import RiskName
from pipelines.config.speed import SpeedConfig
from pipelines.config.streams import STREAMS, Layer, Query
from pipelines.config.values import (
    AnyInterval,
    Command,
    ContractFile,
    Count,
    DatabaseName,
    Group,
    Headers,
    LeaseInterval,
    Options,
    PatientInterval,
    PipelineName,
    Place,
    PositiveInterval,
    Real,
    SparkSettings,
    Topic,
    Url,
    ViewName,
    Webhook,
    Whole,
)
from pipelines.errors import ConfigError

Ending = Literal["audit_failed", "source_error", "failed"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RegistryConfig(_Model):
    """The schema registry, for a `valueFormat` whose values name a schema and for `publish.format: avro`.

    Attributes:
        url: URL of a registry that implements Confluent's REST API. For Apicurio it ends in
            `/apis/ccompat/v7`.
        timeout: How long to wait for one response.
        options: Other settings of confluent-kafka's `SchemaRegistryClient`, by its own names, such as
            `ssl.ca.location`.
        secrets: The same, for values that are never shown or logged, such as `basic.auth.user.info`.
    """

    url: Url
    timeout: PositiveInterval = timedelta(seconds=10)
    options: Options = {}
    secrets: dict[str, SecretStr] = {}

    @property
    def identity(self) -> str:
        """What the lake keeps schemas under; with another one it asks for them, and reads bronze, anew."""
        return self.url


class LakeConfig(_Model):
    """Where the tables are.

    Attributes:
        root: Folder of the lake: a path, or a URI that Spark can write to, such as `s3a://bucket/lake`.
    """

    root: Place


class IngestConfig(_Model):
    """How ingest reads micro-batches from Kafka.

    Attributes:
        trigger_interval: Time from one micro-batch to the next.
        max_clock_behind: How far the clock may be behind the newest commit of bronze, or behind the previous
            micro-batch. Ingest stops if it is further behind.
        offsets_group: Consumer group to which ingest commits the offsets of each micro-batch that is in
            bronze, so that lag tools see them. `{env}` and `{pipeline}` stand for the two names. Ingest does
            not read from it, and does not wait for the commits. `null` turns it off. See
            [Lag](deploy.md#lag).
    """

    trigger_interval: PositiveInterval = timedelta(seconds=10)
    max_clock_behind: PositiveInterval = timedelta(minutes=10)
    offsets_group: Group | None = "oncelake.{env}.{pipeline}.ingest"


class DecodeConfig(_Model):
    """Limits on event times.

    Attributes:
        max_future: How far an event time may be after the time at which its record was sent. Records further
            ahead go to quarantine (`event_time_future`). After a change, rebuild the speed layer, or the
            audit may find that the layers differ.
    """

    max_future: PositiveInterval = timedelta(days=1)


class QuarantineConfig(_Model):
    """Limits on broken records, and the topic to which they are copied.

    Attributes:
        max_share: `speed_stream` stops with exit code 4 if a larger share of the records of a micro-batch is
            broken; duplicates and late records count as not broken. With `1` it never stops for this reason.
        min_records: Minimum number of broken records in a micro-batch for which the stream stops.
        dead_letter_topic: Topic to which broken records are copied, with the reason in headers `oncelake.…`.
            It must exist, on the cluster of `kafka`. A copy can arrive more than once.
    """

    max_share: Real = Field(default=0.5, ge=0, le=1)
    min_records: Count = 100
    dead_letter_topic: Topic | None = None


class BatchConfig(_Model):
    """The nightly rebuild.

    Attributes:
        dedup_horizon_days: The horizon: records of a key are copies of one event if their event days are at
            most this many days apart.
        chain_horizons: A run compares copies of an event up to this many horizons before and after its days.
            It applies only if the event time is not part of the key. If a key recurs over a longer span, the
            day fails its audit.
        lookback_days: How many days back a run rebuilds days that received records after their verdict.
        seal_by: When a day counts as complete in bronze. `kafka`: bronze must have what the cluster has;
            `bronze`: the newest record in bronze was sent on that day or later. Partitions are not checked
            one by one: use it only if the topic no longer exists.
        seal_grace: How long after the end of a day its records may still arrive. A run that starts earlier
            ends with exit code 4.
        seal_wait: How long a run waits for ingest to catch up before it ends with exit code 4. Set it to
            several times `ingest.trigger_interval`.
        lease_duration: How long a lease is valid after it was last extended. If a run dies on another
            machine, other runs can start when this time is over.
        max_duration: For how long in total a run extends its lease. If it
            takes longer, another run can take the lease over.
        fewer_records: What a run does with a requested day that is certified and of which bronze has lost
            records: `refuse` ends with exit code 4, `take` rebuilds the day from the records that are left.
    """

    dedup_horizon_days: Whole = Field(default=1, ge=0, le=366)
    chain_horizons: Whole = Field(default=4, ge=2, le=366)
    lookback_days: Whole = Field(default=7, ge=0, le=366)
    seal_by: Literal["kafka", "bronze"] = "kafka"
    seal_grace: AnyInterval = timedelta(minutes=15)
    seal_wait: AnyInterval = timedelta(seconds=30)
    lease_duration: LeaseInterval = timedelta(hours=1)
    max_duration: LeaseInterval = timedelta(hours=12)
    fewer_records: Literal["refuse", "take"] = "refuse"


class ServingConfig(_Model):
    """What readers of the lake query: a view, and a table for engines that cannot read Spark views.

    Attributes:
        view: Catalog view that jobs keep up to date, such as `lake.flights`. The schema must exist. In
            Spark's default catalog, in memory, the view is lost when the job ends: use a metastore
            (`spark.sql.catalogImplementation: hive` in `spark.conf`).
        table: Whether jobs keep `serving/NAME` up to date, a Delta table with the certified days and nothing
            else, for [other engines](engines.md). Certified days are then stored twice.
        database: Database in which `oncelake catalog register` registers the tables, such as `lake`, or
            `unity.lake` in a Spark catalog. It must exist.
    """

    view: ViewName | None = None
    table: bool = False
    database: DatabaseName | None = None


class NotifyConfig(_Model):
    """Failure notifications of `nightly_batch` and `validate`, and of streams that `oncelake run` gives up.

    The same hooks are called for streams that are stuck, and for alerts of lag. Nobody is notified if no hook
    is set.

    Attributes:
        when: Failures to notify about: `audit_failed` (exit code 3), `source_error` (4), `failed` (1). For
            streams that `oncelake run` gives up, or that are stuck, and for alerts of lag, the hooks are
            always called.
        command: Program and its arguments, as a list. It gets the summary as JSON on standard input. No shell
            reads it.
        webhook: URL to which the summary is sent as JSON by POST. It is never shown, because many contain a
            secret.
        headers: Headers for the webhook. Their values are never shown.
        timeout: How long each hook may take.
    """

    when: tuple[Ending, ...] = Field(default=("audit_failed",), min_length=1)
    command: Command | None = None
    webhook: Webhook | None = None
    headers: Headers = {}
    timeout: PositiveInterval = timedelta(seconds=10)


class LagConfig(_Model):
    """When `oncelake run` and `oncelake lag --alert` call the hooks of `notify` for a stream that is behind.

    Higher values mean fewer and later messages. An alert is raised or cleared only after several
    evaluations in a row, so that one outlier causes no message.

    Attributes:
        evaluate_every: How often `oncelake run` evaluates the lag, if `notify` has a hook. Each evaluation
            runs in its own JVM. It is killed if it runs longer than this interval or two minutes, whichever
            is longer. `null` turns it off.
        raise_after: Evaluations in a row that must find a stream behind before an alert is raised. The
            default tolerates one slow micro-batch, and a restart between two evaluations.
        clear_after: Evaluations in a row that must find it not behind before the alert is cleared. The
            default is higher than that of `raise_after`, so that a stream that recovers only for a moment
            does not cause two more messages.
    """

    evaluate_every: PositiveInterval | None = timedelta(minutes=5)
    raise_after: Whole = Field(default=3, ge=2, le=1_000)
    clear_after: Whole = Field(default=5, ge=2, le=1_000)


class RunConfig(_Model):
    """How `oncelake run` supervises the streams.

    Attributes:
        stuck_after: `oncelake run` ends a stream that has given no sign that it moves for this long, and
            starts it again, see [Streams that are stuck](schedule.md#streams-that-are-stuck). Trigger
            intervals come on top. At least five minutes. `null` turns it off.
    """

    stuck_after: PatientInterval | None = timedelta(minutes=15)


class MetricsConfig(_Model):
    """What each stream shows of itself by HTTP: `/metrics` for Prometheus, `/healthz` and `/livez`.

    Attributes:
        port: First of three ports: `ingest_stream` listens on it, `speed_stream` on the next one,
            `publish_stream` on the one after; then the ingests of `kafka.clusters`, in their order. Without
            it, nothing listens. Reserve three consecutive ports for each pipeline on a host, and one more for
            each of these clusters.
        host: Address to listen on. Everybody who reaches it can read the metrics.
    """

    port: Whole | None = Field(default=None, ge=1, le=65_533)
    host: str = Field(default="127.0.0.1", min_length=1)


class SparkConfig(_Model):
    """The Spark session.

    Attributes:
        master: Spark master. Ignored under spark-submit. Without it, `local[*]`.
        conf: Other Spark settings. They also apply under spark-submit and override its `--conf`. Settings
            that a submitted driver needs at its start, such as `spark.driver.memory`, have no effect there.
            Settings on which results depend are refused, such as `spark.sql.shuffle.partitions` (use
            `speed.state_partitions`) and `spark.sql.session.timeZone`; and those by which data may be lost:
            default properties of new Delta tables (`spark.databricks.delta.properties.defaults.…`), and
            another file system for local files (`spark.hadoop.fs.file.impl`).
    """

    master: str | None = None
    conf: SparkSettings = {}


class PipelineConfig(_Model):
    """Configuration of a pipeline, except for its contract.

    Attributes:
        name: Name of the pipeline, which is that of its file.
        env: Environment, which is a folder of the configuration.
        contract: File of the contract, in `--contracts-dir`.
        accept_risks: Risks that this pipeline takes, by their names, see [Risks](#risks). Other
            risks are refused by jobs, or reported by `oncelake doctor`.
        lake: Where the tables are.
        kafka: The topic.
        registry: The schema registry.
        ingest: `ingest_stream`.
        backfill: `oncelake backfill`.
        speed: `speed_stream`.
        decode: Limits on event times.
        quarantine: Limits on broken records.
        batch: `nightly_batch`.
        audit: The audit.
        maintain: `maintain`.
        serving: How readers find the lake.
        publish: `publish_stream`; nothing is published without it.
        notify: Failure notifications.
        lag: Alerts of lag.
        run: `oncelake run`.
        metrics: Metrics and health of streams.
        spark: The Spark session.
    """

    name: PipelineName
    env: str
    contract: ContractFile
    accept_risks: tuple[RiskName, ...] = ()
    lake: LakeConfig
    kafka: KafkaConfig
    registry: RegistryConfig | None = None
    ingest: IngestConfig = IngestConfig()
    backfill: BackfillConfig = BackfillConfig()
    speed: SpeedConfig
    decode: DecodeConfig = DecodeConfig()
    quarantine: QuarantineConfig = QuarantineConfig()
    batch: BatchConfig = BatchConfig()
    audit: AuditConfig = AuditConfig()
    maintain: MaintainConfig = MaintainConfig()
    serving: ServingConfig = ServingConfig()
    publish: PublishConfig | None = None
    notify: NotifyConfig = NotifyConfig()
    lag: LagConfig = LagConfig()
    run: RunConfig = RunConfig()
    metrics: MetricsConfig = MetricsConfig()
    spark: SparkConfig = SparkConfig()

    @field_validator("quarantine")
    @classmethod
    def _copies_elsewhere(cls, quarantine: QuarantineConfig, info: ValidationInfo) -> QuarantineConfig:
        kafka = info.data.get("kafka")
        if kafka and quarantine.dead_letter_topic == kafka.topic:
            raise ValueError(
                f"dead_letter_topic: expected another topic than kafka.topic, got '{kafka.topic}' for both:"
                " each copy would be read, and copied again"
            )
        return quarantine

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
            to = publish.model_copy(
                update={"bootstrap_servers": publish.bootstrap_servers or kafka.bootstrap_servers}
            )
            for further in map(kafka.of_cluster, kafka.clusters):
                check_publish(to, further.bootstrap_servers, {further.topic}, has_registry=has_registry)
        return publish

    @model_validator(mode="after")
    def _fits_several_clusters(self) -> "PipelineConfig":
        needs_first = ["quarantine.dead_letter_topic"] if self.quarantine.dead_letter_topic else []
        if self.publish and not self.publish.bootstrap_servers:
            needs_first.append("publish without bootstrap_servers")
        of_gaps = {gap.cluster for gap in self.audit.known_gaps if gap.cluster}
        check_clusters(self.kafka, of_gaps, self.batch.seal_by, needs_first)
        return self

    @property
    def streams(self) -> tuple[Query, ...]:
        """The streams that the pipeline has: `publish` only if something is said of publishing."""
        return tuple(query for query in STREAMS if query != "publish" or self.publish)

    def table(self, layer: Layer) -> str:
        """Return the path of one of this pipeline's tables."""
        return f"{self.root}/{layer}/{self.name}"

    @property
    def serving_table(self) -> str:
        """The path of the table that holds the certified days, for other engines."""
        return f"{self.root}/serving/{self.name}"

    def ops_table(self, table: str) -> str:
        """Return the path of a table that all pipelines of a lake share."""
        return f"{self.root}/ops/{table}"

    @property
    def offsets_group(self) -> str | None:
        """The consumer group that shows how far ingest is; None if there is to be none."""
        group = self.ingest.offsets_group
        group = group and group.format(env=self.env, pipeline=self.name)
        return f"{group}.{self.cluster}" if group and self.cluster else group

    @property
    def cluster(self) -> str | None:
        """The cluster whose source this is the configuration of; None for the first."""
        return self.kafka.cluster

    def sources(self) -> tuple["PipelineConfig", ...]:
        """Return the configuration of each cluster's source, the first cluster's first.

        In each, `kafka` is that of the cluster, and what belongs to one cluster, as checkpoint, group and
        known gaps do, is its own. With one cluster that is the configuration itself.
        """
        if not self.kafka.clusters:
            return (self,)
        further = map(self.kafka.of_cluster, self.kafka.clusters)
        return tuple(map(self._source, (self.kafka.of_first(), *further)))

    def source(self, cluster: str) -> "PipelineConfig":
        """Return the configuration of the source of a further cluster.

        Raises:
            ConfigError: There is no cluster of this name.
        """
        if cluster not in self.kafka.clusters:
            raise ConfigError(
                f"--cluster {cluster}: no such cluster in kafka.clusters; there are:"
                f" {', '.join(self.kafka.clusters) or 'none'}"
            )
        return self._source(self.kafka.of_cluster(cluster))

    def _source(self, kafka: KafkaConfig) -> "PipelineConfig":
        gaps = tuple(gap for gap in self.audit.known_gaps if gap.cluster == kafka.cluster)
        audit = self.audit.model_copy(update={"known_gaps": gaps})
        return self.model_copy(update={"kafka": kafka, "audit": audit})

    @property
    def backfill_kafka(self) -> KafkaConfig:
        """The topic as `oncelake backfill` reads it: with a `client.id` of its own, for quotas of brokers."""
        client = self.backfill.client_id.format(env=self.env, pipeline=self.name)
        client = f"{client}.{self.cluster}" if self.cluster else client
        return self.kafka.model_copy(update={"options": {**self.kafka.options, "client.id": client}})

    def checkpoint(self, query: Query) -> str:
        """Return the path of a streaming query's checkpoint."""
        own = f"_{self.cluster}" if self.cluster and query == "ingest" else ""
        return f"{self.root}/ops/checkpoints/{self.name}/{query}{own}"

    @property
    def alerts_file(self) -> str:
        """The file that keeps the alerts of lag."""
        return f"{self.root}/ops/checkpoints/{self.name}/lag.alerts.json"

    @property
    def root(self) -> str:
        """`lake.root` without a trailing slash; a path is made absolute, as Delta needs it in SQL."""
        root = self.lake.root.rstrip("/")
        return root if "://" in root else os.path.abspath(root)  # noqa: PTH100 - Delta takes no `..`
