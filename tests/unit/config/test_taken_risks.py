"""Settings that lose data or cause storms are found, and refused by the job that would do the harm."""

from typing import get_args

import pytest

from pipelines.config.loader import load_config
from pipelines.config.risks import RISKS, RiskName
from pipelines.config.taken_risks import require_safe_dead_letters, taken
from pipelines.errors import ConfigError

COPIES = "quarantine.dead_letter_topic=broken"
PUBLISHES = "publish.topic=out"

# What takes a risk, and what of it does not.
LOSES_DEAD_LETTERS: list[tuple[RiskName, tuple[str, ...], str]] = [
    ("acks_not_all", (COPIES, "kafka.options.acks=1"), "kafka.options.acks: found '1', expected 'all'"),
    (
        "idempotence_off",
        (COPIES, "kafka.options.enable.idempotence=False"),
        "kafka.options.enable.idempotence: found 'False', expected 'true'",
    ),
]
HARMS_NO_JOB_OF_TODAY: list[tuple[RiskName, tuple[str, ...], str]] = [
    (
        "session_under_three_heartbeats",
        ("kafka.options.session.timeout.ms=8999",),
        "kafka.options.session.timeout.ms: found '8999', expected 9000 at least",
    ),
    (
        "session_under_three_heartbeats",
        ("kafka.options.heartbeat.interval.ms=15001",),
        "kafka.options.heartbeat.interval.ms: found '15001', expected 15000 at most",
    ),
    (
        "session_under_three_heartbeats",
        (PUBLISHES, "publish.options.session.timeout.ms=6000"),
        "publish.options.session.timeout.ms: found '6000'",
    ),
    (
        "poll_interval_too_short",
        ("kafka.options.max.poll.interval.ms=59999", "ingest.trigger_interval=1 minute"),
        "kafka.options.max.poll.interval.ms: found '59999', expected ingest.trigger_interval (1 minute)",
    ),
    (
        "poll_interval_too_short",
        (PUBLISHES, "publish.options.max.poll.interval.ms=9999"),
        "expected publish.trigger_interval (10 seconds) at least",
    ),
    (
        "session_under_three_heartbeats",
        ("kafka.options.session.timeout.ms='+6000'",),
        "kafka.options.session.timeout.ms: found '+6000'",
    ),
    (
        "session_under_three_heartbeats",
        ("kafka.options.heartbeat.interval.ms=' 20000'",),
        "kafka.options.heartbeat.interval.ms: found ' 20000'",
    ),
]
SAFE = [
    # Nobody sends by these.
    ("kafka.options.acks=1", "kafka.options.enable.idempotence=false"),
    (COPIES, "kafka.options.acks=-1", "kafka.options.enable.idempotence=true"),
    (COPIES, "kafka.options.acks=ALL"),
    (COPIES, "kafka.options.acks=' all'", "kafka.options.enable.idempotence=' True'"),
    ("kafka.options.max.poll.interval.ms='99999999999999999999'",),
    ("kafka.options.session.timeout.ms=9000",),
    ("kafka.options.session.timeout.ms=6000", "kafka.options.heartbeat.interval.ms=2000"),
    ("kafka.options.heartbeat.interval.ms=15000",),
    ("kafka.options.max.poll.interval.ms=60000", "ingest.trigger_interval=1 minute"),
    # The client refuses these itself.
    ("kafka.options.session.timeout.ms=soon", "kafka.options.max.poll.interval.ms="),
    # It depends on the lake whether that skips anything.
    ("kafka.starting_offsets=latest",),
]


@pytest.mark.parametrize(("risk", "settings", "said"), LOSES_DEAD_LETTERS)
def test_what_loses_dead_letters_is_refused_with_its_setting_and_its_name_and_accepted_by_that(
    risk: RiskName, settings: tuple[str, ...], said: str
) -> None:
    config = load_config("flights", environ={}, settings=settings)
    with pytest.raises(ConfigError) as refused:
        require_safe_dead_letters(config)
    message = str(refused.value)
    assert said in message
    assert RISKS[risk].harm in message
    assert message.endswith(f"add {risk} to accept_risks")
    accepting = load_config("flights", environ={}, settings=(*settings, f"accept_risks=[{risk}]"))
    require_safe_dead_letters(accepting)
    assert [each.name for each in taken(accepting)] == [risk]


@pytest.mark.parametrize(("risk", "settings", "said"), HARMS_NO_JOB_OF_TODAY)
def test_what_harms_no_job_is_known_and_stops_none(
    risk: RiskName, settings: tuple[str, ...], said: str
) -> None:
    config = load_config("flights", environ={}, settings=settings)
    require_safe_dead_letters(config)
    (found,) = taken(config)
    assert found.name == risk
    assert said in f"{found.setting}: found {found.found}, expected {found.expected}"


@pytest.mark.parametrize("settings", SAFE)
def test_safe_client_settings_take_no_risk(settings: tuple[str, ...]) -> None:
    assert not list(taken(load_config("flights", environ={}, settings=settings)))


def test_to_accept_one_risk_accepts_no_other() -> None:
    settings = (COPIES, "kafka.options.acks=0", "accept_risks=[idempotence_off]")
    with pytest.raises(ConfigError, match="add acks_not_all to accept_risks"):
        require_safe_dead_letters(load_config("flights", environ={}, settings=settings))
    with pytest.raises(ConfigError, match="expected 'starting_offsets_latest'"):
        load_config("flights", environ={}, settings=["accept_risks=[everything]"])


def test_a_value_among_the_secrets_is_refused_unseen() -> None:
    config = load_config("flights", environ={}, settings=[COPIES, "kafka.secrets.acks=hush"])
    with pytest.raises(ConfigError, match=r"\.acks: found a value that is not shown") as refused:
        require_safe_dead_letters(config)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("kafka.options.failOnDataLoss=false", "skipped without a word"),
        ("kafka.options.failondataloss=false", "skipped without a word"),
        ("kafka.options.startingOffsets=latest", "kafka.starting_offsets"),
        ("kafka.options.enable.auto.commit=true", "a wrong value loses data"),
        ("publish.options.acks=1", "a wrong value duplicates or loses records"),
        ("publish.options.enable.idempotence=false", "a wrong value duplicates or loses records"),
    ],
)
def test_what_no_name_accepts_is_refused_with_the_reason(setting: str, said: str) -> None:
    every = f"accept_risks=[{', '.join(get_args(RiskName))}]"
    with pytest.raises(ConfigError, match=said):
        load_config("flights", environ={}, settings=[PUBLISHES, every, setting])


def test_every_risk_has_a_meaning() -> None:
    assert tuple(RISKS) == get_args(RiskName)
