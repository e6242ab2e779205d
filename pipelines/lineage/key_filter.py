"""A dedup key as people write it, `order.id=o-7`, as conditions in SQL."""

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation
from math import isfinite
from typing import Final

from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
)

from pipelines.contracts.contract import DataContract
from pipelines.errors import ConfigError
from pipelines.formats.registered_formats import format_of
from pipelines.records.decode import EVENT_DATE
from pipelines.records.moments import DATE, FINER, TIMESTAMP
from pipelines.records.redaction import text_of
from pipelines.schema_paths import flat
from pipelines.sql import literal, name

_FINGERPRINT: Final = re.compile(r"sha256:[0-9a-f]{16}")
_WHOLE: Final = re.compile(r"[+-]?\d{1,19}")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EXACT: Final = Context(prec=100)
_BITS: Final = {IntegerType: 32, LongType: 64}
_FLOAT_DIGITS: Final = 9
"""With so many digits each float is written as no other one."""


@dataclass(frozen=True)
class AskedPart:
    """A part of a dedup key that is asked for.

    Attributes:
        path: The part, by its path in the contract.
        value: SQL for the value, in the part's type; None if only its fingerprint is known.
        fingerprint: What reports show of it, where the contract hides it behind one.
    """

    path: str
    value: str | None
    fingerprint: str | None = None

    def holds(self, contract: DataContract, value: str) -> str:
        """Return an SQL condition: whether a value is the one that is asked for.

        Args:
            contract: The contract that names the part.
            value: SQL for the value, in the part's type.
        """
        if self.value is not None:
            return f"{value} = {self.value}"
        kind = flat(contract.schema)[self.path].dataType
        return f"{text_of(contract, self.path, kind, value)} = {literal(self.fingerprint)}"


def asked_key(contract: DataContract, texts: Sequence[str]) -> tuple[AskedPart, ...]:
    """Read the parts of a dedup key, in the order of the contract.

    Args:
        contract: Names the key and the types of its parts.
        texts: `path=value`; the value of a part that the contract hides behind a fingerprint may be the
            fingerprint.

    Raises:
        ConfigError: A part is not one of the contract's key, is given twice, or its value does not fit.
    """
    parts: dict[str, AskedPart] = {}
    for text in texts:
        path, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--key {text}: expected COLUMN=VALUE, such as {contract.key[0]}=…")
        if path not in contract.key:
            raise ConfigError(
                f"--key {path}: not a part of the dedup key of {contract.path}; expected one of"
                f" {', '.join(contract.key)}"
            )
        if path in parts:
            raise ConfigError(f"--key {path}: found twice; give each part once")
        parts[path] = _part(contract, path, value)
    return tuple(parts[path] for path in contract.key if path in parts)


def of_key(contract: DataContract, key: Sequence[AskedPart]) -> str:
    """Return an SQL condition for rows of a layer; where the event time is asked for, only its day is read.

    Args:
        contract: Names the key and the event time.
        key: The key, or some parts of it.
    """
    parts = [part.holds(contract, name(part.path)) for part in key]
    moments = [part.value for part in key if part.path == contract.event_time and part.value]
    zone = literal(contract.day_time_zone)
    parts += [f"{EVENT_DATE} = to_date(from_utc_timestamp({moment}, {zone}))" for moment in moments]
    return " AND ".join(parts)


def _part(contract: DataContract, path: str, value: str) -> AskedPart:
    if contract.treatment(path) == "hash" and _FINGERPRINT.fullmatch(value):
        return AskedPart(path, None, value)
    kind = flat(contract.schema)[path].dataType
    try:
        shortest = format_of(contract).has_shortest_doubles
        return AskedPart(path, _typed(value, kind, sends_shortest=shortest))
    except (ValueError, OverflowError, InvalidOperation):
        got = "a value that does not fit" if contract.treatment(path) else repr(value)
        raise ConfigError(
            f"--key {path}: expected {_expected(kind)}, as {contract.path} says, got {got}"
        ) from None


def _typed(value: str, kind: DataType, *, sends_shortest: bool) -> str:
    """Return SQL for a value in a type of the contract.

    Args:
        value: The value as text.
        kind: The type.
        sends_shortest: See `ValueFormat.has_shortest_doubles`.

    Raises:
        ValueError, OverflowError, InvalidOperation: It is none that the type holds exactly.
    """
    if not isinstance(kind, StringType) and not value.isascii():
        # Python takes digits of any script, the decoder those of ASCII.
        raise ValueError(value)
    match kind:
        case StringType():
            value.encode()
            sql = literal(value)
        case IntegerType() | LongType():
            sql = f"CAST({_whole(value, _BITS[type(kind)])} AS {kind.simpleString()})"
        case DecimalType():
            sql = f"CAST({literal(_decimal(value, kind))} AS {kind.simpleString()})"
        case DoubleType() | FloatType():
            number = _floating(value, is_float=isinstance(kind, FloatType), sends_shortest=sends_shortest)
            sql = f"CAST({literal(number)} AS {kind.simpleString()})"
        case BooleanType() if value in ("true", "false"):
            sql = value
        case DateType() if re.match(DATE, value):
            sql = f"DATE'{date.fromisoformat(value)}'"
        case TimestampType():
            sql = f"timestamp_micros({_microseconds(value)})"
        case _:
            raise ValueError(value)
    return sql


def _floating(value: str, *, is_float: bool, sends_shortest: bool) -> float:
    """Return the floating-point number that stands for exactly a value, by the rule of the decoder.

    It is `Numbers.isHeldExactly` in Java: a number that is sent is an event's key by the same rule.
    """
    number = _as_float(float(value)) if is_float else float(value)
    if not isfinite(number):
        raise ValueError(value)
    is_written = abs(number) < 2.0 ** (24 if is_float else 53) or (sends_shortest and "E" in value)
    held = Decimal(_shortest(number, is_float=is_float)) if is_written else Decimal(number)
    if held != Decimal(value):
        raise ValueError(value)
    return number


def _as_float(number: float) -> float:
    (rounded,) = struct.unpack("<f", struct.pack("<f", number))
    return float(rounded)


def _shortest(number: float, *, is_float: bool) -> str:
    if not is_float:
        return repr(number)
    texts = (f"{number:.{digits}g}" for digits in range(1, _FLOAT_DIGITS))
    return next((t for t in texts if _as_float(float(t)) == number), f"{number:.{_FLOAT_DIGITS}g}")


def _whole(value: str, bits: int) -> int:
    if not _WHOLE.fullmatch(value) or not -(2 ** (bits - 1)) <= int(value) < 2 ** (bits - 1):
        raise ValueError(value)
    return int(value)


def _decimal(value: str, kind: DecimalType) -> str:
    number = Decimal(value)
    places = Decimal(1).scaleb(-kind.scale)
    if not number.is_finite() or number != _EXACT.quantize(number, places):
        raise ValueError(value)
    if abs(number) >= Decimal(10) ** (kind.precision - kind.scale):
        raise ValueError(value)
    return f"{number:f}"


def _microseconds(value: str) -> int:
    """Return microseconds since 1970 of an instant as records have it, or as reports show it (`… UTC`)."""
    text = re.sub(" UTC$", "Z", value)
    if not re.match(TIMESTAMP, text) or re.search(FINER, text):
        raise ValueError(value)
    moment = datetime.fromisoformat(text)
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)


def _expected(kind: DataType) -> str:
    match kind:
        case IntegerType() | LongType():
            words = f"a whole number of {_BITS[type(kind)]} bits"
        case DecimalType():
            words = f"a number that fits decimal({kind.precision},{kind.scale})"
        case DoubleType() | FloatType():
            words = f"a number that {kind.simpleString()} holds exactly"
        case BooleanType():
            words = "true or false"
        case DateType():
            words = "a date such as 2013-01-01"
        case TimestampType():
            words = "a timestamp such as 2013-01-01T10:15:00Z, of whole microseconds"
        case _:
            words = "a text"
    return words
