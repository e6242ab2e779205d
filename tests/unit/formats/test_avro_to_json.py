"""No schema is read by that lets a few bytes stand for any number of values."""

import json
from typing import Any

import pytest

from pipelines.formats.avro_to_json import as_read

EMPTY = {"type": "record", "name": "empty", "fields": [{"name": "nothing", "type": "null"}]}
NO_BYTES = {"type": "fixed", "name": "no_bytes", "size": 0}


def record_of(*kinds: Any) -> str:
    fields = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(kinds)]
    return json.dumps({"type": "record", "name": "r", "fields": fields})


@pytest.mark.parametrize("items", ["null", {"type": "null"}, EMPTY, NO_BYTES])
@pytest.mark.parametrize("depth", [1, 2])
def test_an_array_of_values_without_bytes_is_refused(items: Any, depth: int) -> None:
    kind = items
    for _ in range(depth):
        kind = {"type": "array", "items": kind}
    with pytest.raises(ValueError, match="an array of values without bytes"):
        as_read(record_of(kind), "payload")


def test_a_named_type_without_bytes_is_known_where_it_is_used_again() -> None:
    with pytest.raises(ValueError, match="an array of values without bytes"):
        as_read(record_of(EMPTY, {"type": "array", "items": "empty"}), "payload")


@pytest.mark.parametrize(
    "kind",
    [
        {"type": "array", "items": ["null", "int"]},
        {"type": "array", "items": {"type": "array", "items": "int"}},
        {"type": "array", "items": {"type": "fixed", "name": "four", "size": 4}},
        {"type": "map", "values": "null"},
        ["null", EMPTY],
    ],
)
def test_what_takes_a_byte_for_each_value_is_read(kind: Any) -> None:
    assert as_read(record_of(kind), "payload").startswith("from_avro(")
