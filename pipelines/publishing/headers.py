"""Headers of rows that are to be published: as frames have them, and as producers take them.

A frame has them as a list, or by name: a struct whose fields are headers, texts or integers, of which those
that are null are left out. Headers by name are cheaper, since only their values go through Arrow.
"""

from collections.abc import Iterator
from itertools import islice, repeat
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegralType, StringType, StructField, StructType

from pipelines.errors import ConfigError

LISTED: Final = "array<struct<key: string, value: binary>>"
"""The type of a list of headers, which is also that of Spark's Kafka source and sink."""

_HEADERS: Final = "headers"
Header = tuple[str, str | bytes | None]


def listed(rows: DataFrame) -> Column:
    """Return the headers of rows as a list.

    Args:
        rows: With `headers`, as a list or by name.

    Raises:
        ConfigError: By name there is one that is neither text nor an integer.
    """
    if (named := _named(rows)) is None:
        return F.col(_HEADERS).cast(LISTED)
    each = (
        F.when(value.isNotNull(), F.struct(key.alias("key"), value.alias("value"))) for key, value in named
    )
    return F.array_compact(F.array(*each)).cast(LISTED)


def normalized(rows: DataFrame) -> Column:
    """Return the headers of rows as they are if these are by name, else as a list."""
    return F.col(_HEADERS) if _named(rows) is not None else listed(rows)


def hashed(rows: DataFrame) -> list[Column]:
    """Return what to hash of the headers of rows.

    Spark hashes a list as it hashes its elements one after the other, and leaves out nulls. So the hash of
    headers is the same in both forms.

    Args:
        rows: With `headers`, as a list or by name.
    """
    if (named := _named(rows)) is None:
        return [F.col(_HEADERS)]
    return [column for key, value in named for column in (F.when(value.isNotNull(), key), value)]


def headers_of(column: pa.Array) -> Iterator[list[Header]]:
    """Yield the headers of each row, made of whole columns: an object for each would take most of the time.

    Args:
        column: A list or a struct, see above. A row without a list has no headers.
    """
    if pa.types.is_struct(column.type):
        yield from _of_struct(column)
        return
    flat = column.flatten()
    pairs = zip(flat.field("key").to_pylist(), flat.field("value").to_pylist(), strict=True)
    for length in pc.list_value_length(column).fill_null(0).to_pylist():
        yield list(islice(pairs, length))


def _of_struct(column: pa.StructArray) -> Iterator[list[Header]]:
    columns = zip(column.type, column.flatten(), strict=True)
    there = [(field.name, values) for field, values in columns if values.null_count < len(values)]
    if not there:
        return repeat([], len(column))
    rows = zip(*(zip(repeat(name), _bytes(values)) for name, values in there), strict=True)
    if any(values.null_count for _, values in there):
        return ([header for header in row if header[1] is not None] for row in rows)
    return map(list, rows)


def _bytes(values: pa.Array) -> list[bytes | None]:
    as_bytes: list[bytes | None] = values.cast(pa.string()).cast(pa.binary()).to_pylist()
    return as_bytes


def _named(rows: DataFrame) -> list[tuple[Column, Column]] | None:
    """Return names and values of headers that are by name; None for a list.

    Raises:
        ConfigError: A value has another type, whose text is not the same in Spark and in Arrow.
    """
    kind = rows.schema[_HEADERS].dataType
    if not isinstance(kind, StructType):
        return None
    for field in kind:
        if not isinstance(field.dataType, StringType | IntegralType):
            raise ConfigError(
                f"headers.{field.name}: found {field.dataType.simpleString()}, expected text or an integer;"
                " cast it"
            )
    return [(F.lit(field.name), _value(field)) for field in kind]


def _value(field: StructField) -> Column:
    return F.col(_HEADERS).getField(field.name).cast("string").cast("binary")
