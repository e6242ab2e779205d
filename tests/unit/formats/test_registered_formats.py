"""A contract may name a value format if, and only if, one module says how its values are read."""

import pytest

from pipelines.errors import ContractError
from pipelines.formats.registered_formats import FORMATS
from pipelines.formats.schema_columns import columns_of
from pipelines.records.reasons import REASONS
from pipelines.registry.confluent import CONFLUENT
from pipelines.registry.wire_format import Writers, WriterSchema


def test_a_schema_is_of_one_format() -> None:
    kinds = [each.schema_kind for each in FORMATS.values() if each.schema_kind is not None]
    assert len(kinds) == len(set(kinds))


@pytest.mark.parametrize("name", ["avro", "json_schema"])
def test_what_is_wrong_with_a_framed_value_has_a_reason_that_people_can_read(name: str) -> None:
    faults = FORMATS[name].document_faults(Writers({"7": WriterSchema("7", "AVRO", '"string"')}, CONFLUENT))
    assert faults
    assert {fault.reason for fault in faults} <= set(REASONS)


def test_a_schema_of_no_format_is_refused() -> None:
    with pytest.raises(ContractError, match=r"schema 7 of the registry: .* kind PROTOBUF"):
        columns_of(WriterSchema("7", "PROTOBUF", "{}"))
