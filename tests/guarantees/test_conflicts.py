"""Samples of conflicts say in what the copies of an event differ, and nothing that the contract hides."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.contracts.contract import DataContract
from pipelines.contracts.custom_properties import Policy
from pipelines.records.decode import decode, valid
from pipelines.report.model.records import ConflictSample
from pipelines.report.queries import conflicts
from pipelines.steps.report import report
from tests.support.lake_copies import lake_in
from tests.support.lakes import EPOCH, Lake, Record
from tests.support.nights import ONE, on, run, stream

HOUR = timedelta(hours=1)


def samples(lake: Lake, records: Sequence[Record | bytes], limit: int = 5) -> tuple[ConflictSample, ...]:
    decoded = decode(lake.envelopes(records), lake.contract, timedelta(days=1))
    return conflicts.samples(valid(decoded, lake.contract), lake.contract, limit)


def key_of(sample: ConflictSample) -> dict[str, str | None]:
    return {part.column: part.value for part in sample.key}


def values_of(sample: ConflictSample) -> dict[str, tuple[str | None, ...]]:
    return {column.column: column.values for column in sample.columns}


@pytest.fixture(scope="module")
def shown(
    spark: SparkSession, contract: DataContract, tmp_path_factory: pytest.TempPathFactory
) -> dict[str | None, ConflictSample]:
    """The samples of several conflicts, by the number of the flight."""
    records = [
        on(1, 1, sent=EPOCH + HOUR, departure_delay=9.0, tailnum=None),
        on(1, 1, partition=1),
        # No conflict.
        on(1, 2),
        on(1, 2, sent=EPOCH + HOUR),
        # Two of three copies are equal.
        *(on(1, 3, departure_delay=delay) for delay in (2.0, 9.0, 2.0)),
        # Retries in masses.
        *(on(1, 4, sent=EPOCH + n * timedelta(minutes=1)) for n in range(15)),
        on(1, 4, sent=EPOCH + HOUR, departure_delay=9.0),
        on(1, 5, tailnum="N" * 1500),
        on(1, 5, tailnum="M" * 200),
    ]
    lake = lake_in(tmp_path_factory.mktemp("conflicts"), spark, contract)
    return {key_of(sample)["flight"]: sample for sample in samples(lake, records)}


def test_a_conflict_is_shown_by_its_key_its_copies_and_what_differs(
    shown: dict[str | None, ConflictSample],
) -> None:
    assert list(shown) == ["1", "3", "4", "5"]
    sample = shown["1"]
    assert key_of(sample) == {
        "carrier": "UA",
        "flight": "1",
        "origin": "EWR",
        "scheduled_departure": "2013-01-01 10:15:00 UTC",
    }
    assert [(c.topic, c.partition, c.offset, c.kafka_timestamp, c.winner) for c in sample.copies] == [
        ("flights", 1, 0, EPOCH, True),
        ("flights", 0, 0, EPOCH + HOUR, False),
    ]
    assert values_of(sample) == {"departure_delay": ("2.0", "9.0"), "tailnum": ("N14228", None)}
    assert sample.copies_of_day == 2


def test_of_three_copies_two_may_be_equal(shown: dict[str | None, ConflictSample]) -> None:
    sample = shown["3"]
    # One copy of each payload comes before a second of any.
    assert values_of(sample) == {"departure_delay": ("2.0", "9.0", "2.0")}
    first = sample.copies[0].offset
    assert [copy.offset - first for copy in sample.copies] == [0, 1, 2]
    assert (sample.copies_of_day, sample.copies[0].winner) == (3, True)


def test_retries_in_masses_do_not_hide_the_copy_that_differs(
    shown: dict[str | None, ConflictSample],
) -> None:
    sample = shown["4"]
    assert (sample.copies_of_day, len(sample.copies)) == (16, conflicts.COPIES)
    assert values_of(sample) == {"departure_delay": ("2.0", "9.0", *["2.0"] * 8)}


def test_long_values_are_cut_and_say_so(shown: dict[str | None, ConflictSample]) -> None:
    assert values_of(shown["5"])["tailnum"] == ("N" * 200 + "… (1,500 characters)", "M" * 200)


def test_the_winner_is_the_contract_s(lake: Lake) -> None:
    records = [on(1, 1, departure_delay=d, sent=EPOCH + n * HOUR) for n, d in enumerate((3.0, 9.0, 5.0))]
    won = {}
    for policy in (Policy(), Policy("last"), Policy("highest", "departure_delay")):
        (sample,) = samples(lake.variant(contract=replace(lake.contract, policy=policy)), records)
        won[policy.winner] = values_of(sample)["departure_delay"][0]
        assert [copy.winner for copy in sample.copies] == [True, False, False]
    assert won == {"first": "3.0", "last": "5.0", "highest": "9.0"}


def test_personal_data_is_shown_as_the_contract_says_in_key_and_columns(lake: Lake) -> None:
    personal: Any = {"tailnum": "hash", "dest": "drop", "carrier": "drop", "flight": "hash"}
    lake.contract = replace(lake.contract, personal=personal)
    (sample,) = samples(lake, [on(1, 1, tailnum="N1", dest="IAH"), on(1, 1, tailnum="N2", dest="MIA")])
    key = key_of(sample)
    assert (key["carrier"], key["origin"]) == (None, "EWR")
    assert key["flight"] == "sha256:" + sha256(b"1").hexdigest()[:16]
    columns = {column.column: column for column in sample.columns}
    assert (columns["dest"].personal, columns["dest"].values) == ("drop", ())
    fingerprints = tuple("sha256:" + sha256(name).hexdigest()[:16] for name in (b"N1", b"N2"))
    assert (columns["tailnum"].personal, columns["tailnum"].values) == ("hash", fingerprints)
    shown = sample.model_dump_json()
    for hidden in ("UA", "IAH", "MIA", "N1", "N2"):
        assert f'"{hidden}"' not in shown


def test_the_first_keys_are_shown_in_whatever_order_the_records_come(lake: Lake) -> None:
    records = [
        Record(on(1, number, departure_delay=delay).value, offset=10 * number + int(delay))
        for number in (3, 1, 2)
        for delay in (2.0, 9.0, 5.0)
    ]
    first = samples(lake, records, limit=2)
    assert [key_of(sample)["flight"] for sample in first] == ["1", "2"]
    assert samples(lake, records[::-1], limit=2) == first
    assert samples(lake, records, limit=0) == ()


def test_a_kafka_timestamp_that_python_cannot_hold_is_left_out(lake: Lake) -> None:
    copies = [on(1, 1), on(1, 1, departure_delay=9.0)]
    decoded = decode(lake.envelopes(copies), lake.contract, timedelta(days=1))
    far = "CASE WHEN _offset = 1 THEN timestamp_seconds(400000000000) ELSE _kafka_timestamp END"
    others = [column for column in decoded.columns if column != "_kafka_timestamp"]
    late = decoded.selectExpr(*others, f"{far} AS _kafka_timestamp")
    (sample,) = conflicts.samples(valid(late, lake.contract), lake.contract, 5)
    assert [copy.kafka_timestamp for copy in sample.copies] == [EPOCH, None]


ORDER: dict[str, Any] = {
    "order": {"id": "a-1", "placed_on": "2013-01-01"},
    "placed_at": "2013-01-01T10:00:00Z",
    "items": [{"sku": "x", "count": 2}],
    "tags": {"b": "2", "a": "1"},
    "seen": ["2013-01-01T10:00:00.000001Z"],
}


@pytest.mark.parametrize("hidden", [False, True])
def test_what_differs_inside_is_named_by_its_path(
    make_lake: Callable[..., Lake], nested: DataContract, hidden: bool
) -> None:
    personal: Any = {"order.placed_on": "hash", "items[].sku": "hash", "tags": "hash"} if hidden else {}
    lake = make_lake(contract=replace(nested, personal=personal))
    copies = [
        ORDER,
        {**ORDER, "order": {"id": "a-1", "placed_on": "2013-01-02"}, "items": [{"sku": "y"}]},
        {**ORDER, "tags": {"a": "1", "b": "2"}},
        {**ORDER, "tags": {"c": "3"}, "seen": None},
    ]
    (sample,) = samples(lake, [json.dumps(copy).encode() for copy in copies])
    assert key_of(sample) == {"order.id": "a-1"}
    values = values_of(sample)
    assert list(values) == ["order.placed_on", "items", "tags", "seen"]
    moment = '["2013-01-01T10:00:00.000001Z"]'
    assert values["seen"] == (moment, moment, None, moment)
    # The third copy is the first one again, with its map in another order, so it comes last.
    assert [copy.offset for copy in sample.copies] == [0, 1, 3, 2]
    if hidden:
        assert values["items"] == ()
        assert values["order.placed_on"][0] == "sha256:" + sha256(b"2013-01-01").hexdigest()[:16]
        assert values["tags"][0] == values["tags"][3] != values["tags"][2]
        assert all(str(value).startswith("sha256:") for value in values["tags"])
    else:
        assert values["order.placed_on"] == ("2013-01-01", "2013-01-02", "2013-01-01", "2013-01-01")
        one = '[{"sku":"x","count":2}]'
        assert values["items"] == (one, '[{"sku":"y"}]', one, one)
        same = '{"a":"1","b":"2"}'
        assert values["tags"] == (same, same, '{"c":"3"}', same)


@pytest.mark.thorough
def test_the_report_of_a_day_shows_its_conflicts_and_where_its_layers_differ(
    make_lake: Callable[..., Lake], small: DataContract, tmp_path: Path
) -> None:
    lake = make_lake("audit.examples=1", contract=small)
    told_twice = [on(1, 1), on(1, 1, tailnum="<b>", sent=EPOCH + HOUR), on(1, 2), on(1, 2, dest="MIA")]
    lake.ingest(told_twice)
    stream(lake)
    lake.ingest([on(1, 4), on(3, 3)])
    run(lake, ONE)
    done = report(lake.pipeline, ONE, tmp_path)
    written = json.loads(done.files["json"].read_text())
    (sample,) = written["conflict_samples"]
    assert sample["columns"] == [{"column": "tailnum", "personal": None, "values": ["N14228", "<b>"]}]
    (late,) = written["layer_differences"]
    assert (late["difference"], late["samples"][0]["batch"]["offset"]) == ("late", 4)
    page = done.files["html"].read_text()
    assert "Where the layers differ" in page
    assert "1 key of 2 in conflict" in page
    assert "&lt;b&gt;" in page
    assert done.data.flow.conflicts == 2
