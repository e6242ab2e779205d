"""What single values of a configuration may be: types and checks that its models are made of.

A check raises `ValueError`, which `pipelines.config.loader` turns into one message with the place.
"""

import os
import re
from datetime import timedelta
from enum import Enum
from typing import Annotated, Final, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from pipelines.durations import Interval
from pipelines.model_errors import like

_KAFKA_OPTIONS_WE_OWN: Final = frozenset(
    {"bootstrap.servers", "group.id", "enable.auto.commit", "auto.offset.reset", "key.deserializer"}
    | {"value.deserializer", "isolation.level"}
)

# By these a producer's rows would come twice, not at all, or elsewhere than those of Java's producers.
_PRODUCER_OPTIONS_WE_OWN: Final = frozenset(
    {"bootstrap.servers", "metadata.broker.list", "transactional.id", "transaction.timeout.ms"}
    | {"enable.idempotence", "enable.gapless.guarantee", "acks", "request.required.acks", "retries"}
    | {"message.send.max.retries", "message.timeout.ms", "delivery.timeout.ms", "max.in.flight"}
    | {"max.in.flight.requests.per.connection", "partitioner", "group.id", "group.instance.id"}
    | {"enable.auto.commit", "isolation.level", "client.rack"}
)
# Options of Spark's source, which people look for here, in lower case.
_SOURCE_OPTIONS_WE_OWN: Final = {
    "failondataloss": "failOnDataLoss is always true: with false, records that Kafka has deleted before they"
    " were read are skipped without a word. Remove it; to accept a loss see docs/runbook.md,"
    " 'Offsets are gone'",
    "startingoffsets": "where ingest starts is kafka.starting_offsets; remove it from the options",
}
_SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_SPARK_SETTINGS_WE_OWN: Final = frozenset(
    {
        "spark.sql.extensions",
        "spark.sql.catalog.spark_catalog",
        "spark.sql.session.timeZone",
        _SHUFFLE_PARTITIONS,
        "spark.sql.ansi.enabled",
        "spark.sql.parser.escapedStringLiterals",
        "spark.sql.variable.substitute",
        "spark.sql.files.ignoreCorruptFiles",
        "spark.sql.files.ignoreMissingFiles",
        "spark.sql.parquet.outputTimestampType",
        "spark.sql.parquet.datetimeRebaseModeInWrite",
        "spark.sql.caseSensitive",
        "spark.sql.legacy.timeParserPolicy",
        "spark.databricks.delta.optimizeWrite.enabled",
    }
)
_LOCAL_FILES: Final = (
    "commits and checkpoints on local files depend on how Oncelake's file system, or Hadoop's own, renames"
    " files and keeps their checksums; remove it"
)
_REFUSED_SPARK_SETTINGS: Final = {
    "spark.hadoop.fs.file.impl": _LOCAL_FILES,
    "spark.hadoop.fs.AbstractFileSystem.file.impl": _LOCAL_FILES,
}
_PROPERTY_OF_NEW_TABLES: Final = "spark.databricks.delta.properties.defaults."
_SECRET: Final = re.compile(
    r"jaas|password|secret|token(?!\.endpoint\.url$)|credential|private|user\.info|\.key(\.pem)?$"
    r"|oauthbearer\.config",
    re.IGNORECASE,
)
_LOGIN_HEADER: Final = re.compile(r"authorization|cookie|token|secret|signature|api-?key", re.IGNORECASE)
_CLIENT_OPTION: Final = re.compile(r"(?!kafka\.)[a-z0-9._-]+")
_LONGEST: Final = timedelta(days=3650)
# A process may be suspended, or Java stop for its garbage, for minutes.
_PATIENCE: Final = timedelta(minutes=5)
_LAST_PORT: Final = 65_535
_BYTE_UNITS: Final = "bkmgt"
# What Java holds, and more characters than it takes to write it.
_LARGEST: Final = 2**63 - 1
_LONGEST_NUMBER: Final = 20
Option = TypeVar("Option", str, SecretStr)


class Form(Enum):
    """What a setting is for those who treat all settings of a form alike; see `setting_kinds`."""

    URL = "url"
    PROGRAM = "program"
    HEADERS = "headers"


def _some_time(interval: timedelta) -> timedelta:
    if not timedelta() < interval <= _LONGEST:
        raise ValueError("expected an interval longer than zero, such as '10 seconds', of 3650 days at most")
    return interval


def _not_too_long(interval: timedelta) -> timedelta:
    if interval > _LONGEST:
        raise ValueError("expected an interval of 3650 days at most")
    return interval


def _some_seconds(interval: timedelta) -> timedelta:
    if interval < timedelta(seconds=1):
        raise ValueError("expected 1 second at least: the lease is renewed after each third of this time")
    return interval


def _patient(interval: timedelta) -> timedelta:
    if interval < _PATIENCE:
        raise ValueError("expected '5 minutes' at least: a stream that works may give no sign for minutes")
    return interval


def _no_owned_option(options: dict[str, Option]) -> dict[str, Option]:
    return _not_ours(options, _KAFKA_OPTIONS_WE_OWN, "the Kafka client's", "loses data")


def _no_owned_producer_option(options: dict[str, Option]) -> dict[str, Option]:
    return _not_ours(options, _PRODUCER_OPTIONS_WE_OWN, "librdkafka's", "duplicates or loses records")


def _not_ours(options: dict[str, Option], ours: frozenset[str], whose: str, harm: str) -> dict[str, Option]:
    for key in options:
        if why := _SOURCE_OPTIONS_WE_OWN.get(key.lower()):
            raise ValueError(why)
    # Spark takes option names without regard to case; of two that differ in it, either may win.
    if odd := sorted(key for key in options if key != key.lower()):
        raise ValueError(f"expected {whose} own names, in lower case, got {', '.join(odd)}")
    if odd := sorted(key for key in options if not _CLIENT_OPTION.fullmatch(key)):
        raise ValueError(
            f"expected {whose} own names, such as security.protocol, without 'kafka.' before them, got"
            f" {', '.join(map(repr, odd))}"
        )
    if owned := sorted(ours & options.keys()):
        raise ValueError(
            f"Oncelake sets {', '.join(owned)} itself, since a wrong value {harm}; remove it from the options"
        )
    return options


def _real_ports(servers: str) -> str:
    for server in servers.split(","):
        if not 0 < int(server.rpartition(":")[2]) <= _LAST_PORT:
            raise ValueError(f"expected ports from 1 to {_LAST_PORT}, got '{server}'")
    return servers


def _a_topic(topic: str) -> str:
    if topic in (".", ".."):
        raise ValueError(f"expected the name of a topic, got '{topic}', which Kafka refuses")
    return topic


def _an_address(url: str) -> str:
    if not re.fullmatch(r"https?://[^\s@?#]+", url):
        raise ValueError(
            "expected http:// or https:// and an address without user, password and parameters: the first two"
            " belong in registry.secrets as basic.auth.user.info"
        )
    return url


def _a_webhook(url: SecretStr) -> SecretStr:
    text = url.get_secret_value()
    try:
        parts = urlsplit(text)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_whole = False
    if not is_whole or "@" in parts.netloc or not re.fullmatch(r"[!-~]+", text):
        raise ValueError(
            "expected http:// or https:// and an address without user and password, which belong in"
            " notify.headers (the value is not shown here)"
        )
    return url


def _headers(headers: dict[str, SecretStr]) -> dict[str, SecretStr]:
    for name, value in headers.items():
        if not re.fullmatch(r"[A-Za-z0-9-]+", name) or not re.fullmatch(r"[ -~]+", value.get_secret_value()):
            raise ValueError(
                f"expected names and values of HTTP headers, in ASCII and on one line; {name!r} is not one"
            )
    return headers


def _words(command: object) -> object:
    if (
        not isinstance(command, list | tuple)
        or not all(isinstance(word, str) and "\0" not in word for word in command)
        or not (command and command[0].strip())
    ):
        raise ValueError(
            "expected a list of texts, the program and its arguments, such as [/opt/tell.sh, nightly];"
            " it is not run in a shell"
        )
    return command


def parse_bytes(text: str) -> int:
    """Return the number of bytes that a text such as `64m` stands for."""
    return int(text[:-1]) << 10 * _BYTE_UNITS.index(text[-1])


def _no_more_than_a_long(text: str) -> str:
    if len(text) > _LONGEST_NUMBER or parse_bytes(text) > _LARGEST:
        raise ValueError(f"expected {_LARGEST} bytes at most, such as '64m', got '{text[:_LONGEST_NUMBER]}'")
    return text


def _as_text(value: object) -> object:
    # YAML reads 1.10 as another number than is written, so only truths are taken as they are.
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        raise ValueError("expected text, got a number; write it in quotes")
    return value


def looks_secret(key: str) -> bool:
    """Return whether the value of an option of others is a secret, by the option's name."""
    return _SECRET.search(key) is not None


def carries_login(header: str) -> bool:
    """Return whether the value of an HTTP header is a secret, by the header's name."""
    return _LOGIN_HEADER.search(header) is not None


def _no_secret(options: dict[str, str]) -> dict[str, str]:
    if hidden := sorted(filter(looks_secret, options)):
        raise ValueError(f"{', '.join(hidden)} would be shown in plans and logs; move it to `secrets`")
    return options


def _a_spark_setting(key: str) -> str:
    if key in _SPARK_SETTINGS_WE_OWN:
        instead = " (speed.state_partitions decides it)" if key == _SHUFFLE_PARTITIONS else ""
        raise ValueError(f"Oncelake sets {key} itself, since the results depend on it; remove it{instead}")
    if key.startswith(_PROPERTY_OF_NEW_TABLES):
        raise ValueError(
            "each new table would get this property: with others than Oncelake's, what streams, runs and"
            " readers of certified days still need may be deleted (commits, files, numbers of micro-batches"
            " and leases), or rows cannot be replaced; remove it, and set a property of a single table with"
            " ALTER TABLE"
        )
    if why := _REFUSED_SPARK_SETTINGS.get(key):
        raise ValueError(why)
    return key


def _no_truth(value: object) -> object:
    # To Python true is 1.
    if isinstance(value, bool):
        raise ValueError(f"expected a number, got {str(value).lower()}")
    return value


def _a_place(root: str) -> str:
    if not root.rstrip("/"):
        raise ValueError("expected a folder for the lake alone, not the root folder")
    if re.match(r"~|[A-Za-z][A-Za-z0-9+.-]*:(?!//)", root):
        raise ValueError(f"expected a path without ~, or a URI such as s3a://bucket/lake, got {root!r}")
    if re.match(r"[^/]*://[^@]*:[^@]*@", root):
        raise ValueError("expected no user and password in a URI: it is shown in plans; use spark.conf")
    if re.match(r"([^/]*://+$|(s3[an]?|gs)://+(/|$)|://)", root) or re.search(r"[*?{}[\]]", root):
        raise ValueError(f"expected a path or a URI with a host, without *, ?, {{, [, got {root!r}")
    # The folder that a relative path begins in may have what the path itself may not.
    whole = root if "://" in root else os.path.abspath(root)  # noqa: PTH100 - as Delta gets it
    if "`" in whole:
        raise ValueError(f"expected a path without a backtick, got {whole!r}; rename the folder")
    return root


Topic = Annotated[
    str,
    like(r"[a-zA-Z0-9._-]{1,249}", "the name of a topic, of 1 to 249 letters, digits, '.', '_' and '-'"),
    AfterValidator(_a_topic),
]
Servers = Annotated[
    str,
    like(
        r"[^\s,@]+:\d{1,9}(,[^\s,@]+:\d{1,9})*",
        "host:port, several separated by commas without spaces, such as kafka-1:9092,kafka-2:9092",
    ),
    AfterValidator(_real_ports),
]
Group = Annotated[
    str,
    like(
        r"([a-zA-Z0-9._-]|\{env\}|\{pipeline\}){1,200}",
        "1 to 200 letters, digits, '.', '_' and '-', with {env} and {pipeline} for the two names",
    ),
]
Url = Annotated[str, AfterValidator(_an_address), Form.URL]
Place = Annotated[
    str,
    like(r"[^`'\"\s]+", "a path, or a URI such as s3a://bucket/lake, without spaces, quotes and backticks"),
    AfterValidator(_a_place),
]
ContractFile = Annotated[
    str,
    like(
        r"[A-Za-z0-9_][A-Za-z0-9_-]*([./][A-Za-z0-9_-]+)*",
        "a file in the folder of contracts, such as flights.odcs.yaml: letters, digits, '_' and '-', with"
        " single '.' and '/' between them",
    ),
]
PipelineName = Annotated[
    str,
    # Names are put together by dots, as ids and groups in Kafka are: without others each is of one pipeline.
    like(
        r"[A-Za-z0-9][A-Za-z0-9_-]*",
        "a name of letters, digits, '_' and '-', a letter or a digit first (rename the file)",
    ),
]
ViewName = Annotated[
    str, like(r"\w+(\.\w+){0,2}", "the name of a view, such as flights, lake.flights or unity.lake.flights")
]
DatabaseName = Annotated[
    str, like(r"\w+(\.\w+)?", "the name of a database, such as lake, or unity.lake in a Spark catalog")
]
RackMode = Literal["off", "client", "placement"]
Variable = Annotated[
    str, like(r"[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable, such as NODE_RACK")
]
Whole = Annotated[int, BeforeValidator(_no_truth)]
Real = Annotated[float, BeforeValidator(_no_truth)]
Count = Annotated[Whole, Field(ge=1, le=2**63 - 1)]
Bytes = Annotated[
    str,
    like(r"[1-9]\d*[bkmgt]", "a whole number above 0 with a unit (b, k, m, g or t), such as 64m"),
    AfterValidator(_no_more_than_a_long),
]
AnyInterval = Annotated[Interval, AfterValidator(_not_too_long)]
PositiveInterval = Annotated[Interval, AfterValidator(_some_time)]
PatientInterval = Annotated[PositiveInterval, AfterValidator(_patient)]
LeaseInterval = Annotated[PositiveInterval, AfterValidator(_some_seconds)]
_Setting = Annotated[str, BeforeValidator(_as_text)]
Options = Annotated[dict[str, _Setting], AfterValidator(_no_secret)]
KafkaOptions = Annotated[Options, AfterValidator(_no_owned_option)]
KafkaSecrets = Annotated[dict[str, SecretStr], AfterValidator(_no_owned_option)]
ProducerOptions = Annotated[Options, AfterValidator(_no_owned_producer_option)]
ProducerSecrets = Annotated[dict[str, SecretStr], AfterValidator(_no_owned_producer_option)]
Webhook = Annotated[SecretStr, AfterValidator(_a_webhook), Form.URL]
Headers = Annotated[dict[str, SecretStr], AfterValidator(_headers), Form.HEADERS]
Command = Annotated[tuple[str, ...], BeforeValidator(_words), Form.PROGRAM]
SparkSettings = dict[Annotated[str, AfterValidator(_a_spark_setting)], _Setting]
