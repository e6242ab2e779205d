"""What the quarantine says of a value is shown as far as the contract of now lets it be."""

from dataclasses import replace
from typing import Any

import pytest

from pipelines.contracts.contract import DataContract
from pipelines.records.redaction import shown_found


@pytest.mark.parametrize(
    ("column", "found", "shown"),
    [
        ("dest", "IAH", "IAH"),
        (None, "IAH", "IAH"),
        ("tailnum", "sha256:0011223344556677", "sha256:0011223344556677"),
        # Written before the contract called the column personal.
        ("tailnum", "N14228", None),
        ("tailnum", None, None),
        ("carrier", "UA", None),
        # Written when the contract showed its fingerprint.
        ("carrier", "sha256:0011223344556677", None),
        # As producers may send it.
        ("tailnum", "sha256:N14228", None),
        ("tailnum", "sha256:0011223344556677 N14228", None),
    ],
)
def test_a_personal_value_is_shown_as_a_fingerprint_or_not_at_all(
    contract: DataContract, column: str | None, found: str | None, shown: str | None
) -> None:
    personal: Any = {"tailnum": "hash", "carrier": "drop"}
    assert shown_found(replace(contract, personal=personal), column, found) == shown
