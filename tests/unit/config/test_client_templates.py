"""Templates of clients: settings that the clients take, with reasons, and that people override."""

from collections.abc import Mapping
from typing import get_args

import pytest
from confluent_kafka import Producer

from pipelines.config.client_templates import (
    PURPOSES,
    SINK_TEMPLATES,
    SOURCE_TEMPLATES,
    Template,
    TemplateName,
    settings,
)
from pipelines.config.loader import load_config
from pipelines.config.taken_risks import taken
from pipelines.kafka.source import client_options, source_options
from pipelines.publishing.settings import sink_of

NAMES: tuple[TemplateName, ...] = get_args(TemplateName)


@pytest.mark.parametrize("templates", [SOURCE_TEMPLATES, SINK_TEMPLATES], ids=["source", "sink"])
def test_there_is_one_for_each_way_and_each_setting_has_one_value_and_a_reason(
    templates: Mapping[TemplateName, Template],
) -> None:
    assert tuple(templates) == tuple(PURPOSES) == NAMES
    for name, template in templates.items():
        assert len(settings(templates, name)) == len(template), name
        assert all(each.reason.endswith(".") for each in template)


@pytest.mark.parametrize("name", NAMES)
def test_a_template_would_be_accepted_as_options_and_takes_no_risk(name: TemplateName) -> None:
    given = [f"kafka.options.{each.name}={each.value}" for each in SOURCE_TEMPLATES[name]]
    given += ["publish.topic=out", "quarantine.dead_letter_topic=broken"]
    given += [f"publish.options.{each.name}={each.value}" for each in SINK_TEMPLATES[name]]
    assert not list(taken(load_config("flights", environ={}, settings=given)))


@pytest.mark.parametrize("name", NAMES)
def test_librdkafka_takes_the_template_of_a_sink(name: TemplateName) -> None:
    # It refuses names and values that it does not know; no broker is asked.
    assert Producer({**settings(SINK_TEMPLATES, name), "transactional.id": "x", "log_level": 0}) is not None


def test_options_override_a_template_and_only_the_source_gets_it() -> None:
    given = ["kafka.template=backfill", "kafka.options.max.poll.records='7'"]
    kafka = load_config("flights", environ={}, settings=given).kafka
    options = source_options(kafka)
    assert (options["kafka.max.poll.records"], options["kafka.fetch.min.bytes"]) == ("7", "1048576")
    assert options["kafka.fetch.max.wait.ms"] == "500"
    # Admin clients, and the producer of dead letters, are others.
    assert "fetch.min.bytes" not in client_options(kafka)


def test_a_sink_has_its_template_below_its_options() -> None:
    given = ["publish.topic=out", "publish.template=nightly", "publish.options.linger.ms='1'"]
    client = sink_of(load_config("flights", environ={}, settings=given)).client
    assert (client["linger.ms"], client["compression.type"]) == ("1", "zstd")


def test_without_a_template_a_broker_does_not_hold_fetches_and_nothing_else_is_set() -> None:
    config = load_config("flights", environ={}, settings=["publish.topic=out"])
    assert source_options(config.kafka).keys() == {
        *("subscribe", "startingOffsets", "failOnDataLoss", "includeHeaders"),
        *("kafka.bootstrap.servers", "kafka.isolation.level", "kafka.fetch.max.wait.ms"),
    }
    assert source_options(config.kafka)["kafka.fetch.max.wait.ms"] == "10"
    assert sink_of(config).client.keys() == {"bootstrap.servers"}


@pytest.mark.parametrize(
    ("option", "wait"),
    [("fetch.min.bytes", None), ("fetch.max.wait.ms", "9"), ("receive.buffer.bytes", "10")],
)
def test_who_asks_for_larger_fetches_or_another_wait_gets_them(option: str, wait: str | None) -> None:
    config = load_config("flights", environ={}, settings=[f"kafka.options.{option}='9'"])
    assert source_options(config.kafka).get("kafka.fetch.max.wait.ms") == wait
