"""`kafka.rack` in a configuration, and what the source is given for it."""

import pytest

from pipelines.config.kafka import KafkaConfig
from pipelines.config.loader import load_config
from pipelines.errors import ConfigError
from pipelines.kafka.source import client_options, source_format, source_options


def kafka(*settings: str) -> KafkaConfig:
    return load_config("flights", environ={}, settings=settings).kafka


def racks(config: KafkaConfig) -> dict[str, str]:
    options = source_options(config)
    return {name: value for name, value in options.items() if "rack" in name or "providers" in name}


def test_without_a_word_of_racks_the_source_is_spark_s_own() -> None:
    assert kafka("kafka.rack.mode=off") == kafka()
    assert source_format(kafka()) == "any-timestamp-kafka"
    assert racks(kafka()) == {}


@pytest.mark.parametrize(
    ("mode", "source"), [("client", "any-timestamp-kafka"), ("placement", "rack-aware-kafka")]
)
def test_each_executor_takes_its_rack_from_its_own_environment(mode: str, source: str) -> None:
    config = kafka(f"kafka.rack.mode={mode}", "kafka.rack.variable=ZONE")
    assert source_format(config) == source
    assert racks(config) == {
        "kafka.config.providers": "oncelakerack",
        "kafka.config.providers.oncelakerack.class": "oncelake.rack.RackProvider",
        "kafka.client.rack": "${oncelakerack:ZONE}",
    }
    # The driver asks questions only; it has no rack to tell.
    assert not [name for name in client_options(config) if "rack" in name]


def test_providers_of_the_user_s_own_stay() -> None:
    own = ("kafka.options.config.providers=env", "kafka.options.config.providers.env.class=x.Y")
    config = kafka("kafka.rack.mode=client", *own)
    found = racks(config)
    assert found["kafka.config.providers"] == "env,oncelakerack"
    assert found["kafka.config.providers.env.class"] == "x.Y"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["kafka.rack.mode=zone"], "expected 'off', 'client' or 'placement', got 'zone'"),
        (["kafka.rack.variable=NODE-RACK"], "kafka.rack.variable"),
        (
            ["kafka.rack.mode=client", "kafka.options.client.rack=a"],
            "kafka.options has client.rack, which would be the same on all executors",
        ),
    ],
)
def test_contradictory_kafka_settings_are_refused(settings: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        kafka(*settings)
    assert said in str(refused.value)
