"""A value of a wrong kind in a contract is refused in one line, in the words of YAML, where it stands."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.contract_documents import refusal, sound

LIST = "a list, each line beginning with `- `"
NAMES = "names with values, as `name: value`"


def refused(tmp_path: Path, document: dict[str, Any]) -> str:
    line, standard = refusal(tmp_path, document).splitlines()
    assert standard == "expected an Open Data Contract Standard v3 document"
    return line.partition("c.odcs.yaml: ")[2]


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"mustBeBetween": [500]}, "mustBeBetween: expected 2 or more values, got [500]"),
        ({"mustBeBetween": []}, "mustBeBetween: expected 2 or more values, got []"),
        ({"mustBeBetween": [1, 2, 3]}, "mustBeBetween: expected 2 values at most, got [1, 2, 3]"),
        ({"mustBeBetween": ["a"]}, "mustBeBetween.0: expected a number, got 'a'"),
        ({"mustBeBetween": 500}, f"mustBeBetween: expected {LIST}, got 500"),
        ({"mustBeLessOrEqualTo": "many"}, "mustBeLessOrEqualTo: expected a number, got 'many'"),
        ({"mustBeLessOrEqualTo": [3]}, "mustBeLessOrEqualTo: expected a number, got [3]"),
        ({"implementation": 1}, f"implementation: expected text in quotes or {NAMES}, got 1"),
        ({"tags": [None]}, "tags.0: expected text in quotes, got nothing"),
        ({"name": True}, "name: expected text in quotes, got true"),
    ],
)
def test_a_wrong_value_of_a_rule_is_refused_once(tmp_path: Path, rule: dict[str, Any], said: str) -> None:
    document = sound()
    document["schema"][0]["quality"] = [{"metric": "rowCount", **rule}]
    assert refused(tmp_path, document) == f"schema.quality.0.{said}"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"team": "us"}, f"team: expected {NAMES} or {LIST}, got 'us'"),
        ({"team": [1]}, f"team.0: expected {NAMES}, got 1"),
        ({"team": {"members": 1}}, f"team.members: expected {LIST}, got 1"),
        ({"price": {"priceAmount": "a"}}, "price.priceAmount: expected a number, got 'a'"),
        ({"servers": [{"port": [1]}]}, "servers.0.port: expected a whole number or text in quotes, got [1]"),
        (
            {"slaProperties": [{"property": "freshness", "value": [1], "unit": "h"}]},
            "slaProperties.0.value: expected text in quotes, a number or true or false, got [1]",
        ),
        ({"schema": [1]}, f"schema: expected {NAMES}, got 1"),
    ],
)
def test_a_wrong_value_of_the_document_is_refused_once(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    assert refused(tmp_path, sound() | change) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (1.5, "expected a whole number, got 1.5"),
        ("first", "expected a whole number, got 'first'"),
        (float("inf"), "expected a finite number, got inf"),
    ],
)
def test_a_wrong_value_of_a_property_is_refused_with_its_name(tmp_path: Path, value: Any, said: str) -> None:
    document = sound()
    document["schema"][0]["properties"][5]["primaryKeyPosition"] = value
    assert refused(tmp_path, document) == f"schema.properties.tailnum.primaryKeyPosition: {said}"
