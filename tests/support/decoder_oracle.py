"""Decodes JSON by a contract in plain Python, with nothing of the decoder that it is held against."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

import numpy as np
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from pipelines.contracts.contract import DataContract

Fault = tuple[str | None, str | None, str | None]
PHASES = ("token", "type", "key", "required", "missing", "future", "past", "rule")
EXACT = Context(prec=2000, Emax=10**9, Emin=-(10**9))
BITS = {IntegerType: 31, LongType: 63}
MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?(Z|[+-]\d\d:?\d\d)?", re.ASCII
)


class Number(str):
    """A number as it was sent."""

    __slots__ = ()


class Pairs(list[tuple[str, Any]]):
    """The members of an object, in order."""


def parsed(document: bytes) -> Any:
    """What a document says. Raises ValueError for what is no JSON document."""

    def refuse(constant: str) -> Any:
        raise ValueError(constant)

    text = document.decode("utf-8")
    value = json.loads(
        text, parse_int=Number, parse_float=Number, parse_constant=refuse, object_pairs_hook=Pairs
    )
    # Halves of characters that have no other half have no UTF-8.
    text_of(value).encode("utf-8")
    return value


def text_of(value: Any) -> str:
    """A value as text: a string as it is, all else as JSON without white space."""
    return str(value) if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    match value:
        case Number():
            return str(value)
        case str():
            # Java writes such digits in capitals.
            quoted = json.dumps(value, ensure_ascii=False)
            return re.sub(r"\\u00[0-9a-f]{2}", lambda m: "\\u" + m[0][2:].upper(), quoted)
        case Pairs():
            return "{" + ",".join(f"{_json(name)}:{_json(inner)}" for name, inner in value) + "}"
        case list():
            return "[" + ",".join(map(_json, value)) + "]"
        case _:
            return json.dumps(value)


@dataclass
class Oracle:
    """What becomes of a document.

    Attributes:
        contract: what it ought to be.
        latest: the latest event time that is allowed.
        faults: all that is wrong, each with what decides which comes first.
    """

    contract: DataContract
    latest: datetime
    faults: list[tuple[int, int, Fault]] = field(default_factory=list)

    def judge(self, document: bytes) -> tuple[dict[str, Any] | None, Fault]:
        """The values of a document, and the first fault; without one, three times None."""
        try:
            value = parsed(document)
        except (ValueError, RecursionError):
            return None, ("malformed_json", None, None)
        if not isinstance(value, Pairs):
            return None, ("not_an_object", None, None)
        self.faults = []
        values = self._object(self.contract.schema, value, "", within=False)
        self._times(values)
        self._rules(values)
        first = min(self.faults, key=lambda fault: fault[:2], default=(0, 0, (None, None, None)))
        return values, first[2]

    def _add(self, phase: str, place: int, reason: str, path: str, found: str | None) -> None:
        cut = None if found is None else found[:200]
        self.faults.append((PHASES.index(phase), place, (reason, path, cut)))

    def _wrong(self, phase: str, path: str, value: Any, *, within: bool) -> None:
        self._add(phase, self._place(path), "wrong_type", path, None if within else text_of(value))

    def _place(self, path: str) -> int:
        return list(_paths(self.contract.schema, "")).index(path)

    def _object(self, kind: StructType, value: Pairs, prefix: str, *, within: bool) -> dict[str, Any]:
        kinds = {f.name: f for f in kind}
        values: dict[str, Any] = dict.fromkeys(kinds)
        for name, inner in value:
            if name in kinds:
                values[name] = self._value(kinds[name].dataType, inner, f"{prefix}{name}", within=within)
        for name, column in kinds.items():
            if values[name] is None and not column.nullable:
                path = f"{prefix}{name}"
                self._add("missing" if prefix else "required", self._place(path), "missing_field", path, None)
        return values

    def _value(self, kind: DataType, value: Any, path: str, *, within: bool) -> Any:
        if value is None:
            return None
        match kind:
            case StructType() if isinstance(value, Pairs):
                return self._object(kind, value, f"{path}.", within=within)
            case ArrayType() if isinstance(value, list) and not isinstance(value, Pairs):
                return self._items(kind.elementType, value, f"{path}[]", nullable=kind.containsNull)
            case MapType() if isinstance(value, Pairs):
                if len({name for name, _ in value}) < len(value):
                    self._add("type", self._place(path), "wrong_type", path, None)
                inner = self._items(
                    kind.valueType, [v for _, v in value], f"{path}{{}}", nullable=kind.valueContainsNull
                )
                return dict(zip((name for name, _ in value), inner, strict=True))
            case StructType() | ArrayType() | MapType():
                self._wrong("token", path, value, within=within)
                return None
        return self._single(kind, value, path, within=within)

    def _items(self, kind: DataType, values: list[Any], path: str, *, nullable: bool) -> list[Any]:
        read = [self._value(kind, value, path, within=True) for value in values]
        if None in read and not nullable:
            self._add("missing", self._place(path), "missing_field", path, None)
        return read

    def _single(self, kind: DataType, value: Any, path: str, *, within: bool) -> Any:
        phase, held, is_exact = held_by(kind, value)
        if held is None:
            self._wrong(phase, path, value, within=within)
        elif path in self.contract.key and not is_exact:
            self._add("key", self.contract.key.index(path), "wrong_type", path, text_of(value))
        return held

    def _times(self, values: dict[str, Any]) -> None:
        path = self.contract.event_time
        at = values[path]
        if at is None:
            return
        text = at.replace(tzinfo=None).isoformat(" ")
        shown = text.rstrip("0") if at.microsecond else text
        if at > self.latest:
            self._add("future", 0, "event_time_future", path, shown)
        if at < datetime(1970, 1, 1, tzinfo=self.contract.zone):
            self._add("past", 0, "event_time_past", path, shown)

    def _rules(self, values: dict[str, Any]) -> None:
        for place, rule in enumerate(self.contract.row_rules):
            value: Any = values
            for part in rule.column.split("."):
                value = None if value is None else value[part]
            if value is not None and _breaks(rule.kind, value, rule.value):
                self._add("rule", place, "rule_failed", rule.column, _shown(value))


def _paths(schema: StructType, prefix: str) -> Any:
    """All paths, those of parts before those of what they are parts of."""
    for column in schema:
        yield from _paths_of(column.dataType, f"{prefix}{column.name}")


def _paths_of(kind: DataType, path: str) -> Any:
    match kind:
        case StructType():
            yield from _paths(kind, f"{path}.")
        case ArrayType():
            yield from _paths_of(kind.elementType, f"{path}[]")
        case MapType():
            yield from _paths_of(kind.valueType, f"{path}{{}}")
    yield path


def held_by(kind: DataType, value: Any) -> tuple[str, Any, bool]:
    """What a type holds of a value: the phase in which None is a fault, the value, whether it is exact."""
    held: tuple[str, Any, bool] = ("token", None, True)
    match kind:
        case StringType():
            held = "token", text_of(value), not isinstance(value, list)
        case TimestampType():
            held = "type", *_moment(text_of(value))
        case DateType():
            held = "type", _date(text_of(value)), True
        case BooleanType():
            held = "token", value if isinstance(value, bool) else None, True
        case IntegerType() | LongType():
            is_whole = isinstance(value, Number) and re.fullmatch(r"-?\d+", value)
            bits = BITS[type(kind)]
            fits = is_whole and -(2**bits) <= int(value) < 2**bits
            held = "token", int(value) if fits else None, True
        case DoubleType() | FloatType() if isinstance(value, Number):
            held = "type", *_floating(value, single=isinstance(kind, FloatType))
        case DecimalType() if isinstance(value, str):
            held = "token", *_decimal(value, kind)
    return held


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII) else None
    except ValueError:
        return None


def _moment(text: str) -> tuple[datetime | None, bool]:
    found = MOMENT.fullmatch(text)
    if found is None:
        return None, True
    day, minutes, seconds, fraction, zone = found.groups()
    offset = (zone or "Z").replace("Z", "+0000").replace(":", "")
    if int(offset[1:]) > 1800 or int(offset[3:]) > 59:
        return None, True
    try:
        local = datetime.fromisoformat(f"{day}T{minutes}:{seconds or '00'}+00:00")
    except ValueError:
        return None, True
    shift = timedelta(hours=int(offset[1:3]), minutes=int(offset[3:]))
    micros = int((fraction or "0").ljust(9, "0")[:6])
    moment = local + timedelta(microseconds=micros) - (shift if offset[0] == "+" else -shift)
    return moment, not (fraction or "").ljust(9, "0")[6:].strip("0")


def _floating(text: str, *, single: bool) -> tuple[float | None, bool]:
    value, written = _single(text) if single else (float(text), repr(float(text)))
    if value in (float("inf"), float("-inf")):
        return None, True
    is_small = abs(value) < (2**24 if single else 2**53)
    return value, Decimal(text) == Decimal(written if is_small else value)


def _single(text: str) -> tuple[float, str]:
    """The nearest number of 32 bits, and as it is written."""
    with np.errstate(over="ignore"):
        near = np.float32(float(text))
    if np.isinf(near):
        return float(near), str(near)
    # The nearest double may lie between two of them.
    around = [near, *(np.nextafter(near, np.float32(end)) for end in ("-inf", "inf"))]
    finite = [each for each in around if np.isfinite(each)]
    nearest = min(finite, key=lambda each: abs(EXACT.subtract(Decimal(float(each)), Decimal(text))))
    return float(nearest), str(nearest)


def _decimal(text: str, kind: DecimalType) -> tuple[Decimal | None, bool]:
    if len(text) > 1000 or not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text, re.ASCII):
        return None, True
    try:
        sent = EXACT.create_decimal(text)
    except InvalidOperation:
        return None, True
    if sent and sent.adjusted() >= kind.precision:
        return None, True
    if sent and sent.adjusted() < -kind.scale - 1:
        return Decimal(0).scaleb(-kind.scale), False
    rounded = sent.quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP, EXACT)
    fits = abs(rounded) < Decimal(10) ** (kind.precision - kind.scale)
    return (rounded if fits else None), rounded == sent


def _breaks(kind: str, value: Any, limit: Any) -> bool:
    broken: dict[str, Callable[[], Any]] = {
        "minimum": lambda: value < limit,
        "maximum": lambda: value > limit,
        "max_length": lambda: len(value) > limit,
        "pattern": lambda: re.search(limit, value) is None,
        "values": lambda: value not in limit,
    }
    return bool(broken[kind]())


def _shown(value: Any) -> str:
    return f"{value:f}" if isinstance(value, Decimal) else str(value)
