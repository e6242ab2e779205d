"""Broken records are counted by reason by the tasks that take them out, also those that are only counted."""

from datetime import timedelta

import pytest

from pipelines.records.broken_records import SetAside
from pipelines.records.decode import decode, events_of, routed
from tests.support.lakes import Lake, flight

VALUES = [flight(), None, b"not json", b"[]", b"{", *[b"null"] * 4_100]
EXPECTED = {"null_value": 1, "malformed_json": 2, "not_an_object": 4_101}


@pytest.mark.parametrize("count", [5, len(VALUES)], ids=["all are sent", "some are only counted"])
def test_reasons_are_counted_however_many_records_are_broken(lake: Lake, count: int) -> None:
    decoded = decode(lake.envelopes(VALUES[:count]), lake.contract, timedelta(days=1))
    routes = routed(decoded, lake.contract)
    aside = SetAside(lake.spark, routes.schema, 1)
    assert aside.reasons() == {}
    events_of(routes.where(aside.take_out_unless_event()), lake.contract).write.format("noop").mode(
        "overwrite"
    ).save()
    expected = {**EXPECTED, "not_an_object": EXPECTED["not_an_object"] - (len(VALUES) - count)}
    assert aside.reasons() == expected
    assert aside.count() == count - 1
    assert (aside.rows() is None) == (count > 5)
