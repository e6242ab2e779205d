"""Values as text, as far as a contract lets them be shown."""

import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Final

from pyspark.sql.types import ArrayType, DataType, MapType, StructType, TimestampType

from pipelines.contracts.contract import DataContract
from pipelines.records.fingerprints import canonical
from pipelines.sql import literal, name

FOUND_LENGTH: Final = 200
SHOWN_KEY_LENGTH: Final = 64

_FINGERPRINT: Final = 16
_HASHED: Final = "sha256:"
_WHOLE_FINGERPRINT: Final = re.compile(rf"{_HASHED}[0-9a-f]{{{_FINGERPRINT}}}")
# By default Spark writes milliseconds, and instants that differ would look equal.
_MICROSECONDS: Final = literal("yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX")


def leaves(schema: StructType, prefix: str = "") -> Iterator[tuple[str, DataType]]:
    """Yield the path and type of each column that is no object, and of each such field of an object."""
    for field in schema:
        path = f"{prefix}{field.name}"
        if isinstance(field.dataType, StructType):
            yield from leaves(field.dataType, f"{path}.")
        else:
            yield path, field.dataType


def shown_value(contract: DataContract, column: str, value: str | None = None) -> str | None:
    """Return SQL for what may be shown of a column's value; None if nothing may be.

    Args:
        contract: Says which columns hold personal data.
        column: The path of the column.
        value: SQL for the value, if it is not the column itself.
    """
    text = f"CAST({value or name(column)} AS STRING)"
    match contract.treatment(column):
        case "hash":
            return f"concat('{_HASHED}', left(sha2({text}, 256), {_FINGERPRINT}))"
        case "drop":
            return None
        case None:
            return text


def shown_found(contract: DataContract, column: str | None, found: str | None) -> str | None:
    """Return what may be shown of a value that the quarantine or a sample has; None if nothing may be.

    The contract may call a column personal that an earlier one, by which the row was written, did not; or
    hide a value of which that one showed the fingerprint.

    Args:
        contract: Says which columns hold personal data.
        column: The path of the column, if the row names one.
        found: What it found there.
    """
    match contract.treatment(column) if column else None:
        case "hash":
            return found if found and _WHOLE_FINGERPRINT.fullmatch(found) else None
        case "drop":
            return None
        case None:
            return found


def shown_record_key(contract: DataContract, key: bytes) -> str | None:
    """Return what may be shown of a Kafka record's key; None if nothing may be.

    A record's key is no column of the contract, and may have the value of any: it is shown as the column that
    hides most. The fingerprint is that of a column whose text is the key.

    Args:
        contract: Says which columns hold personal data.
        key: The key.

    Returns:
        The key as text, cut, or in hexadecimal if it is none; or its fingerprint.
    """
    treatments = {*contract.personal.values()}
    if "drop" in treatments:
        return None
    if treatments:
        return f"{_HASHED}{sha256(key).hexdigest()[:_FINGERPRINT]}"
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = ""
    shown = f"'{text}'" if text.isprintable() and (text or not key) else f"0x{key.hex()}"
    return shown if len(shown) <= SHOWN_KEY_LENGTH else f"{shown[:SHOWN_KEY_LENGTH]}… ({len(key):,} bytes)"


def text_of(contract: DataContract, path: str, kind: DataType, column: str | None = None) -> str:
    """Return SQL for a value as text, as far as it may be shown, cut.

    Args:
        contract: Says which columns hold personal data.
        path: The path of the value in the contract.
        kind: Its type.
        column: SQL for the value where it does not stand at its path.
    """
    source = column or name(path)
    match kind:
        case ArrayType() | MapType() if contract.treatment(path) == "hash":
            # Equal values have one fingerprint, in whatever order a map's entries came.
            value = _json(canonical(source, kind))
        case MapType():
            value = _json(_in_order(source))
        case ArrayType():
            value = _json(source)
        case TimestampType():
            # Reports show all other instants in the zone of the day, and name it.
            value = f"concat(CAST({source} AS STRING), ' UTC')"
        case _:
            value = source
    text = shown_value(contract, path, value) or "CAST(NULL AS STRING)"
    cut = f"concat(left({text}, {FOUND_LENGTH}), '… (', format_number(length({text}), 0), ' characters)')"
    return f"CASE WHEN length({text}) > {FOUND_LENGTH} THEN {cut} ELSE {text} END"


def _json(value: str) -> str:
    return f"to_json({value}, map('timestampFormat', {_MICROSECONDS}))"


def _in_order(entries: str) -> str:
    """Return SQL for a map whose entries stand by their keys, so that equal ones look equal."""
    # No column of a contract begins with _, so the variable hides none.
    pair = f"struct(_k, element_at({entries}, _k))"
    return f"map_from_entries(transform(array_sort(map_keys({entries})), _k -> {pair}))"
