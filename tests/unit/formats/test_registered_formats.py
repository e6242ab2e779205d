"""A contract may name a value format if, and only if, one module says how its values are read."""

from pathlib import Path

import pytest

from pipelines.errors import ContractError
from pipelines.formats.registered_formats import FORMATS, java_options
from pipelines.formats.schema_columns import columns_of
from pipelines.records.reasons import REASONS
from pipelines.registry.confluent import CONFLUENT
from pipelines.registry.wire_format import Writers, WriterSchema


def test_a_schema_is_of_one_format() -> None:
    kinds = [each.schema_kind for each in FORMATS.values() if each.schema_kind is not None]
    assert len(kinds) == len(set(kinds))


@pytest.mark.parametrize("name", [name for name, each in FORMATS.items() if each.schema_kind])
def test_what_is_wrong_with_a_framed_value_has_a_reason_that_people_can_read(name: str) -> None:
    faults = FORMATS[name].document_faults(Writers({"7": WriterSchema("7", "AVRO", '"string"')}, CONFLUENT))
    assert faults
    assert {fault.reason for fault in faults} <= set(REASONS)


@pytest.mark.parametrize(
    "file", ["conf/spark-defaults.conf", "deploy/kubernetes/scheduled-spark-application.yaml"]
)
def test_executors_get_the_options_of_all_formats(file: str) -> None:
    options = {f"-D{key}={value}" for key, value in java_options().items()}
    assert options
    assert options - {*Path(file).read_text(encoding="utf-8").split()} == set()


def test_a_schema_of_no_format_is_refused() -> None:
    with pytest.raises(ContractError, match=r"schema 7 of the registry: .* kind PROTOBUF"):
        columns_of(WriterSchema("7", "PROTOBUF", "{}"))
