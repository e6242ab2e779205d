"""Each change of a contract is known as compatible or breaking, and for whom."""

import copy
import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from pipelines.cli.contract import contract
from pipelines.contracts.custom_properties import Personal, Policy
from pipelines.contracts.diff import contract_changes
from pipelines.errors import ConfigError, ContractError
from pipelines.formats.contract_files import load_contract

SOUND = {
    "apiVersion": "v3.1.0",
    "kind": "DataContract",
    "id": "readings",
    "version": "1.0.0",
    "status": "active",
    "schema": [
        {
            "name": "readings",
            "logicalType": "object",
            "customProperties": [
                {"property": "eventTime", "value": "at"},
                {"property": "dayTimeZone", "value": "Europe/Berlin"},
                {"property": "maxConflictsPercent", "value": 2},
            ],
            "quality": [{"type": "library", "metric": "rowCount", "mustBeBetween": [10, 100]}],
            "properties": [
                {"name": "meter", "logicalType": "string", "primaryKey": True, "primaryKeyPosition": 1},
                {
                    "name": "number",
                    "logicalType": "integer",
                    "logicalTypeOptions": {"format": "i32"},
                    "primaryKey": True,
                    "primaryKeyPosition": 2,
                },
                {"name": "at", "logicalType": "timestamp", "required": True},
                {"name": "sent", "logicalType": "timestamp", "required": True},
                {"name": "count", "logicalType": "integer", "logicalTypeOptions": {"format": "i32"}},
                {"name": "large", "logicalType": "integer"},
                {"name": "single", "logicalType": "number", "logicalTypeOptions": {"format": "f32"}},
                {"name": "price", "logicalType": "number", "physicalType": "decimal(10,2)"},
                {"name": "volt", "logicalType": "number", "logicalTypeOptions": {"minimum": 0, "maximum": 9}},
                {"name": "code", "logicalType": "string", "logicalTypeOptions": {"pattern": "[A-Z]+"}},
                {
                    "name": "note",
                    "logicalType": "string",
                    "logicalTypeOptions": {"maxLength": 9, "minLength": 2},
                },
                {"name": "state", "logicalType": "string", "enum": [{"value": "on"}, {"value": "off"}]},
                {
                    "name": "place",
                    "logicalType": "object",
                    "properties": [
                        {"name": "town", "logicalType": "string"},
                        {"name": "number", "logicalType": "integer", "logicalTypeOptions": {"format": "i32"}},
                        {"name": "room", "logicalType": "string"},
                    ],
                },
                {"name": "steps", "logicalType": "array", "items": {"logicalType": "number"}},
                {
                    "name": "labels",
                    "logicalType": "map",
                    "map": {"key": {"logicalType": "string"}, "value": {"logicalType": "string"}},
                },
                {
                    "name": "must",
                    "logicalType": "string",
                    "required": True,
                    "quality": [
                        {
                            "type": "library",
                            "metric": "nullValues",
                            "unit": "percent",
                            "mustBeLessOrEqualTo": 5,
                        }
                    ],
                },
            ],
        }
    ],
}
Edit = Callable[[dict[str, Any]], object]


def column(document: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(p for p in document["schema"][0]["properties"] if p["name"] == name)
    return found


def add(**item: Any) -> Edit:
    return lambda d: d["schema"][0]["properties"].append({"name": "more", "logicalType": "string", **item})


def edit(name: str, **item: Any) -> Edit:
    return lambda d: column(d, name).update(item)


def options(name: str, **values: Any) -> Edit:
    return lambda d: column(d, name)["logicalTypeOptions"].update(values)


def custom(name: str, value: Any) -> Edit:
    return lambda d: next(c for c in d["schema"][0]["customProperties"] if c["property"] == name).update(
        value=value
    )


def rows(**bounds: Any) -> Edit:
    return lambda d: d["schema"][0].update(
        quality=[{"type": "library", "metric": "rowCount", **bounds}] if bounds else []
    )


def drop(name: str) -> Edit:
    return lambda d: d["schema"][0]["properties"].remove(column(d, name))


def enum(*values: str) -> Edit:
    return edit("state", enum=[{"value": value} for value in values])


def another_format(name: str) -> Edit:
    return lambda d: d["schema"][0]["customProperties"].append({"property": "valueFormat", "value": name})


def fresh(hours: int) -> Edit:
    return lambda d: d.update(slaProperties=[{"property": "freshness", "value": hours, "unit": "h"}])


def condition(sql: str) -> Edit:
    rule = {"type": "custom", "engine": "oncelake", "name": "rule", "implementation": sql}
    return lambda d: d["schema"][0]["quality"].append(rule)


def inside(column_name: str, **part: Any) -> Edit:
    return lambda d: column(d, column_name)["properties"].append(part)


def steps(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = column(document, "steps")["items"]
    return found


def labels(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = column(document, "labels")["map"]["value"]
    return found


PRODUCERS, READERS, STATE = {"producers"}, {"readers"}, {"readers", "state"}
CHANGES: list[tuple[str, Edit, set[str]]] = [
    ("another version", lambda d: d.update(version="1.1.0"), set()),
    ("another id", lambda d: d.update(id="others"), STATE),
    ("optional column added", add(), set()),
    ("required column added", add(required=True), PRODUCERS),
    ("column with a rule added", add(logicalTypeOptions={"maxLength": 3}), PRODUCERS),
    ("column with an enum added", add(enum=[{"value": "A"}]), PRODUCERS),
    (
        "optional object with a required part added",
        add(logicalType="object", properties=[{"name": "x", "logicalType": "string", "required": True}]),
        PRODUCERS,
    ),
    (
        "part with a rule added",
        inside("place", name="floor", logicalType="integer", logicalTypeOptions={"minimum": 0}),
        PRODUCERS,
    ),
    ("column removed", drop("large"), READERS),
    ("required column removed", drop("must"), READERS),
    ("optional became required", edit("large", required=True), PRODUCERS),
    ("required became optional", edit("must", required=False), READERS),
    ("int to long", lambda d: column(d, "count").pop("logicalTypeOptions"), set()),
    ("long to int", edit("large", logicalTypeOptions={"format": "i32"}), PRODUCERS),
    ("int to double", edit("count", logicalType="number", logicalTypeOptions={}), set()),
    ("long to double", edit("large", logicalType="number"), PRODUCERS | READERS),
    ("int to long, in the key", edit("number", logicalTypeOptions={}), {"state"}),
    ("personal data", edit("code", customProperties=[{"property": "personal", "value": "hash"}]), set()),
    ("float to double", edit("single", logicalTypeOptions={}), set()),
    (
        "double to float",
        edit("volt", logicalTypeOptions={"format": "f32", "minimum": 0, "maximum": 9}),
        PRODUCERS,
    ),
    ("decimal with more digits", edit("price", physicalType="decimal(12,2)"), set()),
    ("decimal with more places and digits", edit("price", physicalType="decimal(12,4)"), set()),
    ("decimal with more places only", edit("price", physicalType="decimal(10,4)"), PRODUCERS | READERS),
    ("decimal with fewer digits", edit("price", physicalType="decimal(8,2)"), PRODUCERS),
    ("decimal with fewer places", edit("price", physicalType="decimal(9,1)"), PRODUCERS | READERS),
    ("integer to string", edit("large", logicalType="string"), READERS),
    (
        "integer to string, in the key",
        edit("number", logicalType="string", logicalTypeOptions={}),
        STATE,
    ),
    ("decimal to double", lambda d: column(d, "price").pop("physicalType"), PRODUCERS | READERS),
    (
        "long to decimal that holds it",
        edit("large", logicalType="number", physicalType="decimal(20,0)"),
        set(),
    ),
    (
        "long to a smaller decimal",
        edit("large", logicalType="number", physicalType="decimal(9,0)"),
        PRODUCERS | READERS,
    ),
    ("string to integer", edit("must", logicalType="integer"), PRODUCERS | READERS),
    ("timestamp to date", edit("sent", logicalType="date"), PRODUCERS | READERS),
    ("key with a column more", edit("large", primaryKey=True, required=True), STATE | PRODUCERS),
    (
        "key with a column less",
        edit("number", primaryKey=False, primaryKeyPosition=None, required=True),
        STATE,
    ),
    ("key in another order", edit("meter", primaryKeyPosition=3), {"state"}),
    ("another event time", custom("eventTime", "sent"), STATE),
    ("another zone", custom("dayTimeZone", "UTC"), STATE),
    ("more conflicts allowed", custom("maxConflictsPercent", 2.5), READERS),
    ("fewer conflicts allowed", custom("maxConflictsPercent", 1), set()),
    ("no limit for conflicts", custom("maxConflictsPercent", None), READERS),
    ("minimum raised", options("volt", minimum=1), PRODUCERS),
    ("minimum lowered", options("volt", minimum=-1), READERS),
    ("maximum raised", options("volt", maximum=10), READERS),
    ("maximum lowered", options("volt", maximum=8), PRODUCERS),
    ("maximum gone", lambda d: column(d, "volt")["logicalTypeOptions"].pop("maximum"), READERS),
    ("new minimum", edit("large", logicalTypeOptions={"minimum": 0}), PRODUCERS),
    ("shorter texts only", options("note", maxLength=8), PRODUCERS),
    ("longer texts, too", options("note", maxLength=10), READERS),
    ("texts of one character, too", options("note", minLength=1), READERS),
    ("another pattern", options("code", pattern="[a-z]+"), PRODUCERS | READERS),
    ("enum with a value more", enum("on", "off", "idle"), READERS),
    ("enum with a value less", enum("on"), PRODUCERS),
    ("enum with another value", enum("on", "idle"), PRODUCERS | READERS),
    ("enum in another order", enum("off", "on"), set()),
    ("enum gone", lambda d: column(d, "state").pop("enum"), READERS),
    ("more rows asked for", rows(mustBeBetween=[20, 100]), set()),
    ("fewer rows are enough", rows(mustBeBetween=[5, 100]), READERS),
    ("no bound on rows", rows(), READERS),
    ("more nulls allowed", lambda d: column(d, "must")["quality"][0].update(mustBeLessOrEqualTo=9), READERS),
    ("fewer nulls allowed", lambda d: column(d, "must")["quality"][0].update(mustBeLessOrEqualTo=1), set()),
    ("another format of values", another_format("avro"), STATE | PRODUCERS),
    ("a rule on freshness", fresh(4), set()),
    ("a condition", condition("volt > count"), PRODUCERS),
    ("part added in an object", inside("place", name="floor", logicalType="integer"), set()),
    ("required part added", inside("place", name="floor", logicalType="integer", required=True), PRODUCERS),
    ("part of an object removed", lambda d: column(d, "place")["properties"].pop(), READERS),
    ("wider part", lambda d: column(d, "place")["properties"][1].pop("logicalTypeOptions"), set()),
    ("object gone", drop("place"), READERS),
    (
        "object became text",
        lambda d: column(d, "place").update(logicalType="string", properties=None),
        READERS,
    ),
    (
        "another element",
        lambda d: column(d, "steps")["items"].update(logicalType="boolean"),
        PRODUCERS | READERS,
    ),
    ("no empty elements any more", lambda d: steps(d).update(required=True), PRODUCERS),
    ("another value of a map", lambda d: labels(d).update(logicalType="boolean"), PRODUCERS | READERS),
]


def write(folder: Path, document: dict[str, Any], name: str = "readings.odcs.yaml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(yaml.safe_dump(document))
    return path


def edited(change: Edit) -> dict[str, Any]:
    document = copy.deepcopy(SOUND)
    change(document)
    return document


@pytest.mark.parametrize(("change", "broken"), [c[1:] for c in CHANGES], ids=[c[0] for c in CHANGES])
def test_a_change_breaks_whom_it_breaks(tmp_path: Path, change: Edit, broken: set[str]) -> None:
    old = load_contract(write(tmp_path / "old", SOUND))
    new = load_contract(write(tmp_path / "new", edited(change)))
    assert {party for found in contract_changes(old, new) for party in found.breaks} == broken


def test_another_policy_breaks_readers_and_so_does_data_shown_again(tmp_path: Path) -> None:
    old = replace(load_contract(write(tmp_path, SOUND)), personal={"code": "drop"})
    new = replace(old, policy=Policy("highest", "count"), personal={"code": "hash"})
    found = contract_changes(old, new)
    assert [change.what for change in found] == [
        "first became highest count: other copies win",
        "personal: drop became hash",
    ]
    assert all(set(change.breaks) == READERS for change in found)


def test_personal_data_is_compared_by_how_it_is_shown(tmp_path: Path) -> None:
    whole = load_contract(write(tmp_path, SOUND))

    def told(before: dict[str, Personal], after: dict[str, Personal]) -> list[tuple[str, str, bool]]:
        found = contract_changes(replace(whole, personal=before), replace(whole, personal=after))
        return [(c.place.split(".")[2], c.what.removeprefix("personal: "), c.is_breaking) for c in found]

    assert told({"place.town": "drop"}, {"place": "drop"}) == [
        ("place", "nothing became drop", False),
        ("place", "nothing became drop", False),
    ], "the number and the room"
    assert [shown[2] for shown in told({"place": "drop"}, {"place.town": "drop"})] == [True, True]
    assert told({"place": "hash"}, {"place": "drop"}) == [("place", "hash became drop", False)]
    assert told({"labels{key}": "drop"}, {}) == [("labels", "drop became nothing", True)]
    assert told({"labels{key}": "drop"}, {"labels": "drop"}) == [("labels{}", "nothing became drop", False)]


def test_a_new_rule_is_told_with_the_column(tmp_path: Path) -> None:
    old = load_contract(write(tmp_path / "old", SOUND))
    new = load_contract(write(tmp_path / "new", edited(add(enum=[{"value": "A"}]))))
    (found,) = contract_changes(old, new)
    assert found.what == (
        "added, optional, string, with rules (values 'A'); records that have it already may break them"
    )


def test_a_new_column_is_told_with_what_its_type_refuses(tmp_path: Path) -> None:
    old = load_contract(write(tmp_path / "old", SOUND))
    new = load_contract(write(tmp_path / "new", edited(add(logicalType="boolean"))))
    (found,) = contract_changes(old, new)
    assert found.what.endswith("; records that have it already with another type are refused")
    assert found.breaks == ()


def test_figures_are_told_to_the_last_digit(tmp_path: Path) -> None:
    old = load_contract(write(tmp_path / "old", edited(rows(mustBeBetween=[1, 1234567]))))
    new = load_contract(write(tmp_path / "new", edited(rows(mustBeBetween=[1, 1234568]))))
    (found,) = contract_changes(old, new)
    assert found.what == "rowCount: 1 to 1234567 became 1 to 1234568"


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("volt > 1", "volt  >\n 1", True),
        ("code = 'a b'", "code =  'a b'", True),
        ("code = 'a b'", "code = 'a  b'", False),
        ("volt > 1 -- AND count > 1", "volt > 1 --\nAND count > 1", False),
    ],
)
def test_white_space_is_no_change_of_a_condition(tmp_path: Path, old: str, new: str, same: bool) -> None:
    before, after = (
        load_contract(write(tmp_path / str(number), edited(condition(sql))))
        for number, sql in enumerate((old, new))
    )
    assert (contract_changes(before, after) == []) is same


def test_what_is_the_same_has_not_changed(tmp_path: Path) -> None:
    same = load_contract(write(tmp_path, SOUND))
    assert contract_changes(same, same) == []


def test_the_difference_is_told_in_words_and_as_json(tmp_path: Path) -> None:
    old = write(tmp_path / "old", SOUND)
    new = write(tmp_path / "new", edited(enum("on")))
    told = CliRunner().invoke(contract, ["diff", str(old), str(new)])
    assert told.exit_code == 0
    assert "breaking for producers: schema.properties.state: values: 'on', 'off' became 'on'" in told.output
    figures = json.loads(
        CliRunner().invoke(contract, ["diff", str(old), str(new), "--format", "json"]).output
    )
    assert (figures["breaking"], figures["changes"][0]["breaks"]) == (1, ["producers"])


def test_a_breaking_change_against_what_git_has_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "data_contracts", SOUND)
    identity = ("-c", "user.name=t", "-c", "user.email=t@t")
    for words in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "first")):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    check = ["check", str(path), "--against", "HEAD"]
    write(path.parent, edited(add()))
    done = CliRunner().invoke(contract, check)
    assert (done.exit_code, "compatible: schema.properties.more: added" in done.output) == (0, True)
    write(path.parent, edited(drop("large")))
    refused = CliRunner().invoke(contract, check)
    assert isinstance(refused.exception, ContractError)
    assert refused.exception.exit_code == 2
    assert "schema.properties.large: removed" in str(refused.exception)
    fresh = write(path.parent, SOUND, "fresh.odcs.yaml")
    assert (
        "new contract; HEAD does not have it"
        in CliRunner().invoke(contract, ["check", str(fresh), *check[2:]]).output
    )
    unknown = CliRunner().invoke(contract, ["check", str(path), "--against", "no-such"])
    assert isinstance(unknown.exception, ConfigError)
    assert "expected a file, or a git revision" in str(unknown.exception)


def test_a_contract_that_is_gone_breaks_all_and_one_that_moved_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data_contracts"
    other = copy.deepcopy(SOUND) | {"id": "others"}
    for name, document in (("readings", SOUND), ("others", other), ("broken", {"kind": "Fruit"})):
        write(folder, document, f"{name}.odcs.yaml")
    identity = ("-c", "user.name=t", "-c", "user.email=t@t")
    for words in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "first")):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    monkeypatch.chdir(tmp_path)
    check = ["check", "--against", "HEAD"]
    write(folder, edited(drop("large")), "moved.odcs.yaml")
    write(folder, other, "broken.odcs.yaml")
    refused = CliRunner().invoke(contract, check)
    assert "HEAD:data_contracts/broken.odcs.yaml: kind: expected DataContract" in str(refused.exception)
    for name in ("readings", "broken"):
        (folder / f"{name}.odcs.yaml").unlink()
    refused = CliRunner().invoke(contract, check)
    assert isinstance(refused.exception, ContractError)
    assert "moved.odcs.yaml: schema.properties.large: removed" in str(refused.exception)
    assert "broken.odcs.yaml: contract: removed: no pipeline can read the topic with it" in str(
        refused.exception
    )
    assert "readings.odcs.yaml" not in str(refused.exception), "it has another name now"
    named = CliRunner().invoke(contract, ["check", "data_contracts/others.odcs.yaml", *check[1:]])
    assert named.exit_code == 0


def test_lint_names_what_is_sound_and_refuses_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "data_contracts", SOUND)
    monkeypatch.chdir(tmp_path)
    assert "valid: readings 1.0.0, key meter, number" in CliRunner().invoke(contract, ["lint"]).output
    write(tmp_path / "data_contracts", edited(lambda d: d.update(version=None)))
    assert isinstance(CliRunner().invoke(contract, ["lint"]).exception, ContractError)
