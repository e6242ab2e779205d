"""What Great Expectations does not take is refused before anything runs, in words of our own."""

import re
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any, Final

import pytest

from pipelines.contracts.contract import DataContract
from pipelines.contracts.rules import OwnExpectation
from pipelines.errors import ConfigError

pytestmark = pytest.mark.patient

PLACE: Final = "rows.json: expectations[3]"
BETWEEN: Final = "expect_column_values_to_be_between"
NO_TYPE: Final = "type: expected an expectation of Great Expectations, got"
ODD: Final[tuple[Any, ...]] = (None, True, 7, -1, 0.5, "", "a", [], [1], [["a"]], {}, {"a": 1})
# How pydantic and Python put it.
RAW: Final = re.compile(
    r"validation error|type=|valid (dict|list|set|tuple|integer|float|enum)|ensure this|permitted"
    r"|type expected|field required|not an allowed|<class|__init__|Great Expectations refuses"
)


@pytest.fixture(scope="module")
def runner() -> Any:
    """Great Expectations takes seconds to import; the runner knows how to do so safely."""
    return import_module("pipelines.expectations.runner")


def reasons(runner: Any, contract: DataContract, config: dict[str, Any]) -> list[str]:
    own = OwnExpectation("rows", PLACE, config)
    try:
        runner.refuse_unfit(replace(contract, expectations=(own,)))
    except ConfigError as refused:
        lines = str(refused).splitlines()
        assert all(line.startswith(f"{PLACE}: ") for line in lines)
        return [line.removeprefix(f"{PLACE}: ") for line in lines]
    return []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"mostly": 7}, "kwargs.mostly: expected a number less than or equal to 1, got 7"),
        ({"mostly": -0.5}, "kwargs.mostly: expected a number greater than or equal to 0, got -0.5"),
        ({"mostly": "most"}, "kwargs.mostly: expected a number, got 'most'"),
        ({"mostly": None}, "kwargs.mostly: expected a value, got null"),
        ({"strict_min": "maybe"}, "kwargs.strict_min: expected true or false, got 'maybe'"),
        ({"min_value": "a"}, "kwargs.min_value: expected a number or a date or a time in ISO 8601, got 'a'"),
        ({"min_value": [True]}, "kwargs.min_value: expected a number, got [True]"),
        ({"min_value": 9, "max_value": 1}, "kwargs.min_value: expected max_value (1) or less, got 9"),
        ({"min_value": None}, "kwargs: min_value and max_value cannot both be None"),
        ({"column": ""}, "kwargs.column: expected text of 1 or more characters, got ''"),
        ({"least": 1}, "kwargs.least: unknown argument; remove it"),
        ({"min_valeu": 1}, "kwargs.min_valeu: unknown argument; did you mean 'min_value'?"),
    ],
    ids=str,
)
def test_a_wrong_argument_is_refused_once(
    runner: Any, contract: DataContract, arguments: dict[str, Any], said: str
) -> None:
    config = {"type": BETWEEN, "kwargs": {"column": "distance", "min_value": 1, **arguments}}
    assert reasons(runner, contract, config) == [said]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            {"type": "expect_nothing", "kwargs": {}},
            [f"{NO_TYPE} 'expect_nothing'; see docs/data-quality.md"],
        ),
        (
            {"type": BETWEEN[:-1], "kwargs": {}},
            [f"{NO_TYPE} '{BETWEEN[:-1]}'; did you mean '{BETWEEN}'?"],
        ),
        ({"type": BETWEEN, "kwargs": {"min_value": 1}}, ["kwargs.column: missing; add it"]),
        (
            {"type": "expect_compound_columns_to_be_unique", "kwargs": {"column_list": "dest"}},
            ["kwargs.column_list: expected a list, got 'dest'"],
        ),
        (
            {"type": "expect_column_pair_values_to_be_in_set", "kwargs": {"value_pairs_set": [["a"]]}},
            [
                "kwargs.column_A: missing; add it",
                "kwargs.column_B: missing; add it",
                "kwargs.value_pairs_set.0: expected a list of 2 values, got ['a']",
            ],
        ),
        (
            {
                "type": "expect_column_values_to_match_regex_list",
                "kwargs": {"column": "dest", "regex_list": ["a"], "match_on": "some"},
            },
            ["kwargs.match_on: expected one of any, all, got 'some'"],
        ),
        (
            {"type": BETWEEN, "kwargs": {"column": "dest", "min_value": 1}, "notes": {}},
            ["notes: expected text or a list, got {}"],
        ),
    ],
    ids=str,
)
def test_each_mistake_of_an_expectation_is_told(
    runner: Any, contract: DataContract, config: dict[str, Any], said: list[str]
) -> None:
    assert sorted(reasons(runner, contract, config)) == said


def test_an_unknown_key_is_refused_with_those_that_there_are(runner: Any, contract: DataContract) -> None:
    config = {"type": BETWEEN, "kwargs": {"column": "distance", "min_value": 1}, "colour": "red"}
    (said,) = reasons(runner, contract, config)
    assert said.startswith(
        "colour: unknown; expected some of type, kwargs, meta, notes, description, severity"
    )


def test_what_great_expectations_takes_is_taken(runner: Any, contract: DataContract) -> None:
    arguments = {"column": "distance", "min_value": 1, "max_value": 1, "mostly": 0.5}
    assert reasons(runner, contract, {"type": BETWEEN, "kwargs": arguments}) == []


def arguments_by_type(runner: Any) -> Iterator[tuple[str, str]]:
    """An argument for each type that an argument of any expectation has."""
    seen = set[str]()
    for kind in sorted(runner.list_registered_expectation_implementations()):
        for name, field in runner.get_expectation_impl(kind).__fields__.items():
            if (shape := f"{field.outer_type_} {field.allow_none}") not in seen:
                seen.add(shape)
                yield kind, name


def test_nothing_of_pydantic_is_shown_whatever_the_argument_is(runner: Any, contract: DataContract) -> None:
    cases = list(arguments_by_type(runner))
    assert len(cases) > 30
    for kind, name in cases:
        for value in ODD:
            for said in reasons(runner, contract, {"type": kind, "kwargs": {name: value}}):
                assert not RAW.search(said), (kind, name, value, said)
                # Great Expectations writes that one itself.
                assert "another value" not in said or name == "rendered_content"
