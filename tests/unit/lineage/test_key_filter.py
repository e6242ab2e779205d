"""A key is typed as the contract says, and what does not fit is refused."""

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    StructType,
)

from pipelines.contracts.contract import DataContract
from pipelines.errors import ConfigError
from pipelines.lineage.key_filter import asked_key

DEPARTURE = "timestamp_micros(1357035300000000)"


@pytest.fixture
def typed(contract: DataContract) -> DataContract:
    """A contract whose key has a part of every type."""
    kinds: dict[str, Any] = {
        "whole": IntegerType(),
        "price": DecimalType(5, 2),
        "ratio": DoubleType(),
        "share": FloatType(),
        "paid": BooleanType(),
        "day": DateType(),
    }
    schema = StructType(list(contract.schema.fields))
    for name, kind in kinds.items():
        schema = schema.add(name, kind)
    return replace(contract, schema=schema, key=(*contract.key, *kinds))


@pytest.mark.parametrize(
    ("given", "sql"),
    [
        ("carrier=a='b\\", r"'a=\'b\\'"),
        ("carrier=", "''"),
        ("flight=-7", "CAST(-7 AS bigint)"),
        ("scheduled_departure=2013-01-01T05:15:00-05:00", DEPARTURE),
        ("scheduled_departure=2013-01-01 10:15:00", DEPARTURE),
        ("scheduled_departure=2013-01-01 10:15:00 UTC", DEPARTURE),
        ("price=5.5", "CAST('5.5' AS decimal(5,2))"),
        ("ratio=0.5", "CAST(CAST('0.5' AS DOUBLE) AS double)"),
        ("ratio=9007199254740994", "CAST(CAST('9007199254740994.0' AS DOUBLE) AS double)"),
        ("ratio=-1.50", "CAST(CAST('-1.5' AS DOUBLE) AS double)"),
        ("share=0.1", "CAST(CAST('0.10000000149011612' AS DOUBLE) AS float)"),
        ("share=16777218", "CAST(CAST('16777218.0' AS DOUBLE) AS float)"),
        ("scheduled_departure=2013-01-01T10:15:00.000000000Z", DEPARTURE),
        ("paid=true", "true"),
        ("day=2013-01-31", "DATE'2013-01-31'"),
    ],
)
def test_a_value_is_read_in_its_type(typed: DataContract, given: str, sql: str) -> None:
    (part,) = asked_key(typed, [given])
    assert part.value == sql


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["flight"], "--key flight: expected COLUMN=VALUE"),
        (["dest=IAH"], "--key dest: not a part of the dedup key of .*; expected one of carrier, flight"),
        (["flight=1", "flight=2"], "found twice"),
        (["flight=1.5"], "flight: expected a whole number of 64 bits, as .* says, got '1.5'"),
        (["flight=9223372036854775808"], "a whole number of 64 bits"),
        (["whole=2147483648"], "a whole number of 32 bits"),
        (["scheduled_departure=10:15"], "a timestamp such as"),
        (["scheduled_departure=2013-02-31T10:15:00Z"], "a timestamp such as"),
        (["price=1000"], r"a number that fits decimal\(5,2\)"),
        (["price=5.555"], r"a number that fits decimal\(5,2\)"),
        (["price=\u0665"], r"a number that fits decimal\(5,2\)"),
        (["ratio=\u0665"], "a number that double holds exactly"),
        (["flight=\u0665"], "a whole number of 64 bits"),
        (["price=NaN"], r"a number that fits decimal\(5,2\)"),
        (["ratio=inf"], "a number that double holds exactly, as .* says, got 'inf'"),
        (["ratio=9007199254740993"], "a number that double holds exactly"),
        (["ratio=0.10000000000000001"], "a number that double holds exactly"),
        (["ratio=1e23"], "a number that double holds exactly"),
        (["ratio=1e-400"], "a number that double holds exactly"),
        (["share=0.10000000149011612"], "a number that float holds exactly"),
        (["share=16777217"], "a number that float holds exactly"),
        (["share=1e39"], "a number that float holds exactly"),
        (["scheduled_departure=2013-01-01T10:15:00.1234567Z"], "of whole microseconds"),
        (["paid=yes"], "true or false"),
        (["day=2013-02-30"], "a date such as"),
        (["carrier=\udcff"], "a text"),
    ],
)
def test_what_does_not_fit_is_refused(typed: DataContract, given: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        asked_key(typed, given)


def test_the_shortest_text_of_a_large_number_finds_it_where_it_is_sent_so(typed: DataContract) -> None:
    shortest = replace(typed, value_format="avro")
    (part,) = asked_key(shortest, ["ratio=1.0E23"])
    assert part.value == "CAST(CAST('1e+23' AS DOUBLE) AS double)"
    with pytest.raises(ConfigError, match="a number that double holds exactly"):
        asked_key(shortest, ["ratio=9007199254740993"])


def test_a_hidden_part_may_be_asked_for_by_its_fingerprint_and_is_not_repeated(typed: DataContract) -> None:
    hidden = replace(typed, personal={"flight": "hash"})
    (part,) = asked_key(hidden, ["flight=sha256:0123456789abcdef"])
    assert (part.value, part.fingerprint) == (None, "sha256:0123456789abcdef")
    with pytest.raises(ConfigError, match="got a value that does not fit") as refused:
        asked_key(hidden, ["flight=secret"])
    assert "secret" not in str(refused.value)
