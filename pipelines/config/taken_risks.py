"""The risks that a configuration takes by itself, whatever cluster and data are like."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from pydantic import SecretStr

from pipelines.config.model import PipelineConfig
from pipelines.config.plain_logins import plain_logins
from pipelines.config.risks import RiskName, TakenRisk, refusal
from pipelines.durations import format_interval
from pipelines.errors import ConfigError


def require_safe_dead_letters(config: PipelineConfig) -> None:
    """Make sure that what sends dead letters loses none, unless that risk is accepted.

    Raises:
        ConfigError: It could lose or double some.
    """
    refused = [
        f"{risk.setting}: {refusal(risk.name, risk.found, risk.expected)}"
        for risk in taken(config)
        if risk.name in OF_DEAD_LETTERS and risk.name not in config.accept_risks
    ]
    if refused:
        raise ConfigError("\n".join(refused))


OF_DEAD_LETTERS: Final[frozenset[RiskName]] = frozenset({"acks_not_all", "idempotence_off"})
"""Risks of the client that sends to the dead-letter topic; nothing else sends by its settings."""


def taken(config: PipelineConfig) -> Iterator[TakenRisk]:
    """Yield the risks that a configuration takes by itself, accepted or not."""
    for kafka in (source.kafka for source in config.sources()):
        section = ("kafka",) if kafka.cluster is None else ("kafka", "clusters", kafka.cluster)
        reads = _Client(section, kafka.options, kafka.secrets)
        if config.quarantine.dead_letter_topic and kafka.cluster is None:
            yield from _of_dead_letters(reads)
        yield from _of_group(reads, "ingest.trigger_interval", config.ingest.trigger_interval)
    if publish := config.publish:
        writes = _Client(("publish",), publish.options, publish.secrets)
        yield from _of_group(writes, "publish.trigger_interval", publish.trigger_interval)
    yield from plain_logins(config)


@dataclass(frozen=True)
class _Client:
    """What people set of a client."""

    section: tuple[str, ...]
    options: Mapping[str, str]
    secrets: Mapping[str, SecretStr]

    def value(self, name: str) -> str | None:
        """Return the value of a setting; None if nobody sets it."""
        secret = self.secrets.get(name)
        return self.options.get(name) if secret is None else secret.get_secret_value()

    def milliseconds(self, name: str) -> int | None:
        """Return a value as a number; None if nobody sets it, or to none, which the client itself refuses."""
        try:
            return int(self.value(name) or "")
        except ValueError:
            return None

    def risk(self, risk: RiskName, name: str, expected: str) -> TakenRisk:
        """Return the risk that a setting takes."""
        part = "secrets" if name in self.secrets else "options"
        found = "a value that is not shown" if part == "secrets" else f"'{self.value(name)}'"
        return TakenRisk(risk, (*self.section, part, name), found, expected)


def _of_dead_letters(client: _Client) -> Iterator[TakenRisk]:
    if (client.value("acks") or "all").strip().lower() not in ("all", "-1"):
        yield client.risk("acks_not_all", "acks", "'all'")
    if (client.value("enable.idempotence") or "true").strip().lower() != "true":
        yield client.risk("idempotence_off", "enable.idempotence", "'true'")


# As Kafka's own clients have them if nobody sets them; librdkafka has the same.
_SESSION_MS: Final = 45_000
_HEARTBEAT_MS: Final = 3_000
_HEARTBEATS: Final = 3


def _of_group(client: _Client, setting: str, trigger: timedelta) -> Iterator[TakenRisk]:
    session, heartbeat = (
        client.milliseconds(name) for name in ("session.timeout.ms", "heartbeat.interval.ms")
    )
    least = _HEARTBEATS * (_HEARTBEAT_MS if heartbeat is None else heartbeat)
    if (_SESSION_MS if session is None else session) < least:
        if session is None:
            name, expected = "heartbeat.interval.ms", f"{_SESSION_MS // _HEARTBEATS} at most"
        else:
            name, expected = "session.timeout.ms", f"{least} at least, three times heartbeat.interval.ms"
        yield client.risk("session_under_three_heartbeats", name, expected)
    poll = client.milliseconds("max.poll.interval.ms")
    if poll is not None and poll < trigger / timedelta(milliseconds=1):
        expected = f"{setting} ({format_interval(trigger)}) at least"
        yield client.risk("poll_interval_too_short", "max.poll.interval.ms", expected)
