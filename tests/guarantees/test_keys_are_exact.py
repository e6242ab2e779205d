"""A part of the key is held exactly as it was sent, or the record is `wrong_type`: no two keys become one."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pipelines.contracts.contract import DataContract
from pipelines.records.decode import decode
from pipelines.registry.confluent import CONFLUENT
from pipelines.registry.wire_format import Writers, WriterSchema
from tests.support.avro import FIELDS, departure, encoded, framed, record
from tests.support.lakes import FLIGHT, Lake
from tests.support.nights import stream

KINDS: dict[str, DataType] = {
    "moment": TimestampType(),
    "day": DateType(),
    "double": DoubleType(),
    "float": FloatType(),
    "money": DecimalType(20, 4),
    "count": IntegerType(),
    "number": LongType(),
    "text": StringType(),
}
LAWFUL = {
    "moment": '"2013-01-01T00:00:00Z"',
    "day": '"2013-01-01"',
    "double": "1",
    "float": "1",
    "money": "1",
    "count": "1",
    "number": "1",
    "text": '"a"',
}
Kind = str
Value = tuple[Kind, str]

# What is sent, and whether it is held exactly.
NAMED: dict[Value, bool] = {
    ("moment", '"2013-01-01T00:00:00.0000001Z"'): False,
    ("moment", '"2013-01-01T00:00:00.0000002Z"'): False,
    ("moment", '"2013-01-01T00:00:00.123456789+05:45"'): False,
    ("moment", '"2013-01-01T00:00:00.12345678"'): False,
    ("moment", '"2013-01-01T00:00:00.1230000000Z"'): False,  # ten places are no moment at all
    ("moment", '"2013-01-01T00:00:00.123000000Z"'): True,
    ("moment", '"2013-01-01T05:45:00.123+05:45"'): True,
    ("moment", '"2013-01-01T00:00:00.123456Z"'): True,
    ("moment", '"2013-01-01 00:00"'): True,
    ("day", '"2013-01-01"'): True,
    ("double", "9007199254740992"): True,
    ("double", "9007199254740993"): False,
    ("double", "9007199254740993.0"): False,
    ("double", "-9007199254740993"): False,
    ("double", "9007199254740994"): True,
    ("double", "1152921504606846976"): True,
    ("double", "1152921504606847000"): False,
    ("double", "10000000000000000000000"): True,
    ("double", "1e22"): True,
    ("double", "1e23"): False,
    ("double", "100000000000000000000000"): False,
    ("double", "1e40"): False,
    ("double", "0.1"): True,
    ("double", "0.10000000000000001"): False,
    ("double", "0.1000000000000000055511151231257827"): False,
    ("double", "0.30000000000000004"): True,
    ("double", "100"): True,
    ("double", "1e2"): True,
    ("double", "1.00E+02"): True,
    ("double", "-0.0"): True,
    ("double", "0.0"): True,
    ("double", "0e99"): True,
    ("double", "1e-400"): False,
    ("double", "1e400"): False,
    ("double", '"1"'): False,
    ("float", "16777216"): True,
    ("float", "16777217"): False,
    ("float", "0.1"): True,
    ("float", "0.10000000149011612"): False,
    ("float", "1e10"): True,
    ("float", "1e39"): False,
    ("money", "1.23450"): True,
    ("money", "1.23451"): False,
    ("money", "1.23449"): False,
    ("money", '"1.23451"'): False,
    ("money", r'"1.2345\u0031"'): False,
    ("money", '"+1.2345"'): True,
    ("money", "12345e-4"): True,
    ("money", "12345e-5"): False,
    ("money", "1e-5"): False,
    ("money", "9999999999999999.9999"): True,
    ("money", "9999999999999999.99999"): False,
    ("money", "0e-9"): True,
    ("count", "5"): True,
    ("count", "5.0"): False,
    ("count", "5e0"): False,
    ("count", "2147483648"): False,
    ("number", "9007199254740993"): True,
    ("number", "9223372036854775807"): True,
    ("number", "9223372036854775808"): False,
    ("number", "-0"): True,
    ("text", "123456789012345678901234567890"): True,
    ("text", "0"): True,
    ("text", '"-0"'): True,
    ("text", "-0"): True,
    ("text", "1.1"): True,
    ("text", "1e2"): True,
    ("text", '"1.10"'): True,
    ("text", '"1e2 -3.4 \\" 5"'): True,
}


def held(value: Value) -> Any:
    """What a key part is, by Python's exact numbers; None if the lake's type does not hold it."""
    kind, sent = value
    is_text = sent.startswith('"')
    text = json.loads(sent) if is_text else sent
    found: Any = None
    match kind:
        case "moment":
            found = _moment(text)
        case "double" if not is_text:
            found = _nearest(text, float(text), repr(float(text)), 2**53)
        case "float" if not is_text:
            with np.errstate(over="ignore"):
                nearest = np.float32(text)
            found = _nearest(text, float(nearest), str(nearest), 2**24)
        case "money":
            number = Fraction(Decimal(text))
            whole = number * 10**4
            found = number if whole.denominator == 1 and abs(whole) < 10**20 else None
        case "count" | "number" if re.fullmatch(r"-?\d+", text):
            bits = 31 if kind == "count" else 63
            found = int(text) if -(2**bits) <= int(text) < 2**bits else None
        case "text" | "day":
            found = text
    return found


def _moment(text: str) -> Fraction | None:
    found = re.fullmatch(r"(.{16})(?::(\d\d)(?:\.(\d{1,9}))?)?(Z|[+-]\d\d:\d\d)?", text)
    if not found:
        return None
    start, seconds, fraction, zone = found.groups()
    since = datetime.fromisoformat(f"{start}:{seconds or '00'}{zone or 'Z'}").timestamp()
    micros = (int(since) + Fraction(f"0.{fraction or 0}")) * 10**6
    return micros if micros.denominator == 1 else None


def _nearest(text: str, nearest: float, written: str, whole_below: int) -> Fraction | None:
    if abs(nearest) == float("inf"):
        return None
    if abs(nearest) >= whole_below:
        of = Fraction(nearest) if abs(nearest) < 1e34 else None
    else:
        of = Fraction(Decimal(written))
    return of if Fraction(Decimal(text)) == of else None


_digits = st.text("0123456789", min_size=1, max_size=12)
_numbers = st.one_of(
    st.builds("{}{}.{}".format, st.sampled_from(["", "-"]), st.integers(0, 10**6), _digits),
    st.builds("{}e{}".format, st.integers(-(10**6), 10**6), st.integers(-12, 12)),
    st.integers(-(2**66), 2**66).map(str),
    st.builds(lambda power, by: str(2**power + by), st.integers(22, 65), st.integers(-2, 2)),
    # As many digits as any double needs are written alike by every language.
    st.builds(lambda n, e: repr(n * 10.0**e), st.integers(-(10**9), 10**9), st.integers(-6, 6)),
)
_moments = st.builds(
    '"2013-01-01T{:02}:15:10.{}{}"'.format,
    st.integers(0, 23),
    st.text("0012", min_size=1, max_size=9),
    st.sampled_from(["Z", "", "+00:00", "-05:00"]),
)
_values = st.one_of(
    st.tuples(st.sampled_from([k for k in KINDS if k not in ("moment", "day", "text")]), _numbers),
    st.tuples(st.just("text"), st.integers(-2, 2).map(str)),
    st.tuples(st.just("moment"), _moments),
)


@pytest.fixture
def keyed(contract: DataContract) -> DataContract:
    """A contract whose key has a part of each type, as a column and within an object."""
    within = StructType([StructField(name, kind, nullable=False) for name, kind in KINDS.items()])
    parts = [StructField("part", StructType([StructField("deep", within, nullable=False)]), nullable=False)]
    departure_ = contract.schema["scheduled_departure"]
    return replace(
        contract,
        schema=StructType([departure_, *within, *parts]),
        key=(*KINDS, *(f"part.deep.{name}" for name in KINDS)),
        row_rules=(),
        conditions=(),
        day_rules=(),
    )


def sent(value: Value, place: str) -> bytes:
    """A record that has a value at one place of the key, and lawful ones at all others."""
    kind, text = value
    within = dict(LAWFUL)
    beside = dict(LAWFUL)
    (within if place else beside)[kind] = text
    fields = {"scheduled_departure": json.dumps(FLIGHT["scheduled_departure"]), **beside}
    deep = ", ".join(f'"{name}": {text}' for name, text in within.items())
    around = ", ".join(f'"{name}": {text}' for name, text in fields.items())
    return f'{{{around}, "part": {{"deep": {{{deep}}}}}}}'.encode()


def keys_of(lake: Lake, sent: list[tuple[str, bytes]]) -> list[tuple[str | None, ...]]:
    """The value at its place of each record, as the lake holds it, or why it does not."""
    rows = decode(lake.envelopes([value for _, value in sent]), lake.contract, timedelta(days=36_500))
    # Spark's own format of a timestamp drops what is below a millisecond.
    whole = "map('timestampFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSS')"
    of = {path: f"to_json(struct({path}), {whole})" for path, _ in sent}
    number = {path: n for n, path in enumerate(of)}
    columns = [f"{sql} AS c{number[path]}" for path, sql in of.items()]
    found = rows.orderBy("_offset").selectExpr("_valid", "_error.*", *columns)
    return [
        (None, row[f"c{number[path]}"]) if row["_valid"] else (row["reason"], row["column"])
        for row, (path, _) in zip(found.collect(), sent, strict=True)
    ]


def check(lake: Lake, values: list[Value]) -> None:
    """Each value is held as the oracle says, at the top and within; and different values are different."""
    sent_ = [(f"{place}{value[0]}", sent(value, place)) for value in values for place in ("", "part.deep.")]
    found = keys_of(lake, sent_)
    expected = [held(value) for value in values for _ in range(2)]
    wrong, seen = [], dict[Any, Any]()
    for (path, value), (fault, as_held), wanted in zip(sent_, found, expected, strict=True):
        if wanted is None:
            right = fault == "wrong_type" and as_held in (path, None)
        else:
            right = fault is None and seen.setdefault((path, as_held), wanted) == wanted
        if not right:
            wrong.append((value.decode(), path, fault, as_held, wanted))
    assert wrong == []
    different = {(path, of) for (path, _), of in zip(sent_, expected, strict=True) if of is not None}
    assert len(different) == len(seen)


def test_what_is_not_held_exactly_is_refused(make_lake: Callable[..., Lake], keyed: DataContract) -> None:
    assert {value: held(value) is not None for value in NAMED} == NAMED
    check(make_lake(contract=keyed), list(NAMED))


def test_any_values_are_held_or_refused(make_lake: Callable[..., Lake], keyed: DataContract) -> None:
    lake = make_lake(contract=keyed)

    @seed(10)
    @settings(
        max_examples=2,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(_values, min_size=400, max_size=400))
    def run(values: list[Value]) -> None:
        check(lake, values)

    run()


def test_only_the_key_is_held_to_it(make_lake: Callable[..., Lake], keyed: DataContract) -> None:
    lake = make_lake(contract=replace(keyed, key=("text",)))
    bent = [("moment", '"2013-01-01T00:00:00.0000001Z"'), ("double", "0.10000000000000001")]
    bent += [("float", "16777217"), ("money", "1.00001")]
    assert {fault for fault, _ in keys_of(lake, [(kind, sent((kind, t), "")) for kind, t in bent])} == {None}


def test_quarantine_shows_what_was_sent(make_lake: Callable[..., Lake], keyed: DataContract) -> None:
    lake = make_lake(contract=keyed)
    refused = [
        ("moment", '"2013-01-01T00:00:00.0000001Z"'),
        ("moment", '"2013-01-01T00:00:00.0000002Z"'),
        ("double", "9007199254740993"),
        ("money", "1.23451"),
    ]
    lake.ingest([sent(value, "") for value in refused])
    counts = stream(lake).counts
    assert (counts.rows, counts.duplicates, counts.quarantined) == (0, 0, 4)
    found = lake.table("quarantine").orderBy("_offset").select("_reason", "_column", "_found")
    assert [tuple(row) for row in found.collect()] == [
        ("wrong_type", kind, text.strip('"')) for kind, text in refused
    ]


MICROS = {"type": "long", "logicalType": "timestamp-micros"}
NANOS = {"type": "long", "logicalType": "timestamp-nanos"}
FINE = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 6}
# What producers write, a value, the key's type, and whether it is held exactly.
AVRO: list[tuple[Any, Any, DataType, bool]] = [
    ("double", 2.0**60, DoubleType(), True),
    ("double", 1e300, DoubleType(), True),
    ("double", 0.1, DoubleType(), True),
    ("double", float("nan"), DoubleType(), False),
    ("double", float("inf"), DoubleType(), False),
    ("long", 2**53, DoubleType(), True),
    ("long", 2**53 + 1, DoubleType(), False),
    ("long", 2**53 + 1, LongType(), True),
    ("float", 0.5, DoubleType(), True),
    ("float", 16777216.0, FloatType(), True),
    ("double", 16777217.0, FloatType(), False),
    ("double", 0.1, FloatType(), True),
    ("double", 0.1000000001, FloatType(), False),
    ("int", 16777217, FloatType(), False),
    (FINE, Decimal("1.234500"), DecimalType(20, 4), True),
    (FINE, Decimal("1.234501"), DecimalType(20, 4), False),
    (FINE, Decimal("0.000001"), DecimalType(20, 4), False),
    ("double", 1.2345, DecimalType(20, 4), True),
    ("double", 1.23451, DecimalType(20, 4), False),
    (MICROS, 1_357_035_300_000_001, TimestampType(), True),
    (NANOS, 1_357_035_300_000_000_001, TimestampType(), False),
    (NANOS, 1_357_035_300_000_000_001, LongType(), True),
    ("string", "2013-01-01T00:00:00.0000001Z", TimestampType(), False),
]


def test_avro_is_held_to_it_as_well(make_lake: Callable[..., Lake], contract: DataContract) -> None:
    # One column for each pair, of which each record has its own alone.
    extra = [StructField(f"c{n}", kind) for n, (_, _, kind, _) in enumerate(AVRO)]
    schema = StructType([*contract.schema, *extra])
    key = ("carrier", *(f"c{n}" for n in range(len(AVRO))))
    wide = replace(contract, value_format="avro", schema=schema, key=key, day_rules=(), row_rules=())
    lake = make_lake(contract=wide)
    schemas = [record([*FIELDS, {"name": f"c{n}", "type": kind}]) for n, (kind, *_) in enumerate(AVRO)]
    by_id = {str(n): WriterSchema(str(n), "AVRO", json.dumps(schema)) for n, schema in enumerate(schemas)}
    values = [
        framed(n, encoded(schemas[n], departure(**{f"c{n}": value}))) for n, (_, value, *_) in enumerate(AVRO)
    ]
    decoded = decode(lake.envelopes(values), wide, timedelta(days=1), Writers(by_id, CONFLUENT))
    rows = list(decoded.orderBy("_offset").select("_valid", "_error.reason", "_error.column").collect())
    assert [row["_valid"] for row in rows] == [exact for *_, exact in AVRO]
    assert {(row["reason"], row["column"]) for row in rows if not row["_valid"]} == {
        ("wrong_type", f"c{n}") for n, (*_, exact) in enumerate(AVRO) if not exact
    }
