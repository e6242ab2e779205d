"""Objects, arrays and maps: read and judged like any other column."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from pipelines.contracts.contract import DataContract
from pipelines.records.decode import decode, payload_hash
from tests.support.lakes import Lake
from tests.support.orders import order


@pytest.fixture
def lake(make_lake: Callable[..., Lake], nested: DataContract) -> Lake:
    return make_lake(contract=nested)


def verdicts(lake: Lake, values: list[bytes]) -> list[Any]:
    decoded = decode(lake.envelopes(values), lake.contract, timedelta(days=1))
    rows = decoded.select("_offset", "_error.*").orderBy("_offset").collect()
    return [tuple(row[1:]) for row in rows]


def test_a_nested_record_becomes_typed_columns(lake: Lake) -> None:
    decoded = decode(lake.envelopes([order()]), lake.contract, timedelta(days=1))

    (row,) = (row.asDict(recursive=True) for row in decoded.collect())

    assert row["_valid"], row["_error"]
    assert (row["order"]["id"], str(row["order"]["placed_on"])) == ("a-1", "2013-01-01")
    assert row["items"] == [{"sku": "x", "count": 2}, {"sku": "y", "count": 1}]
    assert [moment.microsecond for moment in row["seen"]] == [0, 500_000]
    assert (str(row["total"]), dict(row["tags"])) == ("12.50", {"a": "1", "b": "2"})


def test_optional_parts_may_be_absent_or_null(lake: Lake) -> None:
    optional = ("total", "tags", "seen", "items")
    values = [order(**{part: absent}) for part in optional for absent in (..., None)]
    assert verdicts(lake, values) == [(None, None, None)] * len(values)


def test_what_is_wrong_inside_is_named_by_its_path(lake: Lake) -> None:
    cases = {
        order(order={"placed_on": "2013-01-01"}): ("missing_field", "order.id", None),
        order(order=...): ("missing_field", "order", None),
        order(order="a-1"): ("wrong_type", "order", "a-1"),
        order(order={"id": "a-1", "placed_on": "tomorrow"}): ("wrong_type", "order.placed_on", "tomorrow"),
        order(order={"id": ""}): ("rule_failed", "order.id", ""),
        order(total=-1): ("rule_failed", "total", "-1.00"),
        order(total=1e30): ("wrong_type", "total", "1e+30"),
        order(items=[{"count": 1}]): ("missing_field", "items[].sku", None),
        order(items=[None]): ("missing_field", "items[]", None),
        order(items={"sku": "x"}): ("wrong_type", "items", '{"sku":"x"}'),
        order(items=[{"sku": "x", "count": "two"}]): ("wrong_type", "items[].count", None),
        order(tags=["a"]): ("wrong_type", "tags", '["a"]'),
        order(seen=["10:30"]): ("wrong_type", "seen[]", None),
        order().replace(b'"a": "1"', b'"b": "1"'): ("wrong_type", "tags", None),
    }
    assert dict(zip(cases, verdicts(lake, list(cases)), strict=True)) == cases


def hashes(lake: Lake, values: list[bytes]) -> list[int]:
    decoded = decode(lake.envelopes(values), lake.contract, timedelta(days=1))
    hashed = decoded.select("_offset", payload_hash(lake.contract).alias("hash")).orderBy("_offset")
    return [row["hash"] for row in hashed.collect()]


def test_the_payload_hash_sees_where_nothing_stands_and_not_the_order_of_a_map(lake: Lake) -> None:
    different = [
        order(),
        order(items=None),
        order(items=[]),
        order(items=[{"sku": "x"}]),
        order(tags=None),
        order(tags={}),
        order(tags={"a": "2", "b": "1"}),
        order(tags={"a": None, "b": "1"}),
        order(tags={"a": "1", "b": None}),
        order(seen=None),
        order(seen=["2013-01-01T10:00:00Z", None]),
        order(seen=[None, "2013-01-01T10:00:00Z"]),
        order(order={"id": "a-1"}),
    ]
    first, *others, again = hashes(lake, [*different, order(tags={"a": "1", "b": "2"})])
    assert len({first, *others}) == len(different)
    assert again == first
