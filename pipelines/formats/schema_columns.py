"""A schema of a registry -> the columns that its records have once they have become JSON."""

import json
from typing import Final

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from pipelines.errors import ContractError
from pipelines.formats.registered_formats import format_of_kind
from pipelines.registry.wire_format import WriterSchema

_SHOWN: Final = 60
_MOST_PARTS: Final = 20_000


def columns_of(schema: WriterSchema) -> StructType:
    """Return the columns that a schema stands for; one that may be null or left out is nullable.

    Args:
        schema: Of the kind `AVRO` or `JSON`, with all that it refers to.

    Returns:
        The columns, in the order of the schema. What a schema of JSON does not say, or says in another way
        than by types and properties, is `ANYTHING`; an object that names no properties is a map, or, as the
        whole, has no columns.

    Raises:
        ContractError: Its values are no objects, or it cannot be read by.
    """
    place = f"schema {schema.id} of the registry"
    try:
        value_format = format_of_kind(schema.kind)
        if value_format is None:
            raise ValueError(f"no value format reads by schemas of the kind {schema.kind}")
        kind = value_format.columns(schema.text)
        if _parts(kind, {}) > _MOST_PARTS:
            raise ValueError(f"the types that it names stand for more than {_MOST_PARTS:,} parts")
    except RecursionError:
        raise ContractError(f"{place}: no decoding can be made of it: it is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ContractError(
            f"{place}: expected a schema in JSON, got {schema.text[:_SHOWN]!r}: {error}"
        ) from None
    except KeyError as error:
        raise ContractError(f"{place}: no decoding can be made of it: a part lacks {error}") from None
    except (ValueError, TypeError, AttributeError, AssertionError, OverflowError) as error:
        raise ContractError(f"{place}: no decoding can be made of it: {error}") from None
    match kind:
        case StructType():
            return kind
        case MapType():
            return StructType([])
        case _:
            raise ContractError(
                f"{place}: expected a record, or an object with properties, got {kind.simpleString()}:"
                " its values cannot be compared with columns"
            )


def _parts(kind: DataType, known: dict[int, int]) -> int:
    """Return how many parts a type has; one that stands at many places is counted at each."""
    if id(kind) not in known:
        match kind:
            case StructType():
                inner = [field.dataType for field in kind]
            case ArrayType():
                inner = [kind.elementType]
            case MapType():
                inner = [kind.valueType]
            case _:
                inner = []
        known[id(kind)] = 1 + sum(_parts(part, known) for part in inner)
    return known[id(kind)]
