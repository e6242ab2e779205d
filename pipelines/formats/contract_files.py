"""Contracts as files, whose values are of the formats that are registered."""

from pathlib import Path

from pipelines.contracts.contract import DataContract, read_contract
from pipelines.formats.registered_formats import FORMATS


def load_contract(path: Path) -> DataContract:
    """Read and check a contract; see `pipelines.contracts.contract.read_contract`.

    Raises:
        ContractError: The file is missing or breaks the standard or a need of Oncelake.
    """
    return read_contract(path, FORMATS)
