"""What an audit has stored is shown as far as the current contract lets it be."""

import json
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from pipelines.contracts.contract import DataContract
from pipelines.expectations.outcomes import as_shown, stored_check

DAY = date(2013, 1, 1)


def stored(suite: str, kind: str, result: dict[str, Any], raised: str | None = None, **arguments: Any) -> str:
    return json.dumps(
        {
            "suite": f"flights.{suite}",
            "success": False,
            "expectation_config": {"type": kind, "kwargs": arguments},
            "result": result,
            "exception_info": {"raised_exception": raised is not None, "exception_message": raised},
        }
    )


IN_SET = stored(
    "rows",
    "expect_column_values_to_be_in_set",
    {"element_count": 4, "unexpected_count": 1, "partial_unexpected_list": ["N14228"]},
    column="tailnum",
)
LONGEST = stored("rows", "expect_column_max_to_be_between", {"observed_value": 4963.0}, column="distance")
MEAN = stored(
    "days",
    "expect_column_values_to_be_between",
    {"element_count": 1, "unexpected_count": 1, "observed_value": 4963.0},
    column="distance_mean",
)
NULLS = stored(
    "days",
    "expect_column_values_to_be_between",
    {"element_count": 1, "unexpected_count": 1, "observed_value": 49.63},
    column="distance_nulls",
)
RAISED = stored("rows", "unexpected_rows_expectation", {}, raised="cannot cast 'N14228' to int")


@pytest.mark.parametrize(
    ("text", "value", "personal"),
    [
        (IN_SET, "N14228", "tailnum"),
        (IN_SET, "N14228", "dest"),
        (RAISED, "N14228", "dest"),
        (LONGEST, "4963.0", "distance"),
        (MEAN, "4963.0", "distance"),
    ],
)
def test_a_value_is_hidden_once_a_column_holds_personal_data(
    contract: DataContract, text: str, value: str, personal: str
) -> None:
    before = stored_check(DAY, text, contract)
    assert value in before.observed + before.detail
    assert as_shown(text, contract) == text
    guarded = replace(contract, personal={personal: "hash"})
    assert value not in as_shown(text, guarded)
    after = stored_check(DAY, text, guarded)
    assert value not in after.observed + after.detail
    assert (after.name, after.status, after.expected) == (before.name, before.status, before.expected)


@pytest.mark.parametrize("text", [LONGEST, MEAN, NULLS])
def test_numbers_of_other_columns_stay(contract: DataContract, text: str) -> None:
    guarded = replace(contract, personal={"tailnum": "drop"})
    assert stored_check(DAY, text, guarded).observed == stored_check(DAY, text, contract).observed


def test_a_figure_that_shows_no_value_stays(contract: DataContract) -> None:
    assert as_shown(NULLS, replace(contract, personal={"distance": "drop"})) == NULLS


def test_a_number_of_a_column_that_is_gone_is_hidden(contract: DataContract) -> None:
    gone = LONGEST.replace("distance", "weight")
    guarded = replace(contract, personal={"tailnum": "drop"})
    assert stored_check(DAY, gone, guarded).observed == "not as expected"


def test_a_number_of_a_part_of_the_key_within_a_column_is_hidden(contract: DataContract) -> None:
    nested = replace(contract, key=("carrier", "crew.captain"), personal={"crew.captain": "hash"})
    (_, column) = nested.key_names
    text = LONGEST.replace("distance", column)
    assert column != "crew.captain"
    assert "4963" not in as_shown(text, nested)
