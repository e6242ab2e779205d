"""A contract is compared with what producers have registered in a real registry."""

import copy
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient

from pipelines.cli.contract import contract as command
from pipelines.errors import ConfigError, ContractError, InfrastructureError

ORDERS = yaml.safe_load(Path("tests/support/contracts/orders.odcs.yaml").read_text())
TOPIC_CONFIG = "contract: orders.odcs.yaml\nkafka:\n  topic: {topic}\nspeed:\n  watermark_delay: 6 hours\n"
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}
Check = Callable[..., Result]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> Check:
    """Checks the contract of orders against a topic's schema: `check("topic", "avro")`."""
    monkeypatch.chdir(tmp_path)

    def run(topic: str, value_format: str, *words: str, edit: dict[str, Any] | None = None) -> Result:
        document = copy.deepcopy(ORDERS)
        whole = document["schema"][0]
        whole["customProperties"].append({"property": "valueFormat", "value": value_format})
        whole["properties"] += [edit] if edit else []
        write("data_contracts/orders.odcs.yaml", yaml.safe_dump(document))
        write("conf/base/pipelines/orders.yml", TOPIC_CONFIG.format(topic=topic))
        write(
            "conf/local/oncelake.yml",
            f"lake:\n  root: lake\nkafka:\n  bootstrap_servers: localhost:9\nregistry:\n  url: {url}\n",
        )
        arguments = ["check", "--against", "registry", "--pipeline", "orders", *words]
        return CliRunner().invoke(command, arguments)

    return run


def write(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)


def order(**changed: Any) -> dict[str, Any]:
    fields = {
        "order": record("Order", id="string", placed_on=["null", {"type": "int", "logicalType": "date"}]),
        "placed_at": {"type": "long", "logicalType": "timestamp-micros"},
        "total": ["null", MONEY],
        "items": {"type": "array", "items": record("Item", sku="string", count="int")},
        "tags": {"type": "map", "values": "string"},
        "seen": {"type": "array", "items": {"type": "long", "logicalType": "timestamp-millis"}},
    }
    return record("Placed", **{**fields, **changed})


def record(name: str, **fields: Any) -> dict[str, Any]:
    listed = [{"name": field, "type": kind} for field, kind in fields.items()]
    return {"type": "record", "name": name, "namespace": "shop", "fields": listed}


def register(registry: SchemaRegistryClient, topic: str, schema: Any, kind: str = "AVRO") -> None:
    registry.register_schema(f"{topic}-value", Schema(json.dumps(schema), kind))


def test_what_producers_send_keeps_the_contract(check: Check, registry: SchemaRegistryClient) -> None:
    register(registry, "kept", order(channel="string"))

    done = check("kept", "avro", "data_contracts/orders.odcs.yaml")

    assert done.exit_code == 0, done.exception
    assert done.output == (
        "data_contracts/orders.odcs.yaml: compatible: schema.properties.channel:"
        " ignored: producers send it, and the contract does not name it\n"
    )


def test_a_contract_that_producers_of_today_break_is_refused(
    check: Check, registry: SchemaRegistryClient
) -> None:
    register(registry, "broken", order())
    item = record("Item", sku=["null", "string"], count="long")
    register(registry, "broken", order(items={"type": "array", "items": item}))
    new = {"name": "customer", "logicalType": "string", "required": True}

    refused = check("broken", "avro", "--format", "json", edit=new)

    assert isinstance(refused.exception, ContractError)
    assert refused.exception.exit_code == 2
    assert "expected no breaking change against registry" in str(refused.exception)
    said = json.loads(refused.output)
    assert said["breaking"] == 3
    assert {change["place"]: change["breaks"] for change in said["changes"]} == {
        "schema.properties.items[].sku": ["producers"],
        "schema.properties.items[].count": ["producers"],
        "schema.properties.customer": ["producers"],
    }


def test_a_schema_is_compared_with_what_it_refers_to(check: Check, registry: SchemaRegistryClient) -> None:
    registry.register_schema("item", Schema(json.dumps(record("Item", sku="int", count="string")), "AVRO"))
    schema = json.dumps(order(items={"type": "array", "items": "shop.Item"}))
    reference = SchemaReference("shop.Item", "item", 1)
    registry.register_schema("refers-to-item-value", Schema(schema, "AVRO", [reference]))

    refused = check("refers-to-item", "avro")

    assert isinstance(refused.exception, ContractError)
    assert "items[].count: producers send string, the contract asks for int" in str(refused.exception)


def test_a_json_schema_is_compared(check: Check, registry: SchemaRegistryClient) -> None:
    text = {"type": "string"}
    of_order = {"type": "object", "properties": {"id": text}, "required": ["id"]}
    properties = {"order": {"$ref": "#/definitions/order"}, "placed_at": {**text, "format": "date-time"}}
    document = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": properties,
        "required": ["order", "placed_at"],
        "definitions": {"order": of_order},
    }
    register(registry, "as-json", document, "JSON")

    done = check("as-json", "json_schema")
    assert done.exit_code == 0, done.exception
    assert "compatible: schema.properties.order.placed_on: producers do not send it" in done.output

    refused = check("as-json", "avro")
    assert isinstance(refused.exception, ContractError)
    assert "reads by schemas of the kind AVRO, producers write JSON" in str(refused.exception)


def test_a_subject_that_nobody_registered_is_named(check: Check) -> None:
    refused = check("never-written", "avro")
    assert isinstance(refused.exception, ConfigError)
    assert refused.exception.exit_code == 2
    assert "has no subject never-written-value" in str(refused.exception)


def test_a_registry_that_does_not_answer_is_no_verdict(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    # The registry's client waits between its tries.
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    failed = check("kept", "avro", "--set", "registry.url=http://127.0.0.1:9")
    assert isinstance(failed.exception, InfrastructureError)
    assert failed.exception.exit_code == 1
    assert "does not answer" in str(failed.exception)
