"""Settings that lose data, give a login away or load a cluster for nothing, unless accepted by their names.

Only the job that would do the harm refuses it; what would harm none of today's jobs, or depends on the
cluster or on the data, is found by `oncelake doctor`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

RiskName = Literal[
    "starting_offsets_latest",
    "acks_not_all",
    "idempotence_off",
    "session_under_three_heartbeats",
    "poll_interval_too_short",
    "slots_over_partitions",
    "retention_under_run_interval",
    "watermark_under_lateness",
    "login_in_plain_text",
]


@dataclass(frozen=True)
class TakenRisk:
    """A risk that a configuration takes.

    Attributes:
        name: Which.
        location: The setting that takes it, as keys from the outermost on.
        found: Its value.
        expected: What would be safe.
        fix: What helps; None if that is to remove the setting.
    """

    name: RiskName
    location: tuple[str, ...]
    found: str
    expected: str
    fix: str | None = None

    @property
    def setting(self) -> str:
        """The setting, as the configuration has it."""
        return ".".join(self.location)


@dataclass(frozen=True)
class Risk:
    """A risk that a configuration can take.

    Attributes:
        setting: What takes it.
        harm: What it does.
        seen: Where it is refused or found.
    """

    setting: str
    harm: str
    seen: str


_SENT: Final = "`speed_stream` and `oncelake plan` refuse it; no other job sends by these settings"
_GROUP: Final = "`oncelake doctor`; no client of Oncelake joins a group today"

RISKS: Final[Mapping[RiskName, Risk]] = {
    "starting_offsets_latest": Risk(
        "`kafka.starting_offsets: latest`",
        "records that are in the topic before the first start are never read",
        "the first start of `ingest_stream` refuses it; a stream that has begun starts",
    ),
    "acks_not_all": Risk(
        "`acks` in `kafka.options`, other than `all`, with a dead-letter topic",
        "a broker that fails loses copies of broken records that count as sent",
        _SENT,
    ),
    "idempotence_off": Risk(
        "`enable.idempotence: false` in `kafka.options`, with a dead-letter topic",
        "a request that is sent again duplicates or reorders copies of broken records",
        _SENT,
    ),
    "session_under_three_heartbeats": Risk(
        "`session.timeout.ms` under three times `heartbeat.interval.ms`",
        "a heartbeat that is late expels a client from its group, and the group is rebalanced again and"
        " again",
        _GROUP,
    ),
    "poll_interval_too_short": Risk(
        "`max.poll.interval.ms` shorter than a micro-batch",
        "a client that is at work counts as dead, and its work is done again",
        _GROUP,
    ),
    "slots_over_partitions": Risk(
        "`publish.slots` above the number of partitions of `publish.topic`",
        "slots without a partition begin transactions that hold nothing",
        "the first start of `publish_stream` refuses it; later `oncelake doctor` warns",
    ),
    "retention_under_run_interval": Risk(
        "`retention.ms` of the topic under the time between two runs of ingest",
        "Kafka deletes records before they are read",
        "`oncelake doctor`; ingest still starts, because it would lose more records otherwise",
    ),
    "watermark_under_lateness": Risk(
        "`speed.watermark_delay` under the lateness of the data",
        "late records are missing from the speed layer until the nightly run",
        "`oncelake doctor`",
    ),
    "login_in_plain_text": Risk(
        "`http://` in `registry.url`, `notify.webhook`, an S3 endpoint, an endpoint of tokens, or the"
        " variables of OpenTelemetry and OpenLineage that name one, on another machine, with a login;"
        " `SASL_PLAINTEXT` with `PLAIN` or `OAUTHBEARER` to brokers on another",
        "whoever listens on the network gets the login, or requests that it has signed, and the data",
        "`oncelake doctor` and `oncelake plan` warn of it",
    ),
}
"""All risks, in the order of the documentation."""


def refusal(name: RiskName, found: str, expected: str) -> str:
    """Return why a setting is refused, and what to do about it.

    Args:
        name: The risk that it takes.
        found: Its value.
        expected: What would be safe.
    """
    return (
        f"found {found}, expected {expected}: otherwise {RISKS[name].harm}. Change it; or, if you take this"
        f" risk, add {name} to accept_risks"
    )
