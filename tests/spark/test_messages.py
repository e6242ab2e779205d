"""What is published can be read by the contract that it came from."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from chispa import assert_df_equality
from pyspark.sql import functions as F

from pipelines.contract import DataContract
from pipelines.decode import VALID, decode, payload_hash
from pipelines.messages import messages
from tests.support.lakes import Lake, flight
from tests.support.orders import order

OFFSET = "CAST(CAST(element_at(headers, 3).value AS STRING) AS BIGINT) AS _offset"


def read_back(lake: Lake, values: list[bytes]) -> Any:
    """Asserts that events survive being published; returns their messages."""
    envelopes = lake.envelopes(values)
    decoded = decode(envelopes, lake.contract, timedelta(days=1)).where(VALID)
    sent = messages(decoded, lake.contract)
    again = envelopes.drop("value").join(sent.select("value", F.expr(OFFSET)), "_offset")
    payload = payload_hash(lake.contract).alias("payload")
    assert_df_equality(
        decode(again, lake.contract, timedelta(days=1)).where(VALID).select("_offset", payload),
        decoded.select("_offset", payload),
        ignore_row_order=True,
    )
    assert sent.count() == len(values)
    return sent


def test_a_published_event_reads_as_the_one_that_came(lake: Lake) -> None:
    sent = read_back(lake, [flight(), flight(flight=2, tailnum=None, arrival_delay=...)])
    row = next(row for row in sent.toLocalIterator() if b"1545" in row["key"])
    assert json.loads(row["key"]) == {
        "carrier": "UA",
        "flight": 1545,
        "origin": "EWR",
        "scheduled_departure": "2013-01-01T10:15:00.000000Z",
    }
    assert [(each["key"], bytes(each["value"])) for each in row["headers"]] == [
        ("oncelake.topic", b"flights"),
        ("oncelake.partition", b"0"),
        ("oncelake.offset", b"0"),
    ]


def test_nested_values_and_keys_too(make_lake: Callable[..., Lake], nested: DataContract) -> None:
    odd = [{"sku": "x", "count": 2}, {"sku": 'ü\n"', "count": 1}]
    sent = read_back(make_lake(contract=nested), [order(placed_at="2013-01-01T10:00:00.123456Z", items=odd)])
    (row,) = sent.toLocalIterator()
    assert list(json.loads(row["key"])) == list(nested.key)
