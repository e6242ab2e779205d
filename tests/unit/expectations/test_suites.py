"""Suites of expectations as files: generated from the contract, extended by people, never overwritten."""

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pipelines.cli.expectations import expectations
from pipelines.config.loader import pipeline_names
from pipelines.contracts.contract import DataContract
from pipelines.errors import ConfigError
from pipelines.expectations.suite_files import outdated_suites, own_expectations, suite_path, write_suites
from pipelines.expectations.suites import generated, suites_of
from pipelines.formats.contract_files import load_contract

MEAN: dict[str, Any] = {
    "type": "expect_column_mean_to_be_between",
    "kwargs": {"column": "distance", "min_value": 1},
}
NONE_LOST: dict[str, Any] = {
    "type": "unexpected_rows_expectation",
    "kwargs": {"unexpected_rows_query": "SELECT 1"},
    "notes": "a",
}


@pytest.fixture
def edit(tmp_path: Path, contract: DataContract) -> Callable[[Callable[[list[Any]], None]], None]:
    """Writes the suites of flights, and lets a person edit the expectations on rows."""
    write_suites(tmp_path, "flights", contract)

    def change(by: Callable[[list[Any]], None]) -> None:
        path = suite_path(tmp_path, "flights", "rows")
        document = json.loads(path.read_text())
        by(document["expectations"])
        path.write_text(json.dumps(document))

    return change


def rows(conf: Path) -> list[Any]:
    return list(json.loads(suite_path(conf, "flights", "rows").read_text())["expectations"])


def test_the_suites_of_the_repository_are_what_their_contracts_ask_for() -> None:
    for name in pipeline_names(Path("conf")):
        contract = load_contract(Path(f"data_contracts/{name}.odcs.yaml"))
        assert outdated_suites(Path("conf"), name, contract) == []


def test_what_people_wrote_survives_regeneration_in_its_order(
    tmp_path: Path, contract: DataContract, edit: Callable[..., None]
) -> None:
    edit(lambda there: there.insert(0, MEAN))
    edit(lambda there: there.append(NONE_LOST))
    assert outdated_suites(tmp_path, "flights", contract) == []
    fewer = replace(contract, row_rules=contract.row_rules[2:])
    (path,) = write_suites(tmp_path, "flights", fewer)
    assert path == suite_path(tmp_path, "flights", "rows")
    assert rows(tmp_path)[-2:] == [MEAN, NONE_LOST]
    assert len(rows(tmp_path)) == len(generated(fewer)["rows"]) + 2
    assert outdated_suites(tmp_path, "flights", fewer) == []
    assert outdated_suites(tmp_path, "flights", contract) == [path]
    own = own_expectations(tmp_path, "flights", contract)
    assert [item.config for item in own] == [MEAN, NONE_LOST]
    assert suites_of(replace(contract, expectations=own))["rows"] == [
        *generated(contract)["rows"],
        MEAN,
        NONE_LOST,
    ]


def test_a_pattern_is_not_asked_again_also_where_a_suite_of_an_earlier_version_has_it(
    tmp_path: Path, contract: DataContract, edit: Callable[..., None]
) -> None:
    """Spark would look for it on the stack of a task, which one long text can use up."""
    assert "pattern" in {rule.kind for rule in contract.row_rules}
    assert not [item for item in generated(contract)["rows"] if "regex" in item["type"]]
    earlier = {
        "id": "ea7ca4cb-888f-54e3-8fce-9636150c3f33",
        "kwargs": {"column": "carrier", "regex": "^[A-Z0-9]{2}$"},
        "meta": {"oncelake": {"generated": "9ec35f892169e7e6"}},
        "severity": "critical",
        "type": "expect_column_values_to_match_regex",
    }
    edit(lambda there: there.insert(6, earlier))
    own = own_expectations(tmp_path, "flights", contract)
    assert own == ()
    assert suites_of(replace(contract, expectations=own))["rows"] == generated(contract)["rows"]
    (path,) = outdated_suites(tmp_path, "flights", contract)
    assert write_suites(tmp_path, "flights", contract) == [path]
    assert earlier not in rows(tmp_path)


def test_a_generated_expectation_that_was_edited_is_neither_obeyed_nor_overwritten(
    tmp_path: Path, contract: DataContract, edit: Callable[..., None]
) -> None:
    # What Great Expectations itself changes when it saves a suite is no edit.
    edit(lambda there: [item.update(id="another", notes=None) for item in there])
    edit(
        lambda there: [
            item["kwargs"].update({k: float(v) for k, v in item["kwargs"].items() if v == 1})
            for item in there
        ]
    )
    assert outdated_suites(tmp_path, "flights", contract) == []
    edit(lambda there: there[0].update(severity="warning"))
    before = rows(tmp_path)
    with pytest.raises(ConfigError, match=r"rows.json: expectations\[0\].*edited since"):
        write_suites(tmp_path, "flights", contract)
    assert rows(tmp_path) == before
    edit(lambda there: there[0].pop("meta"))
    assert [item.config for item in own_expectations(tmp_path, "flights", contract)] == [
        {key: value for key, value in before[0].items() if key != "meta"}
    ]


@pytest.mark.parametrize(
    ("suite", "expectation", "said"),
    [
        ("rows", {"expectation_type": "x"}, r"expectations\[0\]: expected `type`"),
        ("rows", {"type": "x"}, r"expectations\[0\]: expected `type`, such as .*, and `kwargs`"),
        (
            "rows",
            {**MEAN, "severity": "mild"},
            "severity: expected one of critical, warning, info, got 'mild'",
        ),
        (
            "rows",
            {**MEAN, "kwargs": {"column": "distanse"}},
            "column distanse: expected a column of the contract",
        ),
        (
            "rows",
            {**MEAN, "kwargs": {"column": 7}},
            "kwargs.column: expected the name of a column, or a list of",
        ),
        (
            "rows",
            {**MEAN, "kwargs": {"column_list": ["distance", None]}},
            "kwargs.column_list: expected the name",
        ),
        ("days", {**MEAN, "kwargs": {"column": None}}, "kwargs.column: expected the name"),
        ("days", MEAN, "column distance: expected rows, hours_without_events, or one of COLUMN_nulls"),
        (
            "days",
            {**MEAN, "kwargs": {"column": "carrier_mean"}},
            "_mean needs a column of numbers",
        ),
        ("days", {**MEAN, "kwargs": {"column": "distance_max"}}, "distance has personal data"),
        (
            "days",
            {
                "type": "expect_column_values_to_be_between",
                "kwargs": {"column": "dest_nulls", "max_value": 300},
            },
            "column dest_nulls: max_value: expected a percentage, from 0 to 100, got 300",
        ),
        (
            "days",
            {**MEAN, "kwargs": {"column": "dest_nulls", "min_value": -0.5, "max_value": 1}},
            "column dest_nulls: min_value: expected a percentage, from 0 to 100, got -0.5",
        ),
    ],
)
def test_a_mistake_in_a_suite_is_refused_with_its_place(
    tmp_path: Path, contract: DataContract, suite: Any, expectation: dict[str, Any], said: str
) -> None:
    path = suite_path(tmp_path, "flights", suite)
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"name": f"flights.{suite}", "expectations": [expectation]}))
    with pytest.raises(ConfigError, match=said):
        own_expectations(tmp_path, "flights", replace(contract, personal={"distance": "hash"}))


@pytest.mark.parametrize("column", ["tags_duplicates", "tags_distinct"])
def test_values_of_a_map_are_not_counted(tmp_path: Path, nested: DataContract, column: str) -> None:
    path = suite_path(tmp_path, "orders", "days")
    path.parent.mkdir(parents=True)
    expectation = {**MEAN, "kwargs": {"column": column}}
    path.write_text(json.dumps({"name": "orders.days", "expectations": [expectation]}))
    with pytest.raises(ConfigError, match=f"column {column}: Spark does not compare maps, and tags is one"):
        own_expectations(tmp_path, "orders", nested)


@pytest.mark.parametrize(
    "expectation",
    [
        {**MEAN, "kwargs": {"column": "dest_nulls", "min_value": 0, "max_value": 100.0}},
        {**MEAN, "kwargs": {"column": "distance_max", "max_value": 300}},
        {"type": "expect_column_stdev_to_be_between", "kwargs": {"column": "dest_nulls", "max_value": 300}},
        {"type": "expect_column_values_to_be_null", "kwargs": {"column": "dest_nulls"}},
    ],
)
def test_what_is_no_percentage_or_within_its_bounds_is_taken(
    tmp_path: Path, contract: DataContract, expectation: dict[str, Any]
) -> None:
    path = suite_path(tmp_path, "flights", "days")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"name": "flights.days", "expectations": [expectation]}))
    assert [own.config for own in own_expectations(tmp_path, "flights", contract)] == [expectation]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"{", "no JSON: Expecting property name enclosed in double quotes in line 1, column 2"),
        (b"", "no JSON: Expecting value in line 1, column 1"),
        (b"[" * 100_000, "more than 64 levels"),
        (b"[" * 65 + b"]" * 65, "more than 64 levels"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": 1e999}', "1e999 is more than a number of 64 bits holds"),
        (b'{"a": %s}' % (b"9" * 5_000), "a number of more than 300 digits"),
        (b"\xff", "the byte at position 0 is not UTF-8"),
    ],
)
def test_a_damaged_suite_can_be_written_anew(
    tmp_path: Path, contract: DataContract, content: bytes, why: str
) -> None:
    write_suites(tmp_path, "flights", contract)
    path = suite_path(tmp_path, "flights", "rows")
    sound = path.read_bytes()
    path.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        own_expectations(tmp_path, "flights", contract)
    message = str(refused.value)
    assert message.startswith(f"{path}: cannot be read: {why}")
    assert message.endswith(
        "; expected a suite in JSON. Repair the file, or restore it from a backup; or delete it and run"
        " `oncelake expectations generate`, which writes what the contract stands for, without expectations"
        " that people added"
    )
    path.unlink()
    assert write_suites(tmp_path, "flights", contract) == [path]
    assert path.read_bytes() == sound


def test_a_suite_that_may_not_be_read_is_not_to_be_deleted(
    tmp_path: Path, contract: DataContract, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_suites(tmp_path, "flights", contract)
    path = suite_path(tmp_path, "flights", "rows")

    def refusing(file: Path, encoding: str) -> str:
        # As root one reads everything.
        raise PermissionError(13, "Permission denied", str(file))

    monkeypatch.setattr(Path, "read_text", refusing)
    with pytest.raises(ConfigError) as refused:
        own_expectations(tmp_path, "flights", contract)
    assert str(refused.value) == (
        f"{path}: cannot be read: permission denied; let the user that runs this command read the file"
    )


def test_a_link_to_a_suite_stays_one_and_one_to_nothing_is_refused(
    tmp_path: Path, contract: DataContract, edit: Callable[..., None]
) -> None:
    edit(lambda there: there.insert(0, MEAN))
    path, elsewhere = suite_path(tmp_path, "flights", "rows"), tmp_path / "elsewhere.json"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    stricter = replace(contract, row_rules=())
    assert write_suites(tmp_path, "flights", stricter) == [path]
    assert path.is_symlink()
    assert [own.config for own in own_expectations(tmp_path, "flights", contract)] == [MEAN]
    elsewhere.unlink()
    with pytest.raises(ConfigError, match=r"links to .*elsewhere\.json, which is not there"):
        own_expectations(tmp_path, "flights", contract)


def test_great_expectations_says_nothing_of_its_own_work() -> None:
    import_module("pipelines.expectations.runner")
    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "great_expectations"]
    assert len(names) > 1
    assert [name for name in names if logging.getLogger(name).isEnabledFor(logging.WARNING)] == []


def test_great_expectations_opens_the_folder_and_what_it_saves_is_taken(
    tmp_path: Path, contract: DataContract
) -> None:
    # It knows how to import Great Expectations safely.
    ours: Any = import_module("pipelines.expectations.runner")
    write_suites(tmp_path, "flights", contract)
    context = ours.gx.get_context(mode="file", context_root_dir=tmp_path / "base" / "gx")
    suite = context.suites.get("flights.rows")
    added = ours.ExpectationConfiguration(**MEAN).to_domain_obj()
    suite.add_expectation(added)
    suite.save()
    assert outdated_suites(tmp_path, "flights", contract) == []
    (own,) = own_expectations(tmp_path, "flights", contract)
    assert own.config["type"] == MEAN["type"]


@pytest.mark.parametrize("options", [[], ["--check"]])
def test_a_folder_without_pipelines_is_not_up_to_date(tmp_path: Path, options: list[str]) -> None:
    result = CliRunner().invoke(expectations, ["generate", "--conf-dir", str(tmp_path), *options])
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception).startswith(f"{tmp_path}/base/pipelines: no pipeline (*.yml) here")


def test_an_empty_name_is_no_pipeline(tmp_path: Path) -> None:
    result = CliRunner().invoke(expectations, ["generate", "--check", "--pipeline", ""])
    assert "no such pipeline" in str(result.exception)
