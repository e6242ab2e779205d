"""Avro at random: schemas, values and broken bytes; and what they are as JSON, by fastavro."""

import base64
import io
import math
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import fastavro

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_YEARS: Final = (-60 * 365, 60 * 365)
_DAY_MS: Final = 86_400_000
_BITS: Final = {"int": 31, "long": 63}
_LOGICAL: Final = {
    "date": "int",
    "timestamp-millis": "long",
    "timestamp-micros": "long",
    "local-timestamp-millis": "long",
    "local-timestamp-micros": "long",
    "time-millis": "int",
    "time-micros": "long",
}
_TEXTS: Final = "ab\u00e9\u4e2d\U0001f600'\"\\/\u2028\x85\x00\n\ufffd"


class Undecided(Exception):
    """Bytes of which Avro's specification does not say what they are, or that no document holds."""


class AvroDocuments:
    """Schemas and values, the same for each seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - nothing is secret here
        self._names = 0

    def schema(self) -> dict[str, Any]:
        """A record."""
        return self._record(0)

    def value(self, schema: Any) -> Any:
        """A value of a schema, without the meaning of its types."""
        found: Any
        match schema:
            case str():
                found = self._single(schema)
            case list():
                found = self.value(self.random.choice(schema))
            case {"type": "record", "fields": fields}:
                found = {field["name"]: self.value(field["type"]) for field in fields}
            case {"type": "array", "items": items}:
                found = [self.value(items) for _ in range(self.random.randint(0, 3))]
            case {"type": "map", "values": values}:
                found = {self._text(): self.value(values) for _ in range(self.random.randint(0, 3))}
            case {"type": "enum", "symbols": symbols}:
                found = self.random.choice(symbols)
            case {"type": "fixed", "size": size}:
                found = self.random.randbytes(size)
            case {"logicalType": "decimal", "precision": precision}:
                found = _bytes_of(self.random.randint(-(10**precision) + 1, 10**precision - 1))
            case _:
                found = self._moment(schema["logicalType"])
        return found

    def broken(self, payload: bytes) -> bytes:
        """Bytes that are nearly these."""
        at = self.random.randint(0, max(len(payload) - 1, 0))
        match self.random.randrange(5):
            case 0:
                return payload[:at]
            case 1:
                return payload + self.random.randbytes(self.random.randint(1, 9))
            case 2:
                return payload[:at] + self.random.randbytes(1) + payload[at + 1 :]
            case 3:
                flipped = bytes(byte ^ 1 << self.random.randrange(8) for byte in payload[at : at + 1])
                return payload[:at] + flipped + payload[at + 1 :]
            case _:
                return payload[:at] + payload[at + 1 :]

    def _name(self, letter: str) -> str:
        self._names += 1
        return f"{letter}{self._names}"

    def _record(self, depth: int) -> dict[str, Any]:
        fields = [
            {"name": self._name("f"), "type": self._type(depth + 1)}
            for _ in range(self.random.randint(1, 5 if depth else 8))
        ]
        return {"type": "record", "name": self._name("R"), "fields": fields}

    def _type(self, depth: int) -> Any:
        kinds: list[Callable[[], Any]] = [
            lambda: self.random.choice(["int", "long", "float", "double", "string", "bytes", "boolean"]),
            lambda: self._with_meaning(self.random.choice([*_LOGICAL, "decimal"])),
            lambda: {"type": "enum", "name": self._name("E"), "symbols": ["A", "B", "C"]},
            lambda: {"type": "fixed", "name": self._name("F"), "size": self.random.randint(1, 5)},
            lambda: self.random.choice([["string", "long"], ["null", "boolean", "string"], ["int", "long"]]),
        ]
        if depth < 3:
            kinds += [
                lambda: self._record(depth),
                lambda: {"type": "array", "items": self._type(depth + 1)},
                lambda: {"type": "map", "values": self._type(depth + 1)},
                lambda: ["null", self._record(depth), "string"],
            ]
        kind = self.random.choice(kinds)()
        return ["null", kind] if not isinstance(kind, list) and self.random.random() < 0.3 else kind

    def _with_meaning(self, meaning: str) -> dict[str, Any]:
        if meaning != "decimal":
            return {"type": _LOGICAL[meaning], "logicalType": meaning}
        precision = self.random.randint(1, 30)
        scale = self.random.randint(0, precision)
        return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}

    def _single(self, name: str) -> Any:
        match name:
            case "null":
                return None
            case "boolean":
                return self.random.random() < 0.5
            case "int" | "long":
                bits = self.random.randint(0, _BITS[name])
                return self.random.randint(-(2**bits), 2**bits - 1)
            case "float" | "double":
                odd = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e300 if name == "double" else 1e30, 0.1]
                number = self.random.choice([*odd, self.random.uniform(-1e6, 1e6)])
                return fastavro_float(number) if name == "float" else number
            case "string":
                return self._text()
            case _:
                return self.random.randbytes(self.random.randint(0, 5))

    def _moment(self, meaning: str) -> int:
        days = self.random.randint(*_YEARS)
        if meaning == "date":
            return days
        milliseconds = days * _DAY_MS + self.random.randrange(_DAY_MS)
        if meaning.startswith("time-"):
            milliseconds %= _DAY_MS
        return milliseconds * 1000 + self.random.randrange(1000) if "micros" in meaning else milliseconds

    def _text(self) -> str:
        return "".join(self.random.choice(_TEXTS) for _ in range(self.random.randint(0, 6)))


def fastavro_float(number: float) -> float:
    """A number as 32 bits hold it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "float", number)
    number_read: Any = fastavro.schemaless_reader(io.BytesIO(out.getvalue()), "float", None)
    return float(number_read)


def written(schema: Any, value: Any) -> bytes:
    """A value as its schema writes it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _without_meanings(schema), value)
    return out.getvalue()


def read(schema: Any, payload: bytes) -> Any:
    """The value that bytes are, without the meaning of its types.

    Raises:
        ValueError: they are not one value.
    """
    stream = io.BytesIO(payload)
    try:
        value = fastavro.schemaless_reader(stream, _without_meanings(schema), None)
    except Exception as error:  # noqa: BLE001 - fastavro has no errors of its own for broken bytes
        raise ValueError(str(error)) from None
    if stream.tell() != len(payload):
        raise ValueError("bytes are left")
    return value


def as_document(schema: Any, value: Any) -> Any:
    """A value as JSON has it: without fields that are null, and moments as such.

    Raises:
        Undecided: it has no such form, or another reader may see another value.
    """
    document: Any
    match schema:
        case list():
            document = as_document(next(each for each in schema if _is_of(each, value)), value)
        case {"type": "record", "fields": fields}:
            pairs = ((field["name"], as_document(field["type"], value[field["name"]])) for field in fields)
            document = {name: inner for name, inner in pairs if inner is not None}
        case {"type": "array", "items": items}:
            document = [as_document(items, item) for item in value]
        case {"type": "map", "values": values}:
            pairs = ((key, as_document(values, item)) for key, item in value.items())
            document = {name: inner for name, inner in pairs if inner is not None}
        case {"logicalType": "decimal", "precision": precision, "scale": scale}:
            unscaled = int.from_bytes(value, signed=True)
            if not value or abs(unscaled) >= 10**precision:
                raise Undecided(value)
            document = float(Decimal(unscaled).scaleb(-scale))
        case {"logicalType": str() as meaning}:
            document = _moment_of(meaning, value)
        case _:
            document = _plain(value)
    return document


def _plain(value: Any) -> Any:
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case float() if math.isnan(value):
            return "NaN"
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case _:
            return value


def _moment_of(meaning: str, value: int) -> Any:
    if meaning.startswith("time-"):
        return value
    try:
        if meaning == "date":
            return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
        moment = EPOCH + timedelta(microseconds=value if "micros" in meaning else value * 1000)
    except OverflowError:
        raise Undecided(value) from None
    return moment.replace(tzinfo=None if "local" in meaning else UTC)


def _is_of(schema: Any, value: Any) -> bool:
    kind = schema["type"] if isinstance(schema, dict) else schema
    kinds: dict[str, tuple[type, ...]] = {
        **dict.fromkeys(("int", "long"), (int,)),
        **dict.fromkeys(("float", "double"), (float,)),
        **dict.fromkeys(("bytes", "fixed"), (bytes,)),
        **dict.fromkeys(("string", "enum"), (str,)),
        **dict.fromkeys(("record", "map"), (dict,)),
        **{"null": (type(None),), "boolean": (bool,), "array": (list,)},
    }
    return type(value) in kinds[kind]


def _without_meanings(schema: Any) -> Any:
    match schema:
        case list():
            return [_without_meanings(each) for each in schema]
        case {"logicalType": _}:
            return schema["type"]
        case {"fields": fields}:
            return {**schema, "fields": [{**f, "type": _without_meanings(f["type"])} for f in fields]}
        case {"items": items}:
            return {**schema, "items": _without_meanings(items)}
        case {"values": values}:
            return {**schema, "values": _without_meanings(values)}
        case _:
            return schema


def _bytes_of(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 8) // 8, signed=True)


def in_range(schema: Any, value: Any) -> bool:
    """Whether all whole numbers of a value are ones of their types; fastavro reads longer ones."""
    match schema:
        case list():
            return all(in_range(each, value) for each in schema if _is_of(each, value))
        case {"fields": fields}:
            return all(in_range(field["type"], value[field["name"]]) for field in fields)
        case {"items": items}:
            return all(in_range(items, item) for item in value)
        case {"values": values}:
            return all(in_range(values, item) for item in value.values())
        case _:
            kind = schema["type"] if isinstance(schema, dict) else schema
            return kind not in _BITS or -(2 ** _BITS[kind]) <= value < 2 ** _BITS[kind]
