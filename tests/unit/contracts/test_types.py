"""The columns that properties stand for."""

import time

import pytest
from open_data_contract_standard.model import SchemaProperty

from pipelines.contracts.types import columns


def test_ten_thousand_columns_take_no_time_to_speak_of() -> None:
    properties = [SchemaProperty(name=f"c{number}", logicalType="string") for number in range(10_000)]
    began = time.process_time()
    found = columns(properties, "schema.properties", lambda place, reason: pytest.fail(f"{place}: {reason}"))
    assert len(found) == 10_000
    # It took eight seconds while each name was compared with all others.
    assert time.process_time() - began < 2


def test_two_names_that_differ_in_case_alone_are_one_column_to_spark() -> None:
    refusals: list[str] = []
    properties = [SchemaProperty(name=name, logicalType="string") for name in ("Straße", "gate", "Gate")]
    columns(properties, "p", lambda place, reason: refusals.append(f"{place}: {reason}"))
    assert [each.partition(" (")[0] for each in refusals] == [
        "p.Straße: name: expected letters, digits and _, a letter first, got 'Straße'",
        "p.Gate: found the name twice",
    ]
