"""Whether what producers send today keeps a contract, judged by the schema that they registered.

The rule is that of decoding: a record becomes JSON text, and Spark reads that by the contract's types, as
docs/semantics.md says in 'Reasons for quarantine'. Only what is there and of which type is compared; rules
on values (bounds, patterns, enums) are not, since few schemas say them.
"""

from collections.abc import Iterator
from typing import Final, Literal

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pipelines.contracts.contract import DataContract
from pipelines.contracts.diff import PRODUCERS, Change, Party, kind_name
from pipelines.formats.json_columns import ANYTHING, AnyInteger, AnyNumber
from pipelines.formats.registered_formats import format_of
from pipelines.formats.schema_columns import columns_of
from pipelines.registry.wire_format import WriterSchema

Fit = Literal["whole", "as UTC", "some texts", "rounded", "unbounded", "some numbers", "none"]

_NUMBERS: Final = (IntegerType, LongType, FloatType, DoubleType, DecimalType)
_DIGITS_OF_INT: Final = 10
_DIGITS_OF_LONG: Final = 19


def producer_changes(contract: DataContract, schema: WriterSchema) -> list[Change]:
    """Return what of a contract producers break who write by a schema, and what is only worth knowing.

    Args:
        contract: A contract whose values name schemas.
        schema: What producers write by.

    Returns:
        In the order of the contract; what fits is not listed. No change breaks anybody but producers.

    Raises:
        ContractError: The schema stands for no columns, or Spark cannot read by it.
    """
    kind = format_of(contract).schema_kind
    if schema.kind != kind:
        what = f"'{contract.value_format}' reads by schemas of the kind {kind}, producers write {schema.kind}"
        return [Change("schema.customProperties.valueFormat", what, PRODUCERS)]
    return list(_of_object("", contract.schema, columns_of(schema)))


def _of_object(prefix: str, expected: StructType, sent: StructType) -> Iterator[Change]:
    sent_fields = {field.name: field for field in sent}
    for field in expected:
        path = f"{prefix}{field.name}"
        if field.name in sent_fields:
            sent_field = sent_fields[field.name]
            yield from _of_part(
                path, field.dataType, sent_field.dataType, missing=sent_field.nullable and not field.nullable
            )
        elif field.nullable:
            yield _change(path, "producers do not send it: always null")
        else:
            yield _change(path, "required, but producers do not send it", PRODUCERS)
    for name in (name for name in sent_fields if name not in expected.fieldNames()):
        yield _change(f"{prefix}{name}", "ignored: producers send it, and the contract does not name it")


def _of_part(path: str, expected: DataType, sent: DataType, *, missing: bool) -> Iterator[Change]:
    if missing:
        yield _change(path, "required, but producers may leave it out or send null", PRODUCERS)
    match expected, sent:
        case _, NullType():
            if not missing:
                yield _change(path, "producers send only null")
        case StringType(), _:
            pass
        case _ if sent == ANYTHING:
            yield _change(path, f"producers may send anything, the contract asks for {kind_name(expected)}")
        case _:
            yield from _of_inner(path, expected, sent)


def _of_inner(path: str, expected: DataType, sent: DataType) -> Iterator[Change]:
    match expected, sent:
        case StructType(), StructType():
            yield from _of_object(f"{path}.", expected, sent)
        case StructType(), MapType():
            # Any name may be among the keys, and none must be.
            fields = [StructField(field.name, sent.valueType) for field in expected]
            yield from _of_object(f"{path}.", expected, StructType(fields))
        case MapType(), StructType():
            for field in sent:
                yield from _of_part(f"{path}.{field.name}", expected.valueType, field.dataType, missing=False)
        case ArrayType(), ArrayType():
            missing = sent.containsNull and not expected.containsNull
            yield from _of_part(f"{path}[]", expected.elementType, sent.elementType, missing=missing)
        case MapType(), MapType():
            missing = sent.valueContainsNull and not expected.valueContainsNull
            yield from _of_part(f"{path}{{}}", expected.valueType, sent.valueType, missing=missing)
        case _:
            yield from _of_value(path, expected, sent)


def _of_value(path: str, expected: DataType, sent: DataType) -> Iterator[Change]:
    what = f"producers send {kind_name(sent)}, the contract asks for {kind_name(expected)}"
    match _fit(expected, sent):
        case "as UTC":
            yield _change(path, f"{what}: it has no offset, and is read as UTC")
        case "some texts":
            yield _change(path, f"{what}: read only where the text is one")
        case "rounded":
            yield _change(path, f"{what}: rounded to its places")
        case "unbounded":
            yield _change(path, f"{what}: a value may not fit, or is rounded; no schema says how large it is")
        case "some numbers":
            yield _change(path, f"{what}: a value may not fit", PRODUCERS)
        case "none":
            yield _change(path, f"{what}: another type", PRODUCERS)


def _fit(expected: DataType, sent: DataType) -> Fit:
    """Return how much of what is sent is read as what is wanted."""
    match expected, sent:
        case TimestampType(), TimestampNTZType():
            return "as UTC"
        case TimestampType() | DateType() | DecimalType(), StringType():
            return "some texts"
        case _ if isinstance(expected, _NUMBERS) and isinstance(sent, _NUMBERS):
            return _fit_of_number(expected, sent)
        case _:
            return "whole" if expected == sent else "none"


def _fit_of_number(expected: DataType, sent: DataType) -> Fit:
    before, after = _places(sent)
    match expected, sent:
        case DecimalType() | FloatType(), AnyNumber():
            return "unbounded"
        case DecimalType(), _ if before > expected.precision - expected.scale:
            return "unbounded" if isinstance(sent, AnyInteger) else "some numbers"
        case FloatType(), DoubleType():
            return "some numbers"
        case DecimalType(), _:
            return "rounded" if after > expected.scale else "whole"
        case IntegerType() | LongType(), _ if after:
            # The JSON of such a number has a point, be it 5.0, and is refused.
            return "none"
        case IntegerType(), _:
            holds = expected == sent or before < _DIGITS_OF_INT
        case LongType(), _:
            holds = isinstance(sent, LongType) or before < _DIGITS_OF_LONG
        case _:
            holds = True
    return "whole" if holds else "some numbers"


def _places(sent: DataType) -> tuple[float, float]:
    """Return how many digits a number may have before and after its point."""
    match sent:
        case IntegerType():
            return _DIGITS_OF_INT, 0
        case LongType():
            return _DIGITS_OF_LONG, 0
        case DecimalType():
            return sent.precision - sent.scale, sent.scale
        case _:
            return float("inf"), float("inf")


def _change(path: str, what: str, breaks: tuple[Party, ...] = ()) -> Change:
    return Change(f"schema.properties.{path}", what, breaks)
