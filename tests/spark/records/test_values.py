"""Values at the edges of their types come through exactly, or are named; none is bent to fit."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from pipelines.contracts.contract import DataContract
from pipelines.contracts.rules import RowRule
from pipelines.records.decode import decode, valid
from tests.support.lakes import Lake, flight
from tests.support.nights import stream

AT = "2013-01-01T10:00:00Z"


@pytest.fixture
def lake(make_lake: Callable[..., Lake], nested: DataContract) -> Lake:
    return make_lake(contract=replace(nested, row_rules=()))


def order(total: str = "1", at: str = AT, key: Any = "k") -> bytes:
    # As text, since Python's own numbers would be rounded before they are sent.
    return f'{{"order": {{"id": {json.dumps(key)}}}, "placed_at": "{at}", "total": {total}}}'.encode()


def decoded(lake: Lake, values: list[bytes], column: str) -> list[Any]:
    rows = decode(lake.envelopes(values), lake.contract, timedelta(days=36_500))
    found = rows.selectExpr(
        "_offset", f"_valid AND {column} IS NOT NULL AS kept", f"{column} AS v", "_error.*"
    )
    return [
        row["v"] if row["kept"] else (row["reason"], row["column"])
        for row in found.orderBy("_offset").collect()
    ]


def test_numbers_that_no_double_holds_are_exact(lake: Lake) -> None:
    totals = [
        "123456789012345678.91",
        "-0.01",
        "1e3",
        "999999999999999999.99",
        "1000000000000000000",
        "0.005",
    ]
    assert decoded(lake, [order(total) for total in totals], "total") == [
        Decimal("123456789012345678.91"),
        Decimal("-0.01"),
        Decimal("1000.00"),
        Decimal("999999999999999999.99"),
        ("wrong_type", "total"),
        # Digits that the contract has no place for are rounded, as a decimal column does.
        Decimal("0.01"),
    ]


def test_a_pattern_that_repeats_a_group_says_of_a_long_text_what_it_says_of_a_short_one(lake: Lake) -> None:
    # Java's matcher calls itself for each repetition, and the stack of a task's thread has an end.
    rule = RowRule("order.id", "pattern", r"^(\w+\.)*\w+$")
    lake.contract = replace(lake.contract, row_rules=(rule,))
    long = "a." * 20_000 + "a"
    keys = ["a.a", "a.!", long, long + "!", ".".join(["a"] * 400_000)]
    outcomes = decoded(lake, [order(key=key) for key in keys], "order.id")
    broken, undecided = (("rule_failed", "order.id"), ("rule_undecided", "order.id"))
    # The last one is longer than any stack that is given to it.
    assert outcomes == ["a.a", broken, long, broken, undecided]


def test_a_moment_is_the_same_in_every_zone_and_none_is_guessed(lake: Lake) -> None:
    moments = {
        "2013-01-01T15:45:00+05:45": 1_357_034_400,
        "2013-01-01T00:30:00-0930": 1_357_034_400,
        "2013-01-01 10:00": 1_357_034_400,
        "2013-11-03T01:30:00-04:00": 1_383_456_600,
        "2013-11-03T01:30:00-05:00": 1_383_460_200,
        "2016-12-31T23:59:60Z": ("wrong_type", "placed_at"),
        "2013-02-29T10:00:00Z": ("wrong_type", "placed_at"),
        "2013-01-01T24:00:00Z": ("wrong_type", "placed_at"),
        "2013-01-01T10:00:00+25:00": ("wrong_type", "placed_at"),
        "2013-01-01T10:00:00 Europe/Berlin": ("wrong_type", "placed_at"),
        "1357034400": ("wrong_type", "placed_at"),
    }
    values = [order(at=moment) for moment in moments]
    assert decoded(lake, values, "unix_seconds(placed_at)") == list(moments.values())


def test_keys_are_compared_letter_by_letter(lake: Lake) -> None:
    # Empty, a space, both cases, a letter and its two parts, a sign beyond 16 bits, characters unseen.
    keys = ["", " ", "k", "K", "\u00e9", "e\u0301", "\U0001f6eb", "a\u0000b", "\u200b"]
    lake.ingest([order(key=key) for key in (*keys, *keys)] + [order(key=None), b"{}"])
    counts = stream(lake).counts
    assert (counts.rows, counts.duplicates, counts.quarantined) == (len(keys), len(keys), 2)
    assert sorted(row["id"] for row in lake.table("speed").select("order.id").collect()) == sorted(keys)
    reasons = {(row["_reason"], row["_column"]) for row in lake.table("quarantine").collect()}
    assert reasons == {("missing_field", "order.id"), ("missing_field", "order")}


def test_a_decimal_may_be_a_text_and_a_text_may_be_a_number(lake: Lake) -> None:
    values = [order('"1.50"'), order("true"), order('"much"'), order("null"), order(key=5)]
    wrong = ("wrong_type", "total")
    assert decoded(lake, values[:4], "total") == [Decimal("1.50"), wrong, wrong, (None, None)]
    # Arabic-Indic, fullwidth and mathematical digits: numbers for Java, and no decimal numbers of JSON.
    scripts = ['"\u0661\u0662"', '"\uff11.5"', '"1e\u0662"', '"\U0001d7ce"']
    assert decoded(lake, [order(digits) for digits in scripts], "total") == [wrong] * 4
    events = valid(decode(lake.envelopes([values[4]]), lake.contract, timedelta(days=1)), lake.contract)
    assert [row["id"] for row in events.select("order.id").collect()] == ["5"]


def test_a_number_with_a_huge_exponent_is_judged_at_once(lake: Lake) -> None:
    """All of its digits would take minutes to compute, or for ever."""
    wrong = ("wrong_type", "total")
    totals = {
        "1e-99999999": Decimal("0.00"),
        "1E+0099999999": wrong,
        "1e-99999999999": wrong,
        "0e99999999": Decimal("0.00"),
        "[1e-99999999]": wrong,
        '"1e-99999999"': Decimal("0.00"),
        '"1\\u0065+99999999"': wrong,
        '"1,5"': wrong,
        '",5"': wrong,
        f'"{"1" * 1001}"': wrong,
        "1e-999": Decimal("0.00"),
        "1e+0002": Decimal("100.00"),
        '"1e2"': Decimal("100.00"),
        "1": Decimal("1.00"),
    }
    values = [order(total, key="12e45678") for total in totals]
    values.append(order(key="1,5").replace(b"}, ", b'}, "note": "1e99999999, \\u00e9", ', 1))
    values.append(order().replace(b"}, ", b'}, "note": 1e99999999, ', 1))
    assert decoded(lake, values, "total") == [*totals.values(), Decimal("1.00"), Decimal("1.00")]
    elsewhere = order().replace(b"}, ", b'}, "items": [{"sku": "x", "count": 1e-99999999}], ', 1)
    assert decoded(lake, [elsewhere], "total") == [("wrong_type", "items[].count")]


def test_what_goes_on_behind_a_document_is_no_document(lake: Lake) -> None:
    other = order(key="other")
    ends = [
        *(b', "x": 1', b', "r": ' + other, b'}, "r": ' + other, b"], [1", b"}}, {", b", 1", b"]"),
        *(b", ", b"} // ", b"/**/", b"\x00", b'}, "r": {"r": 1'),
    ]
    values = [order() + end for end in ends] + [
        order().replace(b'"', b"'"),
        b"[" + order(),
        b"1," + other[1:],
    ]
    values.append(order() + b',"r":' + other[:-1])
    assert decoded(lake, values, "order.id") == [("malformed_json", None)] * len(values)
    assert decoded(lake, [b"\r\n\t " + order() + b" \n"], "order.id") == ["k"]


def test_no_two_keys_become_one(lake: Lake) -> None:
    def raw(key: str) -> bytes:
        return order().replace(b'"k"', key.encode())

    half, rewritten = ("malformed_json", None), ("wrong_type", "order.id")
    keys = {
        # Halves of characters would all be a question mark.
        r'"\ud800"': half,
        r'"\uDBFF\ud801"': half,
        r'"\\\udc00"': half,
        r'"\ud83d\ude00\udead"': half,
        r'"\ud83d\uDE00 \\ud800 \\\\ud800"': "\U0001f600 \\ud800 \\\\ud800",
        # Numbers are kept as they were sent; of what has parts, the white space is not.
        "1.10": "1.10",
        "1.1": "1.1",
        "123456789012345678901234567890.10": "123456789012345678901234567890.10",
        "1E5": "1E5",
        "-1e400": "-1e400",
        "-0": "-0",
        '{"a": 1.10}': rewritten,
        "[1]": rewritten,
        '"1.10"': "1.10",
        '"-1.0E5"': "-1.0E5",
        '"{"': "{",
        "123456789012345678901234567890": "123456789012345678901234567890",
        "true": "true",
    }
    assert decoded(lake, [raw(key) for key in keys], "order.id") == list(keys.values())


def test_a_moment_ends_with_its_last_sign(lake: Lake) -> None:
    assert decoded(lake, [order(at=AT + r"\n"), order(at=AT)], "order.id") == [
        ("wrong_type", "placed_at"),
        "k",
    ]


def test_a_byte_is_judged_wherever_it_stands(lake: Lake) -> None:
    """The decoder looks at eight bytes at a time: pieces stand at each place of a word, and behind it."""
    odd = {
        b"": "",
        b"\\n": "\n",
        b"\\u0041": "A",
        b"\\\\u": "\\u",
        "é".encode(): "é",
        b"\xff": None,
        b"\xc3": None,
        b"\\ud800": None,
    }
    expected = [
        (pad, found if found is None else "x" * pad + found + "x" * after, piece, after)
        for pad in range(9)
        for after in (0, 1, 9)
        for piece, found in odd.items()
    ]
    values = [
        order(key="KEY").replace(b"KEY", b"x" * pad + piece + b"x" * after)
        for pad, _, piece, after in expected
    ]
    found = decoded(lake, values, "order.id")
    assert found == [("malformed_json", None) if key is None else key for _, key, *_ in expected]


def test_long_numbers_and_large_exponents_make_up_for_each_other(
    make_lake: Callable[..., Lake], small: DataContract
) -> None:
    zeros = "0" * 900
    numbers = {
        f"1{zeros}e-900": 1.0,
        f"0.{zeros[1:]}1e900": 1.0,
        f"1{zeros}e-10240": 0.0,
        f"0.{zeros}1e10240": ("wrong_type", "distance"),
        f"1{zeros[:290]}e-290": 1.0,
        "4.9e-324": 5e-324,
        "1.7976931348623157e308": 1.7976931348623157e308,
        "0.1000000000000000055511151231257827021181583404541015625": 0.1,
    }
    values = [flight(distance=1).replace(b'"distance": 1', f'"distance": {n}'.encode()) for n in numbers]
    contract = replace(small, row_rules=())
    assert decoded(make_lake(contract=contract), values, "distance") == list(numbers.values())
