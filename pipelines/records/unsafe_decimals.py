"""Decimals that Spark must not be given, as SQL text.

Spark computes a decimal with all its digits: `1e-99999999` would keep a core busy for minutes, or for ever.
And in text it takes any comma away, so that `"1,5"` would be 15.
"""

from collections.abc import Iterator
from typing import Final

from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StringType, StructType

from pipelines.sql import literal, name

UNSAFE: Final = "_unsafe"

# As Java reads numbers: its digits are those of every script.
_DIGIT: Final = r"\p{Nd}"
_HUGE: Final = rf"[{_DIGIT}.][eE][-+]?0*[{_DIGIT}&&[^0]]{_DIGIT}{{3}}"
_ESCAPE: Final = r"\\u[0-9a-fA-F]{4}"
# True for more than is unsafe, since names and texts may look like it; then it is looked at more closely.
_SUSPECT: Final = "|".join(
    [
        _HUGE,
        rf'"[-+.eE{_DIGIT}]*{_DIGIT}[-+.eE{_DIGIT}]*,',
        rf'",[-+.,eE{_DIGIT}]*{_DIGIT}[-+.,eE{_DIGIT}]*"',
        # Any sign may be written as an escape.
        rf'"[-+.,eE{_DIGIT}]*{_ESCAPE}(?:[-+.,eE{_DIGIT}]|{_ESCAPE})*+"',
    ]
)
_TEXT: Final = r'"(?:[^"\\]++|\\.)*+"'
_UNSAFE_TEXT: Final = f",|{_HUGE}"


def unsafe(schema: StructType, document: str) -> str | None:
    """Return an SQL condition that is true for JSON in which Spark must not look for decimals.

    That is where any number has an exponent of more than three digits, or a text in the place of a decimal
    has one, or a comma. Null where there is no JSON.

    Args:
        schema: the contract's columns.
        document: SQL for JSON text `{"r": VALUE}`.

    Returns:
        None if the contract has no decimals.
    """
    texts = _texts(schema)
    if texts is None:
        return None
    number = f"regexp_replace({document}, {literal(_TEXT)}, '') RLIKE {literal(_HUGE)}"
    read = f"from_json({document}, {literal(f'r {_ddl(texts)}')}, map('allowSingleQuotes', 'false'))"
    broken = " OR ".join(_broken("_d.r", texts))
    text = f"exists(array({read}), _d -> {broken})"
    return (
        f"CASE WHEN {document} RLIKE {literal(_SUSPECT)}"
        f" THEN {number} OR coalesce({text}, false) WHEN {document} IS NOT NULL THEN false END"
    )


def has_decimals(schema: StructType) -> bool:
    """Return whether a contract has decimals at any depth."""
    return _texts(schema) is not None


def _texts(kind: DataType) -> DataType | None:
    """Return the type with nothing but its decimals, as text; None if it has none."""
    match kind:
        case DecimalType():
            return StringType()
        case StructType():
            inner = StructType()
            for field in kind:
                if texts := _texts(field.dataType):
                    inner.add(field.name, texts)
            return inner if len(inner) else None
        case ArrayType():
            texts = _texts(kind.elementType)
            return texts and ArrayType(texts)
        case MapType():
            texts = _texts(kind.valueType)
            return texts and MapType(StringType(), texts)
        case _:
            return None


def _ddl(kind: DataType) -> str:
    match kind:
        case StructType():
            return f"struct<{', '.join(f'{name(f.name)}: {_ddl(f.dataType)}' for f in kind)}>"
        case ArrayType():
            return f"array<{_ddl(kind.elementType)}>"
        case MapType():
            return f"map<string, {_ddl(kind.valueType)}>"
        case _:
            return kind.simpleString()


def _broken(value: str, kind: DataType) -> Iterator[str]:
    """Yield SQL conditions, true for a value that holds an unsafe text."""
    match kind:
        case StructType():
            for field in kind:
                yield from _broken(f"{value}.{name(field.name)}", field.dataType)
        case ArrayType():
            yield from (f"exists({value}, _d -> {inner})" for inner in _broken("_d", kind.elementType))
        case MapType():
            values = f"map_values({value})"
            yield from (f"exists({values}, _d -> {inner})" for inner in _broken("_d", kind.valueType))
        case _:
            yield f"{value} RLIKE {literal(_UNSAFE_TEXT)}"
