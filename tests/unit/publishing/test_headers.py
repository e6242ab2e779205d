"""Each row gets its own headers, from lists and by name."""

import pyarrow as pa

from pipelines.publishing.headers import headers_of


def test_each_row_gets_its_own_headers_also_in_a_part_of_a_batch() -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    pair = {"key": "a", "value": b"1"}
    column = pa.array([[pair, {"key": "b", "value": None}], None, [], [pair]], kind)
    assert list(headers_of(column)) == [[("a", b"1"), ("b", None)], [], [], [("a", b"1")]]
    assert list(headers_of(column.slice(1, 3))) == [[], [], [("a", b"1")]]


def test_headers_by_name_are_texts_and_those_that_are_null_are_left_out() -> None:
    kind = pa.struct([("t", pa.string()), ("p", pa.int32()), ("o", pa.int64()), ("why", pa.string())])
    rows = [
        {"t": "ü", "p": 0, "o": 2**62, "why": None},
        {"t": "ü", "p": 1, "o": -1, "why": "removed"},
        None,
        {"t": None, "p": None, "o": None, "why": None},
    ]
    expected = [
        [("t", "ü".encode()), ("p", b"0"), ("o", b"4611686018427387904")],
        [("t", "ü".encode()), ("p", b"1"), ("o", b"-1"), ("why", b"removed")],
        [],
        [],
    ]
    column = pa.array(rows, kind)
    assert list(headers_of(column)) == expected
    # Where all rows have a header, where some have, and where none has one.
    for first in range(len(rows)):
        for length in range(len(rows) - first + 1):
            assert list(headers_of(column.slice(first, length))) == expected[first : first + length]
