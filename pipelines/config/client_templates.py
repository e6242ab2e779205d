"""Named settings of Kafka clients, each with its reason: one template for each way in which a pipeline runs.

A template is a start: `kafka.options` and `publish.options` override it, setting by setting. No template sets
what Oncelake sets itself, and none takes a risk of `pipelines.config.risks`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

TemplateName = Literal["realtime", "backfill", "nightly"]


@dataclass(frozen=True)
class ClientSetting:
    """A setting of a template.

    Attributes:
        name: Its name, as the client has it.
        value: Its value.
        reason: Why it is set.
    """

    name: str
    value: str
    reason: str


Template = tuple[ClientSetting, ...]

PURPOSES: Final[Mapping[TemplateName, str]] = {
    "realtime": "streams that run all the time",
    "backfill": "a topic or a lake that is read from its beginning",
    "nightly": "scheduled runs with `--once`",
}
"""What each template is for."""

_BUFFER: Final = ClientSetting(
    "receive.buffer.bytes",
    "-1",
    "Spark sets 64 KiB, which limits what a distant broker can send; -1 leaves the size to the operating"
    " system.",
)
_SLOW_DISKS: Final = ClientSetting(
    "request.timeout.ms",
    "60000",
    "Old records are read from the disks of brokers; an answer that takes long is no failure.",
)
_ZSTD: Final = ClientSetting(
    "compression.type", "zstd", "Fewer bytes than with lz4, for more work; nobody waits for a single row."
)

SOURCE_TEMPLATES: Final[Mapping[TemplateName, Template]] = {
    "realtime": (
        ClientSetting("fetch.min.bytes", "1", "A broker answers with the first record."),
        _BUFFER,
    ),
    "backfill": (
        ClientSetting("fetch.min.bytes", "1048576", "A backlog takes fewer requests of a MiB or more."),
        ClientSetting(
            "fetch.max.wait.ms", "500", "How long a broker waits for that much at the end of a partition."
        ),
        ClientSetting(
            "max.partition.fetch.bytes",
            "8388608",
            "A task reads one partition, so this limit decides how much a request brings.",
        ),
        ClientSetting("max.poll.records", "5000", "Spark takes the records of a task poll by poll."),
        _BUFFER,
        _SLOW_DISKS,
    ),
    "nightly": (
        ClientSetting(
            "max.partition.fetch.bytes", "4194304", "There is a day's backlog: fewer, larger requests."
        ),
        ClientSetting(
            "default.api.timeout.ms",
            "180000",
            "A run that starts while a broker restarts waits for it, and need not be started again.",
        ),
        ClientSetting(
            "reconnect.backoff.max.ms",
            "10000",
            "Runs of many pipelines start at once; a broker that comes back is not flooded.",
        ),
        _BUFFER,
        _SLOW_DISKS,
    ),
}
"""Settings of the Kafka client (Java) by which the topic is read."""

SINK_TEMPLATES: Final[Mapping[TemplateName, Template]] = {
    "realtime": (
        ClientSetting("linger.ms", "5", "A row waits 5 ms at most for others; without a template, 20 ms."),
        ClientSetting("compression.type", "lz4", "Takes little time for each batch."),
        ClientSetting("socket.nagle.disable", "true", "Small requests are sent at once."),
    ),
    "backfill": (
        ClientSetting("linger.ms", "200", "Batches are filled before they are sent: fewer requests."),
        ClientSetting("batch.num.messages", "100000", "Bytes limit a batch, not the number of its rows."),
        _ZSTD,
    ),
    "nightly": (
        ClientSetting("linger.ms", "100", "Batches are fuller: fewer requests."),
        _ZSTD,
    ),
}
"""Settings of librdkafka, by which `publish_stream` and `oncelake publish` write."""


def settings(templates: Mapping[TemplateName, Template], name: TemplateName | None) -> dict[str, str]:
    """Return the settings of a template by their names; none without a template."""
    return {each.name: each.value for each in templates[name]} if name else {}
