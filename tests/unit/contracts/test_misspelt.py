"""A contract whose key is misspelt is refused, or says the same: no rule gets lost without a word."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.contracts.contract import DataContract
from pipelines.errors import ContractError
from pipelines.formats.contract_files import load_contract
from tests.fuzz.mutants import at, paths

CONTRACTS = ("data_contracts/flights.odcs.yaml", "tests/support/contracts/orders.odcs.yaml")
OTHERS = {
    "slaProperties": [
        {"property": "freshness", "value": 36, "unit": "h", "element": "flights.scheduled_departure"}
    ]
}


def slips(word: str) -> Iterator[str]:
    """A word with two letters that change places, with one left out, and with another one."""
    middle = len(word) // 2
    yield word[: middle - 1] + word[middle] + word[middle - 1] + word[middle + 1 :]
    yield word[:middle] + word[middle + 1 :]
    yield word[:middle] + ("x" if word[middle] != "x" else "y") + word[middle + 1 :]


def contract_of(document: Any, folder: Path) -> DataContract | None:
    path = folder / "c.odcs.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    try:
        return load_contract(path)
    except ContractError:
        return None


@pytest.mark.parametrize("path", CONTRACTS)
def test_no_rule_is_lost_by_a_misspelt_key(path: str, tmp_path: Path) -> None:
    whole = yaml.safe_load(Path(path).read_text()) | (OTHERS if "flights" in path else {})
    meant, looked_at = contract_of(whole, tmp_path), set()
    assert meant
    for place in list(paths(whole)):
        key, names = place[-1], tuple(step for step in place if isinstance(step, str))
        if not isinstance(key, str) or names in looked_at or "description" in names:
            continue
        looked_at.add(names)
        for slip in {*slips(key)} - {key}:
            document = copy.deepcopy(whole)
            holder = at(document, place[:-1])
            holder[slip] = holder.pop(key)
            assert contract_of(document, tmp_path) in (None, meant), (place, slip)
