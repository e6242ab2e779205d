"""A contract is read from the open standard, and refused with every reason at once."""

import json
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from pipelines.contracts.rules import Condition, DayRule, RowRule
from pipelines.errors import ContractError
from pipelines.formats.contract_files import load_contract
from tests.support.contract_documents import CONTRACTS, NESTED, load, refusal, sound


def test_the_flights_contract_says_what_the_pipeline_needs() -> None:
    contract = load_contract(CONTRACTS / "flights.odcs.yaml")
    assert contract.key == ("carrier", "flight", "origin", "scheduled_departure")
    assert contract.event_time == "scheduled_departure"
    assert contract.day_time_zone == "America/New_York"
    assert contract.schema.simpleString() == (
        "struct<carrier:string,flight:bigint,origin:string,scheduled_departure:timestamp,dest:string,"
        "tailnum:string,departure_delay:double,arrival_delay:double,air_time:double,distance:double>"
    )
    assert contract.required == ["carrier", "flight", "origin", "scheduled_departure", "dest", "distance"]
    assert RowRule("origin", "values", ("EWR", "JFK", "LGA")) in contract.row_rules
    assert DayRule("rowCount", None, 500, 1500) in contract.day_rules


@pytest.mark.parametrize("path", [*sorted(CONTRACTS.glob("*.yaml")), NESTED], ids=lambda p: p.name)
def test_the_project_s_contracts_are_valid_by_the_standard_s_own_schema(path: Path) -> None:
    schema = json.loads(files("open_data_contract_standard").joinpath("schema.json").read_text())
    jsonschema.validate(yaml.safe_load(path.read_text()), schema)


def test_a_contract_without_a_key_is_refused(tmp_path: Path) -> None:
    document = sound()
    for item in document["schema"][0]["properties"]:
        item.pop("primaryKey", None)
    assert "no dedup key: expected `primaryKey: true`" in refusal(tmp_path, document)


def test_the_key_stands_in_the_order_of_its_positions(tmp_path: Path) -> None:
    document = sound()
    keys = [item for item in document["schema"][0]["properties"] if item.get("primaryKey")]
    for position, item in enumerate(reversed(keys), 1):
        item["primaryKeyPosition"] = position
    assert load(tmp_path, document).key == ("scheduled_departure", "origin", "flight", "carrier")


def test_every_reason_is_given_with_its_place(tmp_path: Path) -> None:
    document = sound()
    properties = document["schema"][0]["properties"]
    properties[0]["name"] = "_carrier"
    properties[1]["logicalType"] = "whole"
    del properties[1]["logicalTypeOptions"]
    document["schema"][0]["customProperties"] = [{"property": "dayTimeZone", "value": "Mars/Olympus"}]
    message = refusal(tmp_path, document)
    for part in ("reserved for the columns", "got 'whole'", "eventTime: expected", "got 'Mars/Olympus'"):
        assert part in message
    assert len(message.splitlines()) == 4


@pytest.mark.parametrize("name", ["carrier.code", "carrier[]", "carrier{}", "carrier{key}", ".", "`"])
def test_a_key_whose_name_looks_like_a_path_is_refused(tmp_path: Path, name: str) -> None:
    document = sound()
    document["schema"][0]["properties"][0]["name"] = name
    assert f"name: expected letters, digits and _, a letter first, got {name!r}" in refusal(
        tmp_path, document
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"apiVersion": "v2.2.2"}, "expected v3.x"),
        ({"schema": []}, "expected one object, got 0"),
        ({"version": None}, "version: missing"),
        ({"version": 1.0}, "version: expected text in quotes, got 1.0"),
        ({"apiVersion": "v3.banana"}, "expected v3.x"),
        ({"kind": "Fruit"}, "kind: expected DataContract, got 'Fruit'"),
        ({"shema": []}, "shema: the standard does not have this key; did you mean 'schema'?"),
        (
            {"customProperties": [{"property": "dayTimeZone", "value": "UTC"}]},
            "customProperties.dayTimeZone: allowed only in the object in schema",
        ),
        (
            {"slaProperties": [{"property": "Freshness", "value": 2, "unit": "h"}]},
            "did you mean 'freshness'?",
        ),
        (
            {
                "slaProperties": [
                    {"property": "freshness", "value": 2, "unit": "h", "element": "flights.received_at"}
                ]
            },
            "supported only for the event time, flights.scheduled_departure, got 'flights.received_at'",
        ),
    ],
)
def test_a_document_that_is_not_what_is_needed_is_refused(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    assert said in refusal(tmp_path, sound() | change)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "not valid YAML"),
        ("", "which begins with `apiVersion: v3.…` and `kind: DataContract`, got nothing"),
        ("- 1", "got [1]"),
        ("42", "got 42"),
        ("a: \0", "the character at position 3"),
    ],
)
def test_a_file_that_is_no_contract_is_refused_without_a_trace(tmp_path: Path, text: str, said: str) -> None:
    message = refusal(tmp_path, text)
    assert "c.odcs.yaml" in message
    assert said in message
    assert "Traceback" not in message
    assert "pydantic" not in message


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(
        ContractError, match=r"none\.yaml: the contract cannot be read: no such file.* setting `contract`"
    ):
        load_contract(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("item", "kind"),
    [
        ({"logicalType": "integer", "logicalTypeOptions": {"format": "i32"}}, "int"),
        ({"logicalType": "number", "physicalType": "decimal(10,2)"}, "decimal(10,2)"),
        ({"logicalType": "number", "logicalTypeOptions": {"format": "f32"}}, "float"),
        ({"logicalType": "boolean"}, "boolean"),
        ({"logicalType": "date"}, "date"),
    ],
)
def test_types_become_spark_s(tmp_path: Path, item: dict[str, Any], kind: str) -> None:
    document = sound()
    document["schema"][0]["properties"].append({"name": "more", **item})
    assert load(tmp_path, document).schema["more"].dataType.simpleString() == kind


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"logicalType": "string", "logicalTypeOptions": {"pattern": "["}}, "expected a regular expression"),
        ({"logicalType": "string", "logicalTypeOptions": {"minimum": 1}}, "for an integer or a number"),
        ({"logicalType": "number", "logicalTypeOptions": {"minimum": "abc"}}, "got 'abc'"),
        ({"logicalType": "integer", "logicalTypeOptions": {"pattern": "x"}}, "that is a string"),
        (
            {"logicalType": "integer", "logicalTypeOptions": {"multipleOf": 2}},
            "not supported; expected",
        ),
        ({"logicalType": "string", "unique": True}, "unique: supported only for"),
        ({"logicalType": "string", "unique": True, "primaryKey": True}, "unique: supported only for"),
        ({"logicalType": "integer", "logicalTypeOptions": {"format": ["i32"]}}, "i32 or i64, got ['i32']"),
        (
            {"logicalType": "integer", "logicalTypeOptions": {"format": "i32", "minimum": 3 * 10**9}},
            "expected a number in the range of i32",
        ),
        (
            {"logicalType": "integer", "logicalTypeOptions": {"format": "i32"}, "enum": [{"value": 2**31}]},
            "expected a number in the range of i32",
        ),
        (
            {"logicalType": "number", "logicalTypeOptions": {"format": "f32", "maximum": 1e300}},
            "expected a number in the range of f32",
        ),
        (
            {
                "logicalType": "number",
                "physicalType": "decimal(9,2)",
                "logicalTypeOptions": {"format": "f32"},
            },
            "expected none beside decimal(9,2), got 'f32'",
        ),
        (
            {"logicalType": "integer", "logicalTypeOptions": {"minimum": 10}, "enum": [{"value": 5}]},
            "all of its values break the logicalTypeOptions, got [5]",
        ),
        ({"logicalType": "string", "enum": ["A"]}, "more.enum.0: expected values as `- value: A`, got 'A'"),
        ({"logicalType": "string", "required": "maybe"}, "more.required: expected true or false"),
        ({"logicalType": "string", "description": False}, "expected text in quotes, got false"),
        ({"name": "a.b", "logicalType": "string"}, "got 'a.b'"),
        ({"logicalType": "string", "logicalTypeOptions": {"pattern": "(?P<x>a)"}}, "in Java's syntax"),
        ({"logicalType": "string", "logicalTypeOptions": {"pattern": None}}, "in quotes, got None"),
        ({"logicalType": "string", "logicalTypeOptions": {"maxLength": 1.5}}, "expected a whole number"),
        ({"logicalType": "string", "logicalTypeOptions": {"minLength": -1}}, "expected a whole number"),
        ({"logicalType": "number", "logicalTypeOptions": {"minimum": float("nan")}}, "got nan"),
        ({"logicalType": "integer", "logicalTypeOptions": {"maximum": 10**39}}, "at most 18 digits"),
        (
            {"logicalType": "number", "logicalTypeOptions": {"minimum": 5, "maximum": 1}},
            "is greater than maximum",
        ),
        ({"logicalType": "integer", "logicalTypeOptions": {"format": "i8"}}, "expected i32 or i64, got 'i8'"),
        ({"logicalType": "timestamp", "logicalTypeOptions": {"format": "dd.MM."}}, "expected none, got"),
        ({"logicalType": "number", "physicalType": "decimal(10)"}, "such as decimal(10,2)"),
        ({"logicalType": "string", "enum": [{"value": False}]}, "expected text in quotes, got False"),
        ({"logicalType": "string", "enum": [{"value": 1}]}, "expected text in quotes, got 1"),
        ({"logicalType": "integer", "enum": [{"value": "a"}]}, "expected a whole number, got 'a'"),
        ({"logicalType": "boolean", "enum": [{"value": 1}]}, "expected true or false, got 1"),
        ({"logicalType": "date", "enum": [{"value": "foo"}]}, "or a boolean, got 'foo'"),
        ({"logicalType": "string", "enum": [{"label": "x"}]}, "got None"),
        ({"logicalType": "string", "enum": []}, "expected at least one value"),
    ],
)
def test_a_rule_that_would_fail_on_the_first_record_is_refused_at_once(
    tmp_path: Path, item: dict[str, Any], said: str
) -> None:
    document = sound()
    document["schema"][0]["properties"].append({"name": "more", **item})
    assert said in refusal(tmp_path, document)


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"requried": True}, "more.requried: the standard does not have this key; did you mean 'required'?"),
        ({"logicalTypeOption": {"minLength": 1}}, "did you mean 'logicalTypeOptions'?"),
        ({"maxLength": 1}, "more.maxLength: belongs in logicalTypeOptions"),
        ({"customProperties": [{"property": "Personal", "value": "drop"}]}, "did you mean 'personal'?"),
        (
            {"customProperties": [{"property": "eventTime", "value": "more"}]},
            "eventTime: allowed only in the object in schema",
        ),
        ({"customProperties": [{"property": "personal", "value": v} for v in ("drop", "hash")]}, "twice"),
        ({"quality": [{"mustBeLessOrEqualsTo": 1}]}, "did you mean 'mustBeLessOrEqualTo'?"),
    ],
)
def test_a_word_that_would_be_ignored_by_mistake_is_refused(
    tmp_path: Path, item: dict[str, Any], said: str
) -> None:
    document = sound()
    document["schema"][0]["properties"].append({"name": "more", "logicalType": "string", **item})
    assert said in refusal(tmp_path, document)


def test_words_of_others_are_ignored(tmp_path: Path) -> None:
    document = sound()
    custom = [{"property": name, "value": 1} for name in ("owner", "owner", "retention")]
    document["schema"][0]["properties"][0] |= {"customProperties": custom, "colour": "blue"}
    document |= {"customProperties": custom, "contractCreatedTs": datetime(2022, 11, 15, tzinfo=UTC)}
    assert load(tmp_path, document).id == "nyc-flights"


@pytest.mark.parametrize("limit", [-1, 101, True, "many"])
def test_a_limit_for_conflicts_is_a_percentage(tmp_path: Path, limit: Any) -> None:
    document = sound()
    custom = document["schema"][0]["customProperties"]
    custom.append({"property": "maxConflictsPercent", "value": limit})
    assert f"expected a number from 0 to 100, got {limit!r}" in refusal(tmp_path, document)
    custom[-1]["value"] = 0.5
    assert load(tmp_path, document).max_conflicts == 0.5


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"dedupPolicy": "newest"}, "dedupPolicy: expected first, last, highest, got 'newest'"),
        ({"dedupPolicy": "highest"}, "expected dedupSequence together with the policy highest"),
        (
            {"dedupSequence": "distance"},
            "expected dedupSequence together with the policy highest, and",
        ),
        ({"dedupPolicy": "highest", "dedupSequence": "no"}, "values have an order, got 'no'"),
        ({"dedupPolicy": "last", "eventTime": "more"}, "last: expected the event time in the dedup key"),
    ],
)
def test_a_policy_that_cannot_be_kept_is_refused(tmp_path: Path, given: dict[str, str], said: str) -> None:
    document = sound()
    custom = document["schema"][0]["customProperties"]
    document["schema"][0]["properties"].append({"name": "more", "logicalType": "timestamp", "required": True})
    custom += [{"property": key, "value": value} for key, value in given.items()]
    assert said in refusal(tmp_path, document)


def test_a_column_with_personal_data_says_how_it_is_shown(tmp_path: Path) -> None:
    document = sound()
    item = {"name": "more", "logicalType": "string"}
    document["schema"][0]["properties"].append(item)
    item["customProperties"] = [{"property": "personal", "value": "shout"}]  # type: ignore[assignment]
    assert "schema.properties.more.customProperties.personal: expected hash or drop, got 'shout'" in refusal(
        tmp_path, document
    )
    item["customProperties"][0]["value"] = "hash"  # type: ignore[index]
    assert load(tmp_path, document).personal == {"more": "hash"}


@pytest.mark.parametrize(
    "pattern",
    [
        *(r"\p{L}+", r"(?<year>\d{4})", "a(?i)b", "[a-z&&[^b]]", "(?<!a|bc)d", r"\x{1F600}", "(?-i)x"),
        *(r"\Q(\E", "[[(]b)]"),
    ],
)
def test_java_s_own_patterns_are_left_to_java(tmp_path: Path, pattern: str) -> None:
    document = sound()
    item = {"name": "more", "logicalType": "string", "logicalTypeOptions": {"pattern": pattern}}
    document["schema"][0]["properties"].append(item)
    assert load(tmp_path, document).row_rules[-1].value == pattern


def test_a_bound_of_a_column_of_32_bits_is_rounded_as_its_values_are(tmp_path: Path) -> None:
    document = sound()
    options = {"format": "f32", "maximum": 0.1}
    document["schema"][0]["properties"].append(
        {"name": "more", "logicalType": "number", "logicalTypeOptions": options}
    )
    assert load(tmp_path, document).row_rules[-1].value == 0.10000000149011612


@pytest.mark.parametrize("zone", ["right/UTC", "posix/America/New_York", "localtime"])
def test_a_zone_that_java_does_not_know_is_refused(tmp_path: Path, zone: str) -> None:
    document = sound()
    for custom in document["schema"][0]["customProperties"]:
        if custom["property"] == "dayTimeZone":
            custom["value"] = zone
    assert "expected a time zone such as" in refusal(tmp_path, document)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"metric": "duplicateValues", "mustBe": 0}, "expected metric rowCount"),
        ({"metric": "rowCount", "mustBe": 3}, "expected mustBeBetween"),
        (
            {"metric": "rowCount", "unit": "percent", "mustBeLessOrEqualTo": 3},
            "rowCount: expected `unit: rows`",
        ),
        ({"metric": "rowCount", "mustBeBetween": [5, 1]}, "the lower one first, got [5"),
        ({"metric": "rowCount", "mustBeLessOrEqualTo": float("nan")}, "expected finite bounds"),
        ({"metric": "rowCount", "mustBeGreaterOrEqualTo": 10**400}, "expected finite bounds"),
        ({"metric": "rowCount", "mustBeLessOrEqualTo": -1}, "can keep it: a count is never below 0"),
        (
            {"metric": "rowCount", "mustBeBetween": [0.5, 0.7]},
            "can keep it: a count is a whole number",
        ),
        ({"type": "sql", "metric": "rowCount", "mustBeLessOrEqualTo": 3}, "`type: library`, or `custom`"),
        (
            {"metric": "rowCount", "arguments": {"a": 1}, "mustBeLessOrEqualTo": 3},
            "arguments is not supported",
        ),
        ({"metric": "rowCount", "query": "SELECT 1", "mustBeLessOrEqualTo": 3}, "query is not supported"),
        ({"metric": "rowCount", "mustBeBetween": [1, 5], "mustBeLessOrEqualTo": 3}, "got both"),
        ({"metric": "rowCount", "mustBeGreaterOrEqualTo": 1, "mustBeLessThan": 9}, "mustBeLessThan is not"),
        ({"metric": "nullValues", "mustBeLessOrEqualTo": 3}, "expected metric rowCount of the object"),
        (
            {"metric": "rowCount", "mustBeLessOrEqualTo": 3, "severity": "warning"},
            "severity: expected none, or critical or error, got 'warning'",
        ),
    ],
)
def test_a_rule_that_cannot_be_kept_is_refused_not_ignored(
    tmp_path: Path, rule: dict[str, Any], said: str
) -> None:
    document = sound()
    document["schema"][0]["quality"] = [{"type": "library", **rule}]
    assert said in refusal(tmp_path, document)


@pytest.mark.parametrize(
    ("limits", "got"),
    [
        ({"mustBeLessOrEqualTo": 300}, "[300]"),
        ({"mustBeLessOrEqualTo": 100.5}, "[100.5]"),
        ({"mustBeLessOrEqualTo": -1}, "[-1]"),
        ({"mustBeGreaterOrEqualTo": 101}, "[101]"),
        ({"mustBeGreaterOrEqualTo": -0.5}, "[-0.5]"),
        ({"mustBeBetween": [0, 101]}, "[0, 101]"),
        ({"mustBeBetween": [-5, 30]}, "[-5, 30]"),
    ],
)
def test_a_share_of_nulls_is_a_percentage(tmp_path: Path, limits: dict[str, Any], got: str) -> None:
    document = sound()
    rule = {"type": "library", "metric": "nullValues", "unit": "percent", **limits}
    document["schema"][0]["properties"][5]["quality"] = [rule]
    place = "schema.properties.tailnum.quality: nullValues"
    assert f"{place}: expected a percentage, from 0 to 100, got {got}" in refusal(tmp_path, document)
    rule |= dict.fromkeys(limits, 100) if "mustBeBetween" not in limits else {"mustBeBetween": [0, 100]}
    assert load(tmp_path, document).day_rules


def test_values_that_must_not_come_twice_in_a_day_are_a_rule(tmp_path: Path) -> None:
    document = sound()
    rule = {"type": "library", "metric": "duplicateValues", "mustBeLessOrEqualTo": 0}
    document["schema"][0]["properties"][5]["quality"] = [rule]
    assert DayRule("duplicateValues", "tailnum", None, 0) in load(tmp_path, document).day_rules


def test_a_condition_on_whole_records_is_read(tmp_path: Path) -> None:
    document = sound()
    rule = {
        "type": "custom",
        "engine": "oncelake",
        "name": "goes somewhere",
        "implementation": "dest != origin",
    }
    document["schema"][0]["quality"].append(rule)
    contract = load(tmp_path, document)
    assert contract.conditions == (Condition("goes somewhere", "dest != origin"),)
    assert contract.day_rules == load_contract(CONTRACTS / "flights.odcs.yaml").day_rules


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"engine": "soda"}, "expected `engine: oncelake`, got 'soda'"),
        ({"name": None}, "expected a `name` of its own"),
        ({"name": "x" * 101}, "expected a `name` of its own"),
        ({"implementation": None}, "expected a condition in SQL"),
        ({"implementation": {"sql": "true"}}, "expected a condition in SQL"),
        ({"mustBe": 0}, "mustBe: not supported for a condition"),
        ({"severity": "info"}, "schema.quality: severity: expected none, or critical or error, got 'info'"),
        (
            {"implementation": r"dest RLIKE '\w'"},
            r"drops a backslash of the text '\w'; expected two backslashes",
        ),
    ],
)
def test_a_condition_that_cannot_be_kept_is_refused(
    tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    document = sound()
    rule = {"type": "custom", "engine": "oncelake", "name": "n", "implementation": "true", **changed}
    document["schema"][0]["quality"].append({key: value for key, value in rule.items() if value is not None})
    assert said in refusal(tmp_path, document)


@pytest.mark.parametrize(("value", "unit", "hours"), [(4, "h", 4.0), (1, "day", 24.0), (90, "minutes", 1.5)])
def test_freshness_is_a_rule_on_days(tmp_path: Path, value: int, unit: str, hours: float) -> None:
    document = sound()
    document["slaProperties"] = [
        {"property": "freshness", "value": value, "unit": unit},
        {"property": "retention", "value": 3, "unit": "y"},
    ]
    assert load(tmp_path, document).day_rules[-1] == DayRule("freshness", None, None, hours)


@pytest.mark.parametrize(
    ("value", "unit"), [(0, "h"), (-1, "h"), ("soon", "h"), (True, "h"), (4, "m"), (4, None)]
)
def test_a_freshness_that_says_no_time_is_refused(tmp_path: Path, value: Any, unit: str | None) -> None:
    document = sound()
    document["slaProperties"] = [{"property": "freshness", "value": value, "unit": unit}]
    assert "slaProperties.freshness: expected a value above 0" in refusal(tmp_path, document)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"dest": 5}, "dest.primaryKeyPosition: found 5 on a property outside the key"),
        (
            {"carrier": 1, "flight": 1},
            "flight.primaryKeyPosition: expected a position of its own, found 1, as on",
        ),
        ({"carrier": 0}, "carrier.primaryKeyPosition: expected a number from 1, found 0"),
    ],
)
def test_a_position_that_does_not_order_the_key_is_refused(
    tmp_path: Path, changes: dict[str, int], said: str
) -> None:
    document = yaml.safe_load((CONTRACTS / "flights.odcs.yaml").read_text())
    for item in document["schema"][0]["properties"]:
        if item["name"] in changes:
            item["primaryKeyPosition"] = changes[item["name"]]
    assert said in refusal(tmp_path, document)


@pytest.mark.parametrize("pattern", ["^[A-Z]{3,9999999999}$", "(" * 3000 + ")" * 3000])
def test_a_pattern_that_is_too_much_for_python_is_refused(tmp_path: Path, pattern: str) -> None:
    document = yaml.safe_load((CONTRACTS / "flights.odcs.yaml").read_text())
    (dest,) = (item for item in document["schema"][0]["properties"] if item["name"] == "dest")
    dest["logicalTypeOptions"] = {"pattern": pattern}
    assert "with smaller numbers and less nesting" in refusal(tmp_path, document)
