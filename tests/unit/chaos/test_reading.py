"""The reader finds what tables and topics hold, by delta-rs and DuckDB alone."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from chaos.observations import EventKey, EventRow, OutputRecord, Place
from chaos.oracle import RULES
from chaos.planted import OUTSIDE
from chaos.reading import Certification, LakeReader, certified_state, output_record
from chaos.traffic import DAYS, Reading

FIRST, SECOND = DAYS
AT = datetime(2024, 3, 1, 12, 30, 0, 123_000, tzinfo=UTC)
READING = Reading("m001", 7, AT, 1234.5, "é")


def test_the_newest_certified_version_counts_with_what_it_was_built_on() -> None:
    verdicts = [
        Certification(FIRST, 3, -1),
        # A run that was overtaken: nobody has built on it.
        Certification(SECOND, 5, 3),
        Certification(FIRST, 8, 3),
    ]
    state = certified_state(verdicts)
    assert (state.version, state.days) == (8, {FIRST: 2})
    assert certified_state([]).version is None


@pytest.fixture
def reader(tmp_path: Path) -> LakeReader:
    return LakeReader(tmp_path, "north")


def write_events(reader: LakeReader, layer: str, *readings: Reading) -> None:
    columns = {
        "meter": [each.meter for each in readings],
        "number": pa.array([each.number for each in readings], pa.int64()),
        "measured_at": pa.array([each.measured_at for each in readings], pa.timestamp("us", "UTC")),
        "power": [each.power for each in readings],
        "note": pa.array([each.note for each in readings], pa.string()),
        "_event_date": [each.measured_at.date() for each in readings],
        "_partition": pa.array([1] * len(readings), pa.int32()),
        "_offset": pa.array(range(len(readings)), pa.int64()),
    }
    write_deltalake(reader.table(layer), pa.table(columns), mode="append", partition_by=["_event_date"])


def write_verdict(reader: LakeReader, day: date, version: int, base: int, status: str = "certified") -> None:
    columns = {
        "pipeline": ["north"],
        "day": [day],
        "status": [status],
        "batch_version": pa.array([version], pa.int64()),
        "base_version": pa.array([base], pa.int64()),
    }
    table = reader.root / "ops" / "certifications"
    write_deltalake(table, pa.table(columns), mode="append", partition_by=["pipeline"])


def test_a_row_is_read_as_it_was_written(reader: LakeReader) -> None:
    write_events(reader, "speed", READING)
    assert reader.events("speed") == [EventRow(READING, FIRST, Place(1, 0))]
    assert reader.events("speed", [SECOND]) == []
    assert reader.events("batch") == []


def test_a_poll_has_certified_days_at_their_version_and_others_from_the_speed_layer(
    reader: LakeReader,
) -> None:
    other = Reading("m002", 8, AT + timedelta(days=1), 2.0)
    write_events(reader, "speed", READING, other)
    assert reader.poll(1).served == {}
    write_events(reader, "batch", READING)
    write_verdict(reader, FIRST, 0, -1)
    write_verdict(reader, SECOND, 0, -1, "failed")
    first = reader.poll(2)
    # A rebuild that nobody has certified.
    write_events(reader, "batch", Reading("m003", 9, AT, 3.0))
    again = reader.poll(3)
    assert first.served.keys() == {FIRST}
    assert again.served == first.served
    write_verdict(reader, FIRST, 1, 0)
    rebuilt = reader.poll(4)
    assert rebuilt.verdicts == {FIRST: 2}
    assert rebuilt.served != first.served
    assert not rebuilt.doubled


def test_a_poll_finds_a_key_that_is_there_twice(reader: LakeReader) -> None:
    write_events(reader, "speed", READING)
    write_events(reader, "speed", READING)
    assert reader.poll(1).doubled == [EventKey.of(READING)]


@pytest.mark.parametrize(("name", "rows"), [("speed-doubled", [READING, READING]), ("batch-changed", None)])
def test_what_is_planted_outside_is_there_for_a_while(
    reader: LakeReader, name: str, rows: list[Reading] | None
) -> None:
    write_events(reader, "speed", READING)
    write_events(reader, "batch", READING)
    write_verdict(reader, FIRST, 0, -1)
    before = reader.poll(1)
    (planted,) = [each for each in OUTSIDE if each.name == name]
    with planted.done(reader, "nowhere:9092"):
        if rows is None:
            assert reader.poll(2).served != before.served
        else:
            assert [row.reading for row in reader.events("speed")] == rows
    assert reader.poll(3).served == before.served
    assert [row.reading for row in reader.events("speed")] == [READING]


def test_each_fault_outside_has_a_rule_that_finds_it() -> None:
    assert {each.rule for each in OUTSIDE} <= {*RULES, "a certified day changes with a verdict only"}


def test_a_record_of_the_output_topic_says_what_and_where_from() -> None:
    key = b'{"meter":"m001","number":7,"measured_at":"2024-03-01T12:30:00.123000Z"}'
    value = key[:-1] + ',"power":1234.5,"note":"é"}'.encode()
    headers = {"oncelake.topic": b"north", "oncelake.partition": b"2", "oncelake.offset": b"5"}
    place, origin = Place(0, 1), Place(2, 5)
    assert output_record(place, key, value, headers) == OutputRecord(
        place, EventKey.of(READING), READING, origin, None
    )
    removed = output_record(place, key, None, {**headers, "oncelake.correction": b"removed"})
    assert (removed.reading, removed.correction) == (None, "removed")
