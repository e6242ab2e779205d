"""A record is decoded as its contract says, or named with the reason; nothing stops the stream."""

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from chispa import assert_df_equality
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from pipelines.contracts.rules import RowRule
from pipelines.errors import ContractError
from pipelines.records.decode import decode, invalid, payload_hash, routed, valid
from pipelines.registry.confluent import CONFLUENT
from pipelines.registry.wire_format import Writers, WriterSchema
from pipelines.spark.preflight import check_patterns
from tests.support.avro import FIELDS, record
from tests.support.lakes import EPOCH, FLIGHT, Lake, Record, flight

DAY = timedelta(days=1)


def verdicts(lake: Lake, values: list[Any]) -> list[Any]:
    decoded = decode(lake.envelopes(values), lake.contract, DAY)
    rows = decoded.select("_offset", "_error.*").orderBy("_offset").collect()
    return [tuple(row[1:]) for row in rows]


def test_a_sound_record_becomes_typed_columns_with_its_event_day(lake: Lake) -> None:
    decoded = valid(decode(lake.envelopes([flight()]), lake.contract, DAY), lake.contract)
    expected = lake.spark.createDataFrame(
        [
            (
                *({**FLIGHT, "scheduled_departure": datetime(2013, 1, 1, 10, 15, tzinfo=UTC)}.values()),
                *(date(2013, 1, 1), "flights", 0, 0, EPOCH, datetime(2026, 1, 1, tzinfo=UTC)),
            )
        ],
        decoded.schema,
    )
    assert_df_equality(decoded, expected, ignore_nullable=True)


BAD: list[tuple[bytes | None, str, str | None, str | None]] = [
    (None, "null_value", None, None),
    (b"", "malformed_json", None, None),
    (b"not json", "malformed_json", None, None),
    (flight()[:50], "malformed_json", None, None),
    (flight() + flight(), "malformed_json", None, None),
    (flight() + b"garbage", "malformed_json", None, None),
    (flight() + b"}", "malformed_json", None, None),
    (flight() + b"} garbage {", "malformed_json", None, None),
    (flight(distance=1).replace(b": 1}", b": 1e400}"), "wrong_type", "distance", "1e400"),
    (b"\xff\xfe" + flight(), "malformed_json", None, None),
    (b"{" * 5000, "malformed_json", None, None),
    (flight(distance=float("nan")), "malformed_json", None, None),
    (b"[" + flight() + b"]", "not_an_object", None, None),
    (b"null", "not_an_object", None, None),
    (b"42", "not_an_object", None, None),
    (flight(flight="many"), "wrong_type", "flight", "many"),
    (flight(flight=1.5), "wrong_type", "flight", "1.5"),
    (flight(scheduled_departure="10:30"), "wrong_type", "scheduled_departure", "10:30"),
    (flight(scheduled_departure=1357000000), "wrong_type", "scheduled_departure", "1357000000"),
    (
        flight(scheduled_departure="2013-02-31T05:15:00Z"),
        "wrong_type",
        "scheduled_departure",
        "2013-02-31T05:15:00Z",
    ),
    (flight(flight=...), "missing_field", "flight", None),
    (flight(flight=None), "missing_field", "flight", None),
    (b"{}", "missing_field", "carrier", None),
    (
        flight(scheduled_departure="2099-01-01T00:00:00Z"),
        "event_time_future",
        "scheduled_departure",
        "2099-01-01 00:00:00",
    ),
    (
        flight(scheduled_departure="0001-01-01T00:00:00Z"),
        "event_time_past",
        "scheduled_departure",
        "0001-01-01 00:00:00",
    ),
    # In New York it is still 1969.
    (
        flight(scheduled_departure="1970-01-01T04:59:59.9Z"),
        "event_time_past",
        "scheduled_departure",
        "1970-01-01 04:59:59.9",
    ),
    (flight(origin="LAX"), "rule_failed", "origin", "LAX"),
    (flight(distance=-1), "rule_failed", "distance", "-1.0"),
    (flight(dest="houston"), "rule_failed", "dest", "houston"),
]


def test_a_bad_record_is_named_with_reason_column_and_what_was_found(lake: Lake) -> None:
    assert verdicts(lake, [value for value, *_ in BAD]) == [tuple(expected) for _, *expected in BAD]


def test_optional_fields_may_be_missing_null_or_unknown(lake: Lake) -> None:
    values = [flight(tailnum=...), flight(tailnum=None), flight(seats=[1, {"a": 2}])]
    assert verdicts(lake, values) == [(None, None, None)] * 3


def test_the_future_is_measured_from_the_record_not_from_a_clock(lake: Lake) -> None:
    scheduled = "2013-01-02T12:00:00Z"
    records = [
        Record(flight(scheduled_departure=scheduled), sent=EPOCH + shift)
        for shift in (timedelta(), timedelta(seconds=-1))
    ]
    assert [reason for reason, *_ in verdicts(lake, records)] == [None, "event_time_future"]


def test_days_begin_with_1970(lake: Lake) -> None:
    assert verdicts(lake, [flight(scheduled_departure="1970-01-01T05:00:00Z")]) == [(None, None, None)]


def test_a_record_without_a_kafka_timestamp_is_measured_from_when_it_was_read(lake: Lake) -> None:
    never = datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)
    assert verdicts(lake, [Record(flight(), sent=never)]) == [(None, None, None)]


DAYS = [
    ("2013-03-10T04:59:59Z", date(2013, 3, 9)),
    ("2013-03-10T05:00:00Z", date(2013, 3, 10)),
    ("2013-03-11T03:59:59Z", date(2013, 3, 10)),  # the day of 23 hours ends an hour early
    ("2013-03-11T04:00:00Z", date(2013, 3, 11)),
    ("2013-11-03T05:30:00Z", date(2013, 11, 3)),  # 01:30, the first time
    ("2013-11-03T06:30:00Z", date(2013, 11, 3)),  # 01:30, the second time
    ("2013-11-04T04:59:59Z", date(2013, 11, 3)),  # the day of 25 hours ends an hour late
]


def test_the_event_day_is_the_day_in_the_contract_s_zone(lake: Lake) -> None:
    sent = datetime(2013, 12, 1, tzinfo=UTC)
    records = [Record(flight(scheduled_departure=instant), sent=sent) for instant, _ in DAYS]
    decoded = decode(lake.envelopes(records), lake.contract, DAY).orderBy("_offset")
    assert [row["_event_date"] for row in decoded.collect()] == [day for _, day in DAYS]


def test_a_contract_may_have_columns_that_are_called_as_those_of_an_envelope(lake: Lake) -> None:
    names = {"tailnum": "key", "distance": "value", "dest": "headers"}
    fields = [StructField(names.get(f.name, f.name), f.dataType, f.nullable) for f in lake.contract.schema]
    contract = replace(lake.contract, schema=StructType(fields), row_rules=())
    value = flight(key="k1", value=7.5, headers="h1")
    decoded = decode(lake.envelopes([value, b"poison"]), contract, DAY).cache()
    good = valid(decoded, contract).select("key", "value", "headers").first()
    assert good is not None
    assert tuple(good) == ("k1", 7.5, "h1")
    bad = invalid(decoded, contract).first()
    assert bad is not None
    assert bytes(bad["value"]) == b"poison"


def test_a_bad_record_is_kept_whole(lake: Lake) -> None:
    bad = invalid(decode(lake.envelopes([b"\x00\xffpoison"]), lake.contract, DAY), lake.contract)
    row = bad.first()
    assert row is not None
    assert bytes(row["value"]) == b"\x00\xffpoison"
    assert (bytes(row["key"]), row["headers"][0]["key"]) == (b"k", "attempt")
    assert (row["_topic"], row["_partition"], row["_offset"]) == ("flights", 0, 0)
    assert row["_contract_version"] == "1.0.0"


def test_the_payload_hash_sees_content_not_layout(lake: Lake) -> None:
    values = [flight(), b" " + flight().replace(b": ", b":"), flight(departure_delay=3.0)]
    decoded = valid(decode(lake.envelopes(values), lake.contract, DAY), lake.contract)
    hashes = [row["h"] for row in decoded.select(payload_hash(lake.contract).alias("h")).collect()]
    assert hashes[0] == hashes[1] != hashes[2]


mutilated = st.tuples(st.integers(0, 230), st.integers(0, 230), st.binary(max_size=8)).map(
    lambda cut: flight()[: cut[0]] + cut[2] + flight()[cut[1] :]
)


@settings(
    max_examples=4,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.one_of(st.binary(max_size=300), mutilated), min_size=100, max_size=300))
def test_no_bytes_stop_the_stream_or_get_lost(lake: Lake, values: list[bytes]) -> None:
    decoded = decode(lake.envelopes(values), lake.contract, DAY).cache()
    assert decoded.count() == len(values)
    good = valid(decoded, lake.contract)
    assert good.count() + invalid(decoded, lake.contract).count() == len(values)
    assert good.where(" OR ".join(f"{column} IS NULL" for column in lake.contract.required)).isEmpty()
    assert good.where(F.year("scheduled_departure") > 2013).isEmpty()


def test_a_pattern_that_java_cannot_read_is_refused_before_a_job_starts(lake: Lake) -> None:
    rule = RowRule("carrier", "pattern", "[[]")
    with pytest.raises(
        ContractError, match=r"schema\.properties\.carrier: .* in Java's syntax, got '\[\[\]'"
    ):
        check_patterns(lake.spark, replace(lake.contract, row_rules=(rule,)))
    check_patterns(lake.spark, replace(lake.contract, row_rules=(replace(rule, value=r"\p{L}+"),)))


def test_each_record_is_parsed_once(lake: Lake) -> None:
    """The optimizer may push a filter below a projection and repeat what the projection had computed."""
    writers = Writers({"1": WriterSchema("1", "AVRO", json.dumps(record(FIELDS)))}, CONFLUENT)
    for contract in (lake.contract, replace(lake.contract, value_format="avro")):
        decoded = decode(lake.envelopes([flight()]), contract, DAY, writers)
        events = valid(decoded, contract)
        of_a_day = events.where("_event_date = DATE'2013-01-01'")
        streamed = routed(decoded, contract)
        for frame in (events, of_a_day, invalid(decoded, contract), streamed):
            plan = frame._jdf.queryExecution().executedPlan().toString()
            assert plan.count(".decode(") == 1
            assert plan.count("from_avro(") == (contract.value_format == "avro")
