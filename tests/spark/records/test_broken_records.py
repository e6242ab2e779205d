"""Broken records are counted by reason by the tasks that take them out, also those that are only counted."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from pyspark.sql import functions as F

from pipelines.records.broken_records import SetAside
from pipelines.records.decode import decode, events_of, routed
from tests.support.lakes import Lake, Record, flight

VALUES = [flight(), None, b"not json", b"[]", b"{", *[b"null"] * 4_100]
EXPECTED = {"null_value": 1, "malformed_json": 2, "not_an_object": 4_101}
LARGE = bytes(17 * 1024 * 1024)


def taken_out(lake: Lake, records: Sequence[Record | bytes | None]) -> SetAside:
    """The broken ones of records that one task decodes."""
    decoded = decode(lake.envelopes(records).coalesce(1), lake.contract, timedelta(days=1))
    routes = routed(decoded, lake.contract)
    aside = SetAside(lake.spark, routes.schema, 1)
    assert aside.reasons() == {}
    events = events_of(routes.where(aside.take_out_unless_event()), lake.contract)
    events.write.format("noop").mode("overwrite").save()
    return aside


@pytest.mark.parametrize("count", [5, len(VALUES)], ids=["all are sent", "some are only counted"])
def test_reasons_are_counted_however_many_records_are_broken(lake: Lake, count: int) -> None:
    aside = taken_out(lake, VALUES[:count])
    expected = {**EXPECTED, "not_an_object": EXPECTED["not_an_object"] - (len(VALUES) - count)}
    assert aside.reasons() == expected
    assert aside.count() == count - 1
    assert (aside.rows() is None) == (count > 5)


@pytest.mark.parametrize(
    "tombstone",
    [Record(None, key=LARGE), Record(None, headers=[("small", None), ("large", LARGE)])],
    ids=["key", "header"],
)
def test_the_driver_is_not_sent_more_than_it_takes_of_keys_and_headers(lake: Lake, tombstone: Record) -> None:
    one = taken_out(lake, [tombstone, flight()])
    sent = one.rows()
    assert one.count() == 1
    assert sent is not None
    assert sent.count() == 1
    two = taken_out(lake, [tombstone, tombstone])
    assert two.reasons() == {"null_value": 2}
    assert two.rows() is None


@pytest.mark.parametrize("micros", [-((2**63 - 1) // 1_000) * 1_000, -62_135_596_800_000_001, 2**63 - 1])
def test_a_broken_record_keeps_a_timestamp_that_javas_calendar_cannot_hold(lake: Lake, micros: int) -> None:
    envelopes = lake.envelopes([None]).withColumn("_kafka_timestamp", F.timestamp_micros(F.lit(micros)))
    routes = routed(decode(envelopes, lake.contract, timedelta(days=1)), lake.contract)
    aside = SetAside(lake.spark, routes.schema, 1)
    routes.where(aside.take_out_unless_event()).write.format("noop").mode("overwrite").save()
    rows = aside.rows()
    assert rows is not None
    assert rows.schema.simpleString() == routes.schema.simpleString()
    assert [row[0] for row in rows.select(F.unix_micros("_kafka_timestamp")).collect()] == [micros]
