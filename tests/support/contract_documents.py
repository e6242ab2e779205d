"""Contracts as documents, which tests change, and what is said of those that are refused."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.errors import ContractError
from pipelines.formats.contract_files import load_contract

CONTRACTS = Path("data_contracts")
NESTED = Path("tests/support/contracts/orders.odcs.yaml")


def sound() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((CONTRACTS / "flights.odcs.yaml").read_text())
    return copy.deepcopy(document)


def load(tmp_path: Path, document: Any) -> Any:
    path = tmp_path / "c.odcs.yaml"
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return load_contract(path)


def refusal(tmp_path: Path, document: Any) -> str:
    with pytest.raises(ContractError) as refused:
        load(tmp_path, document)
    return str(refused.value)
