"""What the quarantine says of a value is shown as far as the contract of now lets it be."""

from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from pipelines.contracts.contract import DataContract
from pipelines.records.redaction import shown_found, shown_record_key


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


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        (b"UA", "'UA'"),
        ("Zürich".encode(), "'Zürich'"),
        (b"", "''"),
        (b"\x00\x00\x00\x00\x07\x02", "0x000000000702"),
        (b"\xff", "0xff"),
        # As a terminal would obey it.
        (b"\x1b[31m", "0x1b5b33316d"),
        (b"k" * 1_000_000, f"'{'k' * 63}… (1,000,000 bytes)"),
    ],
)
def test_a_record_key_is_shown_as_text_or_in_hexadecimal(
    contract: DataContract, key: bytes, shown: str
) -> None:
    assert shown_record_key(contract, key) == shown


def test_a_record_key_may_be_the_value_of_any_column_and_is_hidden_as_the_one_that_hides_most(
    contract: DataContract,
) -> None:
    hashing: Any = {"tailnum": "hash"}
    fingerprint = sha256(b"N14228").hexdigest()[:16]
    assert shown_record_key(replace(contract, personal=hashing), b"N14228") == f"sha256:{fingerprint}"
    dropping: Any = {"tailnum": "hash", "carrier": "drop"}
    assert shown_record_key(replace(contract, personal=dropping), b"UA") is None
