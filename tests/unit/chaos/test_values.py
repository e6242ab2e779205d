"""Avro says what the same record says in JSON, and is broken where that is."""

from dataclasses import replace

import pytest

from chaos.oracle import Truth
from chaos.traffic import MAX_FUTURE, Reading, Refused, judge, traffic
from chaos.values import JSON, VERSIONS, AvroValues, schemas
from tests.unit.chaos.conftest import Good

SECONDS, RATE = 100.0, 50.0
IDS = [7 + number for number, _ in enumerate(schemas())]
REASONS = {
    "malformed_json": {"undecodable"},
    "not_an_object": {"no_schema_id", "unknown_schema"},
}


@pytest.fixture
def values() -> AvroValues:
    return AvroValues(IDS)


def test_a_record_says_the_same_in_avro(values: AvroValues) -> None:
    for send in traffic(1, SECONDS, RATE):
        in_json = judge(send.value, send.timestamp_ms)
        in_avro = values.judge(values.written(send.value, send.at_s / SECONDS), send.timestamp_ms)
        if isinstance(in_json, Reading):
            assert in_avro == in_json
        else:
            assert isinstance(in_avro, Refused)
            assert in_avro.reason in REASONS.get(in_json.reason, {in_json.reason})


def test_producers_go_through_all_schemas(values: AvroValues) -> None:
    sends = list(traffic(1, SECONDS, RATE))
    written = [values.written(send.value, send.at_s / SECONDS) for send in sends]
    named = {int.from_bytes(value[1:5], "big") for value in written if value and value[:1] == b"\0"}
    assert named > set(IDS)
    assert len(IDS) == VERSIONS + 2


def test_an_event_of_the_future_is_refused_in_avro(values: AvroValues) -> None:
    reading = next(
        judged
        for send in traffic(1, SECONDS, RATE)
        if isinstance(judged := judge(send.value, send.timestamp_ms), Reading)
    )
    sent_ms = round((reading.measured_at - 2 * MAX_FUTURE).timestamp() * 1000)
    value = values.written(reading.document(), 0.5)
    assert values.judge(value, sent_ms) == Refused("event_time_future")


def test_the_truth_is_what_values_say(good: Good, values: AvroValues) -> None:
    source = [
        replace(record, value=values.written(record.value, 0.1)) for record in good.truth.records.values()
    ]
    told = Truth(source, values).judged
    assert {place for place, each in told.items() if isinstance(each, Reading)} == {
        place for place, each in good.truth.judged.items() if isinstance(each, Reading)
    }
    assert JSON.written(b"{}", 0.5) == b"{}"
