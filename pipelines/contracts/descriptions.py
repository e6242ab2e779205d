"""What a contract says for people about its table and columns, and which of them hold personal data."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipelines.contracts.contract import DataContract
from pipelines.contracts.odcs_document import read_document
from pipelines.contracts.types import nested


@dataclass(frozen=True)
class Descriptions:
    """What is said about a table.

    Attributes:
        table: What a row is; empty if nothing is said.
        columns: What a column means, by its path; only those of which something is said.
        classes: The `classification` of the standard, by the path of the column.
    """

    table: str
    columns: Mapping[str, str]
    classes: Mapping[str, str]


def descriptions_of(contract: DataContract) -> Descriptions:
    """Return what the file of a contract says for people.

    Raises:
        ContractError: The file cannot be read any more.
    """
    document, _ = read_document(Path(contract.path))
    (item,) = document.schema_ or []
    parts = [(path, part) for path, part, _ in nested(item.properties or [])]
    purpose = document.description.purpose if document.description else None
    return Descriptions(
        table=" ".join(filter(None, (item.description, purpose))),
        columns={path: part.description for path, part in parts if part.description},
        classes={path: part.classification for path, part in parts if part.classification},
    )
