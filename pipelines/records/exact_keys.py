"""Parts of the dedup key that are not held exactly, as SQL: two keys would become one.

Spark keeps microseconds, rounds a number to the places of its decimal and takes the nearest double. What
is no part of the key may be rounded so; a part of the key may not.
"""

from collections.abc import Callable, Iterator
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    StringType,
    TimestampType,
)

from pipelines.contracts.contract import DataContract
from pipelines.formats.catalog import format_of
from pipelines.formats.value_format import DOCUMENT, VALUE
from pipelines.schema_paths import flat
from pipelines.sql import literal, name

SENT_KEY: Final = "_sent_key"

# Up to the next number that stands for itself: what is within a text is stepped over with the text.
_NUMBER: Final = r'\G((?:[^"0-9-]++|"(?:[^"\\]++|\\.)*+")*+)(-?[0-9][-+.eE0-9]*+)'
_BELOW_MICROSECONDS: Final = r"\.[0-9]{6}[0-9]*[1-9]"
_REWRITTEN: Final = r'\A(?:-?[0-9]+\.[0-9]|"?-?Infinity|[{\[])'
_NEGATIVE_ZERO: Final = r":\s*-0\s*[,}]"
# From here on a double, or a float, does not hold every whole number.
_WHOLE_BELOW: Final[dict[type[DataType], int]] = {DoubleType: 2**53, FloatType: 2**24}
_HALF: Final = 2**63
# Twice 63 bits are more than a decimal has.
_TOLD_BELOW: Final = "1E34D"

_Rounded: Final = (DecimalType, DoubleType, FloatType)

Sql = Callable[[str], str]


def sent_key(contract: DataContract) -> str | None:
    """Return SQL for the numbers of the key exactly as they were sent: a struct like the key's columns.

    Spark gives no number's text; so all numbers are put in quotes before it reads them.

    Returns:
        None if no part of the key is a number that may be rounded.
    """
    kinds = flat(contract.schema)
    paths = [path for path in contract.key if isinstance(kinds[path].dataType, _Rounded)]
    return _as_sent(paths) if paths else None


def inexact_parts(contract: DataContract, wire: Sql) -> Iterator[tuple[str, str, str]]:
    """Yield what of the key may not be held as it was sent.

    Args:
        contract: names the key.
        wire: SQL for a column as Spark has read it.

    Yields:
        The path of a part; an SQL condition that is true if it was bent; and SQL for what was sent.
    """
    kinds = flat(contract.schema)
    for path in contract.key:
        sent = f"{SENT_KEY}.{VALUE}.{name(path)}"
        match kinds[path].dataType:
            case StringType():
                yield path, _rewritten(path), name(path)
            case TimestampType():
                yield path, f"{wire(path)} RLIKE {literal(_BELOW_MICROSECONDS)}", wire(path)
            case DecimalType():
                yield path, _differs(sent, f"CAST({name(path)} AS STRING)"), sent
            case DoubleType() | FloatType() as kind:
                is_shortest = format_of(contract).has_shortest_doubles
                yield (
                    path,
                    _differs(sent, _double_as_text(name(path), sent, kind, is_shortest=is_shortest)),
                    sent,
                )


def one_zero(contract: DataContract) -> dict[str, Column]:
    """Return columns of the key's doubles, with a zero in the place of a negative one: it is the same number.

    Spark compares them as equal, and writes them as two, so that a reader of the output topic had two keys.
    """
    kinds = flat(contract.schema)
    replacements: dict[str, Column] = {}
    for path in contract.key:
        kind = kinds[path].dataType
        if isinstance(kind, DoubleType | FloatType):
            column, _, within = path.partition(".")
            value = F.when(F.col(path) == 0, F.lit(0.0).cast(kind)).otherwise(F.col(path))
            replacements[column] = (
                replacements.get(column, F.col(column)).withField(within, value) if within else value
            )
    return replacements


def _rewritten(column: str) -> str:
    """Return true for a text of the key that was sent as a value that Spark writes in its own way."""
    at = literal(f"$.{VALUE}" + "".join(f"['{part}']" for part in column.split(".")))
    kind = f"schema_of_variant(try_variant_get(try_parse_json({DOCUMENT}), {at}, 'variant'))"
    # It is parsed again only for a key that looks like one. A document that has a name twice is no variant.
    zero = f"{name(column)} = '0' AND {DOCUMENT} RLIKE {literal(_NEGATIVE_ZERO)}"
    return (
        f"CASE WHEN {name(column)} RLIKE {literal(_REWRITTEN)} OR {zero}"
        f" THEN coalesce({kind}, '') != 'STRING' END"
    )


def _as_sent(paths: list[str]) -> str:
    quoted = f"""regexp_replace({DOCUMENT}, {literal(_NUMBER)}, '$1"$2"')"""
    schema = f"{VALUE} {_texts([path.split('.') for path in paths])}"
    return f"from_json({quoted}, {literal(schema)}, map('allowSingleQuotes', 'false'))"


def _texts(paths: list[list[str]]) -> str:
    """Return the type of an object that has texts at these paths."""
    inner: dict[str, list[list[str]]] = {}
    for first, *rest in paths:
        inner.setdefault(first, []).append(rest)
    fields = (f"{name(part)}: {_texts(rests) if any(rests) else 'string'}" for part, rests in inner.items())
    return f"struct<{', '.join(fields)}>"


def _double_as_text(column: str, sent: str, kind: DataType, *, is_shortest: bool) -> str:
    """Return SQL for the number that a double stands for, as text.

    A fraction has no end in binary: it is held exactly if it is what the double is written as, as no other
    number is then. A large whole number must be the very number that the double is.
    """
    written = f"CAST({column} AS STRING)"
    size = f"abs(CAST({column} AS DOUBLE))"
    high = f"CAST(CAST(floor({size} / {_HALF}D) AS BIGINT) AS DECIMAL(38,0)) * {_HALF}BD"
    low = f"CAST({size} % {_HALF}D AS BIGINT)"
    whole = f"concat(IF({column} < 0, '-', ''), CAST({high} + {low} AS STRING))"
    # Only a double is sent with an exponent then.
    own = f"OR {sent} LIKE '%E%'" if is_shortest else ""
    return (
        f"CASE WHEN {size} < {_WHOLE_BELOW[type(kind)]}D {own} THEN {written}"
        f" WHEN {size} < {_TOLD_BELOW} THEN {whole} END"
    )


def _differs(sent: str, stored: str) -> str:
    """Return true if two texts are two numbers; false if nothing was sent."""
    return f"{sent} IS NOT NULL AND NOT coalesce({_number(sent)} = {_number(stored)}, false)"


def _number(text: str) -> str:
    """Return SQL for a text that is equal for equal numbers, however they are written; null for no number."""
    digits = "replace(_m, '.', '')"
    places = "IF(instr(_m, '.') = 0, 0, length(_m) - instr(_m, '.'))"
    exponent = "IF(_t RLIKE '[eE]', CAST(try_cast(regexp_extract(_t, '[eE](.*)$', 1) AS INT) AS BIGINT), 0)"
    significant = "trim(TRAILING '0' FROM _d)"
    power = f"{exponent} - {places} + length(_d) - length({significant})"
    signed = f"concat(IF(startswith(_t, '-'), '-', ''), {significant}, 'E', {power})"
    number = f"IF({significant} = '', '0', {signed})"
    of_digits = _let("_d", f"trim(LEADING '0' FROM {digits})", number)
    of_mantissa = _let("_m", r"regexp_replace(_t, '^[-+]|[eE].*$', '')", of_digits)
    return _let("_t", text, of_mantissa)


def _let(variable: str, value: str, then: str) -> str:
    return f"element_at(transform(array({value}), {variable} -> {then}), 1)"
