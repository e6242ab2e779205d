"""What a pipeline's configuration may say: frozen models that refuse unknown keys.

Files, environments and command-line settings are merged in `pipelines.config_files`; this module
only knows the result.
"""

import os
import re
from datetime import timedelta
from typing import Annotated, Final, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr

from pipelines.intervals import Interval

KAFKA_OPTIONS_WE_OWN: Final = frozenset(
    {"bootstrap.servers", "group.id", "enable.auto.commit", "auto.offset.reset", "key.deserializer"}
    | {"value.deserializer", "isolation.level"}
)

SPARK_SETTINGS_WE_OWN: Final = frozenset(
    {
        "spark.sql.extensions",
        "spark.sql.catalog.spark_catalog",
        "spark.sql.session.timeZone",
        "spark.sql.shuffle.partitions",
        "spark.sql.streaming.stateStore.providerClass",
        "spark.sql.ansi.enabled",
        "spark.sql.parser.escapedStringLiterals",
        "spark.sql.variable.substitute",
    }
)
_SECRET: Final = re.compile(r"jaas|password|secret|token|credential|private|user\.info|\.key$", re.IGNORECASE)
_TOPIC: Final = r"^[a-zA-Z0-9._-]{1,249}$"
_LONGEST: Final = timedelta(days=3650)
_MOST: Final = 2**63 - 1
_LAST_PORT: Final = 65_535
Option = TypeVar("Option", str, SecretStr)


def _some_time(interval: timedelta) -> timedelta:
    if not timedelta() < interval <= _LONGEST:
        raise ValueError("expected an interval longer than zero, such as '10 seconds', of 3650 days at most")
    return interval


def _some_seconds(interval: timedelta) -> timedelta:
    if interval < timedelta(seconds=1):
        raise ValueError("expected a second at least: the lease is prolonged at every third of it")
    return interval


def _no_owned_option(options: dict[str, Option]) -> dict[str, Option]:
    # Spark takes option names without regard to case; of two that differ in it, either may win.
    if odd := sorted(key for key in options if key != key.lower()):
        raise ValueError(f"expected the Kafka client's own names, in lower case, got {', '.join(odd)}")
    if owned := sorted(KAFKA_OPTIONS_WE_OWN & options.keys()):
        raise ValueError(
            f"Oncelake sets {', '.join(owned)} itself, since a wrong value loses data;"
            " remove it from the options"
        )
    return options


def _real_ports(servers: str) -> str:
    for server in servers.split(","):
        if not 0 < int(server.rpartition(":")[2]) <= _LAST_PORT:
            raise ValueError(f"expected ports from 1 to {_LAST_PORT}, got '{server}'")
    return servers


def _an_address(url: str) -> str:
    if not re.fullmatch(r"https?://[^\s@]+", url):
        raise ValueError(
            "expected http:// or https:// and an address without user and password, which belong into"
            " registry.secrets as basic.auth.user.info"
        )
    return url


def _as_text(value: object) -> object:
    # YAML reads 1.10 and 010 as other numbers than are written, so only truths are taken as they are.
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        raise ValueError("expected text, got a number; write it in quotes")
    return value


def _no_secret(options: dict[str, str]) -> dict[str, str]:
    if hidden := sorted(key for key in options if _SECRET.search(key)):
        raise ValueError(f"{', '.join(hidden)} would be shown in plans and logs; move it to `secrets`")
    return options


def _no_owned_setting(settings: dict[str, str]) -> dict[str, str]:
    if owned := sorted(SPARK_SETTINGS_WE_OWN & settings.keys()):
        raise ValueError(
            f"Oncelake sets {', '.join(owned)} itself, since the results depend on it; remove it"
            " (speed.state_partitions decides the shuffle partitions)"
        )
    return settings


def _a_place(root: str) -> str:
    if not root.rstrip("/"):
        raise ValueError("expected a folder of its own for the lake, not the root of all")
    if re.match(r"~|[A-Za-z][A-Za-z0-9+.-]*:(?!//)", root):
        raise ValueError(f"expected a path without ~, or a URI such as s3a://bucket/lake, got {root!r}")
    if re.match(r"[^/]*://[^/]*:[^/]*@", root):
        raise ValueError("expected no user and password in a URI: it is shown in plans; use spark.conf")
    return root


Setting = Annotated[str, BeforeValidator(_as_text)]
PositiveInterval = Annotated[Interval, AfterValidator(_some_time)]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class KafkaConfig(_Model):
    """Where the events come from.

    Attributes:
        bootstrap_servers: `host:port`, several separated by commas.
        topic: the topic to read.
        starting_offsets: where a new checkpoint begins. `latest` skips what is already there.
        isolation_level: `read_committed` leaves out what a producer's aborted transaction wrote.
        max_offsets_per_trigger: an upper bound of records for one micro-batch of ingest.
        connect_timeout: how long to wait for the cluster before giving up.
        options: further settings of the Kafka client, by its own names (`security.protocol`, ...).
        secrets: the same, for values that are never shown or logged.
    """

    bootstrap_servers: Annotated[
        str, Field(pattern=r"^[^\s,]+:\d{1,9}(,[^\s,]+:\d{1,9})*$"), AfterValidator(_real_ports)
    ]
    topic: str = Field(pattern=_TOPIC)
    starting_offsets: Literal["earliest", "latest"] = "earliest"
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed"
    max_offsets_per_trigger: int | None = Field(default=None, ge=1, le=_MOST)
    connect_timeout: PositiveInterval = timedelta(seconds=30)
    options: Annotated[dict[str, Setting], AfterValidator(_no_owned_option), AfterValidator(_no_secret)] = {}
    secrets: Annotated[dict[str, SecretStr], AfterValidator(_no_owned_option)] = {}


class RegistryConfig(_Model):
    """The schema registry, where values name a schema by its id.

    Attributes:
        url: the address of an interface like Confluent's.
        timeout: how long to wait for one answer.
        options: further settings of confluent-kafka's `SchemaRegistryClient`, by its own names
            (`ssl.ca.location`, ...).
        secrets: the same, for values that are never shown or logged (`basic.auth.user.info`, ...).
    """

    url: Annotated[str, AfterValidator(_an_address)]
    timeout: PositiveInterval = timedelta(seconds=10)
    options: Annotated[dict[str, Setting], AfterValidator(_no_secret)] = {}
    secrets: dict[str, SecretStr] = {}


class LakeConfig(_Model):
    """Where the tables are: `root` is a path or a URI that Spark can write (`s3a://...`)."""

    root: Annotated[str, Field(pattern=r"^[^`'\"\s]+$"), AfterValidator(_a_place)]


class IngestConfig(_Model):
    """How often ingest takes a micro-batch from Kafka."""

    trigger_interval: PositiveInterval = timedelta(seconds=10)


class SpeedConfig(_Model):
    """The real-time layer.

    Attributes:
        trigger_interval: how often a micro-batch is taken from bronze.
        watermark_delay: for how long behind the newest event time a key is remembered; a duplicate
            that is later than that is left to the nightly rebuild.
        state_partitions: into how many partitions the state is divided. Fixed at the first batch of
            a checkpoint: a later change has no effect until the checkpoint is made anew.
        max_bytes_per_trigger: about how much of bronze one micro-batch takes (`512m`, `2g`).
    """

    trigger_interval: PositiveInterval = timedelta(seconds=10)
    watermark_delay: PositiveInterval
    state_partitions: int = Field(default=8, ge=1, le=10_000)
    max_bytes_per_trigger: str | None = Field(default=None, pattern=r"^\d+[bkmgt]$")


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
    min_records: int = Field(default=100, ge=1, le=_MOST)
    dead_letter_topic: str | None = Field(default=None, pattern=_TOPIC)


class BatchConfig(_Model):
    """The nightly rebuild.

    Attributes:
        dedup_horizon_days: over how many neighbouring days, each way, copies of a key are one event.
        lease_duration: how long a run that died keeps others from starting.
    """

    dedup_horizon_days: int = Field(default=1, ge=0, le=366)
    lease_duration: Annotated[PositiveInterval, AfterValidator(_some_seconds)] = timedelta(hours=1)


class AuditConfig(_Model):
    """What the audit lets pass.

    Attributes:
        offset_gaps: `fail`, or `warn` for topics where gaps are lawful (compacted, transactional).
        layer_differences: `fail`, or `warn` where the speed layer was filled under other rules than
            today's, so that what it lacks cannot be explained any more.
        examples: how many offending rows or records a check and the report keep.
    """

    offset_gaps: Literal["fail", "warn"] = "fail"
    layer_differences: Literal["fail", "warn"] = "fail"
    examples: int = Field(default=5, ge=0, le=100)


class ServingConfig(_Model):
    """The catalog view over both layers, such as `lake.flights`; none if not set."""

    view: str | None = Field(default=None, pattern=r"^\w+(\.\w+){0,2}$")


class SparkConfig(_Model):
    """The Spark session, when a job is not started by spark-submit."""

    master: str | None = None
    conf: Annotated[dict[str, Setting], AfterValidator(_no_owned_setting)] = {}


class PipelineConfig(_Model):
    """Everything a pipeline is told, apart from its contract."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
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
    serving: ServingConfig = ServingConfig()
    spark: SparkConfig = SparkConfig()

    def table(self, layer: Literal["bronze", "speed", "batch", "quarantine"]) -> str:
        """The path of one of this pipeline's tables."""
        return f"{self.root}/{layer}/{self.name}"

    def ops_table(self, table: str) -> str:
        """The path of a table that all pipelines of a lake share."""
        return f"{self.root}/ops/{table}"

    def checkpoint(self, query: Literal["ingest", "speed"]) -> str:
        """The path of a streaming query's checkpoint."""
        return f"{self.root}/ops/checkpoints/{self.name}/{query}"

    @property
    def root(self) -> str:
        """`lake.root` without a trailing slash; a path is made absolute, as Delta needs it in SQL."""
        root = self.lake.root.rstrip("/")
        return root if "://" in root else os.path.abspath(root)  # noqa: PTH100 - Delta takes no `..`
