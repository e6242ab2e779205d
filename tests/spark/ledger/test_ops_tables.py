"""The rows that code writes have the columns that the catalog gives to their tables."""

from dataclasses import fields
from datetime import date, datetime
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from pyspark.sql.types import BooleanType, DataType, DateType, DoubleType, LongType, StringType, TimestampType

from pipelines.ledger.certifications import Verdict
from pipelines.ledger.checks import Check
from pipelines.ledger.lease_holders import Holder
from pipelines.ledger.ops_tables import CERTIFICATIONS, LEASES, OPS_TABLES, VALIDATION_RESULTS, TableSpec

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

SPARK: dict[Any, DataType] = {
    str: StringType(),
    int: LongType(),
    float: DoubleType(),
    bool: BooleanType(),
    date: DateType(),
    datetime: TimestampType(),
}


def columns_of(row: type) -> dict[str, DataType]:
    return {field.name: SPARK[python_type(get_type_hints(row)[field.name])] for field in fields(row)}


def python_type(hint: Any) -> Any:
    if get_origin(hint) in (Union, UnionType):
        (hint,) = {python_type(part) for part in get_args(hint)} - {type(None)}
    return str if get_origin(hint) is Literal else hint


def test_a_verdict_is_a_row_of_its_table() -> None:
    assert columns_of(Verdict) == {field.name: field.dataType for field in CERTIFICATIONS.schema}


@pytest.mark.parametrize(("row", "spec"), [(Check, VALIDATION_RESULTS), (Holder, LEASES)])
def test_what_a_row_is_made_of_are_columns_of_its_table(row: type, spec: TableSpec) -> None:
    columns = {field.name: field.dataType for field in spec.schema}
    assert columns_of(row).items() <= columns.items()


def test_each_table_is_divided_by_columns_that_it_has() -> None:
    for spec in OPS_TABLES:
        assert set(spec.partitions) <= set(spec.schema.names), spec.name
    assert len({spec.name for spec in OPS_TABLES}) == len(OPS_TABLES)
