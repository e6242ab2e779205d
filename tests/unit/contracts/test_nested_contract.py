"""Objects, arrays and maps of a contract become columns, or are refused with their place."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.formats.contract_files import load_contract
from tests.support.contract_documents import NESTED, load, refusal


def orders() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(NESTED.read_text())
    return document


def part(document: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(p for p in document["schema"][0]["properties"] if p["name"] == name)
    return found


def test_objects_arrays_and_maps_become_columns() -> None:
    contract = load_contract(NESTED)
    assert contract.schema.simpleString() == (
        "struct<order:struct<id:string,placed_on:date>,placed_at:timestamp,total:decimal(20,2),"
        "items:array<struct<sku:string,count:int>>,tags:map<string,string>,seen:array<timestamp>>"
    )
    assert (contract.key, contract.key_names) == (("order.id",), ["_key_1_id"])
    assert contract.required == ["order", "placed_at"]
    assert [rule.column for rule in contract.row_rules] == ["order.id", "total"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: part(d, "order").pop("required"), "schema.properties.order: holds the dedup key"),
        (lambda d: part(d, "order").pop("properties"), "order.properties: expected at least one property"),
        (
            lambda d: part(d, "order")["properties"].append({"name": "ID", "logicalType": "string"}),
            "found the name twice",
        ),
        (lambda d: part(d, "items").pop("items"), "items: missing"),
        (
            lambda d: part(d, "items")["items"]["properties"][0].update(primaryKey=True),
            "dedup key is a single value",
        ),
        (
            lambda d: part(d, "items")["items"]["properties"][0].update(enum=[{"value": "x"}]),
            "rules on elements of",
        ),
        (lambda d: part(d, "tags").pop("map"), "map: expected a key that is a string"),
        (lambda d: part(d, "tags")["map"]["key"].update(logicalType="integer"), "map: expected a key"),
        (
            lambda d: part(d, "tags")["map"]["value"].update(logicalType="money"),
            "tags.map.value: logicalType",
        ),
        (lambda d: part(d, "order").update(primaryKey=True), "dedup key is a single value"),
        (
            lambda d: part(d, "order").update(logicalType="string"),
            "properties: allowed only with logicalType object",
        ),
        (
            lambda d: part(d, "items").update(properties=[{"name": "k", "logicalType": "string"}]),
            "items: properties: allowed only with logicalType object, got 'array'",
        ),
        (
            lambda d: part(d, "tags")["map"]["key"].update(enum=[{"value": "x"}]),
            "tags{key}: rules on elements",
        ),
        (
            lambda d: part(d, "tags")["map"]["key"].update(requierd=True),
            "tags.map.key.requierd: the standard does not have this key",
        ),
    ],
)
def test_a_nested_part_that_cannot_be_kept_is_refused(tmp_path: Path, change: Any, said: str) -> None:
    document = orders()
    change(document)
    assert said in refusal(tmp_path, document)


def test_parts_of_the_key_never_share_a_name(tmp_path: Path) -> None:
    document = orders()
    for name, inner in (("a", "b_c"), ("a_b", "c")):
        item = {"name": inner, "logicalType": "string", "primaryKey": True}
        document["schema"][0]["properties"].append(
            {"name": name, "logicalType": "object", "required": True, "properties": [item]}
        )
    contract = load(tmp_path, document)
    assert len(set(contract.key_names)) == len(contract.key) == 3


def test_what_lies_in_collections_within_collections_is_seen(tmp_path: Path) -> None:
    document = orders()
    hidden = [{"property": "personal", "value": "drop"}]
    secret: dict[str, Any] = {"name": "ssn", "logicalType": "string", "customProperties": hidden}
    people = {"logicalType": "array", "items": {"logicalType": "object", "properties": [secret]}}
    document["schema"][0]["properties"].append(
        {"name": "m", "logicalType": "map", "map": {"key": {"logicalType": "string"}, "value": people}}
    )
    assert load(tmp_path, document).treatment("m") == "drop"
    secret["logicalTypeOptions"] = {"minLength": 9}
    assert "m{}[].ssn: rules on elements of an array or a map" in refusal(tmp_path, document)


def test_what_holds_personal_data_is_as_personal(tmp_path: Path) -> None:
    document = orders()
    part(document, "order")["properties"][0]["customProperties"] = [{"property": "personal", "value": "hash"}]
    part(document, "items")["customProperties"] = [{"property": "personal", "value": "drop"}]
    contract = load(tmp_path, document)
    assert contract.treatment("order.id") == "hash"
    assert contract.treatment("order") == "drop", "its text would show the id"
    assert contract.treatment("items[].sku") == "drop"
    assert contract.treatment("order.placed_on") is None


def test_a_map_with_personal_keys_is_not_shown(tmp_path: Path) -> None:
    document = orders()
    part(document, "tags")["map"]["key"]["customProperties"] = [{"property": "personal", "value": "hash"}]
    contract = load(tmp_path, document)
    assert contract.personal
    assert contract.treatment("tags") == "drop", "its text would show the keys"
    assert contract.treatment("tags{}") is None


@pytest.mark.parametrize("name", ["tags", "items"])
def test_duplicates_of_what_holds_a_map_are_no_rule(tmp_path: Path, name: str) -> None:
    """Spark compares no maps, so each night would fail."""
    document = orders()
    rule = {"type": "library", "metric": "duplicateValues", "mustBeLessOrEqualTo": 0}
    part(document, "seen")["quality"] = [rule]
    part(document, "tags")["quality"] = [
        {"type": "library", "metric": "nullValues", "unit": "percent", "mustBeLessOrEqualTo": 5}
    ]
    assert len(load(tmp_path, document).day_rules) == 3
    text = {"logicalType": "string"}
    of_item = {"name": "more", "logicalType": "map", "map": {"key": text, "value": text}}
    part(document, "items")["items"]["properties"].append(of_item)
    part(document, name)["quality"] = [rule]
    assert (f"schema.properties.{name}.quality: duplicateValues: supported only where no map is") in refusal(
        tmp_path, document
    )
