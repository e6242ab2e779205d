"""Every record of a key is found, and what became of it is what the layers hold."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from typing import Any

from pyspark.sql.types import DecimalType, DoubleType, FloatType, StructField, StructType

from pipelines.contracts.contract import DataContract
from pipelines.contracts.rules import RowRule
from pipelines.ledger.layer_samples import samples_of
from pipelines.lineage.key_filter import asked_key
from pipelines.steps.explain import Explained, explain
from tests.support.lakes import EPOCH, Lake, Record, flight
from tests.support.nights import LATER, ONE, TWO, on, run, stream

HOUR = timedelta(hours=1)


def ask(lake: Lake, *given: str, limit: int = 20) -> Explained:
    return explain(lake.pipeline, asked_key(lake.contract, given), limit)


def told(found: Explained) -> list[tuple[int, tuple[str, ...], str, str]]:
    return [(facts.offset, facts.layers, fate.verdict, fate.reason) for facts, fate in found.records]


def by_flight_and_day(found: Explained) -> dict[tuple[str | None, str], list[Any]]:
    keys: dict[tuple[str | None, str], list[Any]] = defaultdict(list)
    for (facts, _), what in zip(found.records, told(found), strict=True):
        keys[facts.key[1], (facts.key[3] or "")[8:10]].append(what)
    return keys


def at(offset: int) -> dict[str, Any]:
    return {"topic": "flights", "partition": 0, "offset": offset}


def expected_records() -> dict[tuple[str, str], list[tuple[int, tuple[str, ...], str, str]]]:
    """By flight and day: the offset, the tables, the verdict, and how its explanation begins."""
    bronze, speed, batch = ("bronze",), ("bronze", "speed"), ("bronze", "speed", "batch")
    aside = ("bronze", "quarantine")
    refused = "rule_failed distance by contract 0.9 (open); valid by the current contract:"
    dropped = "row of the batch layer; the speed layer drops it: it came behind the watermark,"
    after = "2013-01-01 is certified without it: it came later, or a rule was changed;"
    would_be = "would be the row of the batch layer; "
    return {
        ("1", "01"): [
            (0, batch, "winner", "row of the batch layer"),
            (1, bronze, "duplicate", "of flights-0 @ 0"),
            (2, bronze, "conflict", "with flights-0 @ 0, which wins; differs in departure_delay"),
        ],
        ("2", "01"): [(3, aside, "quarantined", "rule_failed distance (open)")],
        ("3", "01"): [(4, aside, "quarantined", refused)],
        ("8", "02"): [
            (9, ("bronze", "batch"), "winner", "row of the batch layer"),
            (5, speed, "duplicate", "of flights-0 @ 9"),
        ],
        ("9", "02"): [(6, batch, "winner", "row of the batch layer")],
        ("4", "01"): [(7, ("bronze", "batch"), "late", f"{dropped} 2013-01-03 04:15:00.000 UTC")],
        ("4", "03"): [
            (8, speed, "winner", f"{would_be}readers have it from the speed layer"),
            (8, speed, "duplicate", "of flights-0 @ 8: the same record, read from Kafka again"),
            (13, bronze, "duplicate", "of flights-0 @ 8"),
        ],
        ("5", "01"): [(10, bronze, "late", after)],
        ("6", "03"): [(11, bronze, "pending", f"{would_be}the speed layer has not read that far")],
        # A broken record whose key can be read in part is found by these parts.
        ("7", "01"): [(12, bronze, "quarantined", "wrong_type flight; not in the quarantine table")],
    }


def test_what_became_of_each_record_of_a_key(make_lake: Callable[..., Lake], small: DataContract) -> None:
    strict = replace(small, row_rules=(*small.row_rules, RowRule("distance", "maximum", 3000)), version="0.9")
    # Each file of bronze, and so each of the three that are ingested here, is a micro-batch of its own.
    lake = make_lake("speed.max_bytes_per_trigger=1b", contract=strict)
    first = [on(1, 1), on(1, 1, sent=EPOCH + HOUR), on(1, 1, sent=EPOCH + 2 * HOUR, departure_delay=9.0)]
    # The offsets are 0 to 5, then 6, 7 to 9, and 10 to 13.
    lake.ingest([*first, on(1, 2, distance=-1.0), on(1, 3, distance=4963.0), on(2, 8)])
    lake.ingest([on(2, 9)])  # Spark holds rows against the watermark of the micro-batch before
    lake.ingest([on(1, 4, sent=LATER), on(3, 4), on(2, 8, sent=EPOCH)])
    stream(lake)
    run(lake, ONE, TWO)
    (late,) = samples_of(lake.pipeline, ONE, "run")
    (other,) = samples_of(lake.pipeline, TWO, "run")
    assert [(each.difference, each.batch, each.speed) for each in (late, other)] == [
        ("late", at(7), None),
        ("other_copy", at(9), at(5)),
    ]
    assert late.key[1] == {"column": "flight", "value": "4"}
    private = replace(lake.pipeline, contract=replace(strict, personal={"flight": "drop"}))
    assert samples_of(private, ONE, "run")[0].key[1] == {"column": "flight", "value": None}
    assert late.event_time
    private = replace(private, contract=replace(strict, personal={strict.event_time: "drop"}))
    assert samples_of(private, ONE, "run")[0].event_time is None
    lake.contract = small
    lake.ingest([on(1, 5, sent=LATER), on(3, 6), Record(flight(flight="7", origin=...)), on(3, 4)])
    again = on(3, 4)
    again.offset = 8
    lake.ingest([again])

    found = ask(lake, "carrier=UA", limit=10)
    assert (found.keys, found.is_whole) == (10, True)
    keys = by_flight_and_day(found)
    expected = expected_records()
    assert keys.keys() == expected.keys()
    for key, records in expected.items():
        assert [each[:3] for each in keys[key]] == [each[:3] for each in records]
        assert all(one[3].startswith(two[3]) for one, two in zip(keys[key], records, strict=True)), keys[key]

    whole = ask(lake, "carrier=UA", "flight=1", "origin=EWR", "scheduled_departure=2013-01-01T05:15:00-05:00")
    assert told(whole) == keys["1", "01"]
    assert found.searched.records == 15


def test_copies_of_other_days_are_one_event_within_the_horizon(
    make_lake: Callable[..., Lake], small_by_flight: DataContract
) -> None:
    personal: Any = {"carrier": "drop", "flight": "hash"}
    lake = make_lake(contract=replace(small_by_flight, personal=personal))
    lake.ingest([on(2, 1, sent=EPOCH), on(1, 1, sent=EPOCH + HOUR), on(4, 1), on(2, 9)])
    # What a report shows of a hidden part finds it again.
    fingerprint = f"sha256:{sha256(b'1').hexdigest()[:16]}"
    found = ask(lake, "carrier=UA", f"flight={fingerprint}", "origin=EWR")
    assert [(facts.offset, facts.event_day, fate.verdict) for facts, fate in found.records] == [
        (0, "2013-01-02", "pending"),
        (1, "2013-01-01", "conflict"),
        (2, "2013-01-04", "pending"),
    ]
    assert found.records[0][0].key == [None, fingerprint, "EWR"]
    # Whoever knows the value may ask by it.
    known = ask(lake, "carrier=UA", "flight=1", "origin=EWR")
    assert [facts.offset for facts, _ in known.records] == [0, 1, 2]
    few = ask(lake, "carrier=UA", limit=1)
    assert (few.keys, {facts.key[1] for facts, _ in few.records}) == (2, {fingerprint})


def test_a_key_may_lie_in_an_object(make_lake: Callable[..., Lake], nested: DataContract) -> None:
    lake = make_lake(contract=nested)
    sound = b'{"order": {"id": "o-7"}, "placed_at": "2013-01-01T10:00:00Z", "items": [{"sku": "x"}]}'
    lake.ingest([sound, b'{"order": {"id": "o-7"}, "placed_at": "soon"}', b'{"order": {"id": "o-7"}} {}'])
    found = ask(lake, "order.id=o-7")
    assert [(facts.offset, facts.key, fate.verdict) for facts, fate in found.records] == [
        (0, ["o-7"], "pending"),
        (1, ["o-7"], "quarantined"),
        (2, ["o-7"], "quarantined"),
    ]
    assert [facts.reason for facts, _ in found.records] == [None, "wrong_type", "malformed_json"]
    nothing = ask(lake, "order.id=o-8")
    assert (nothing.records, nothing.keys) == ((), 0)
    assert nothing.searched.records == 3


def test_of_a_name_sent_twice_the_last_value_is_the_one_of_a_broken_record_too(
    make_lake: Callable[..., Lake], nested: DataContract
) -> None:
    """As for the decoder: else `forget` of one person would take the records of another."""
    lake = make_lake(contract=nested)
    twice = b'{"order": {"id": "o-6", "id": "o-7"}, "placed_at": "2013-01-01T10:00:00Z", "items": []}'
    lake.ingest(
        [
            twice,
            twice.replace(b"2013", b"soon"),
            twice + b" {}",
            twice[:-1],
            b'{"order": {"id": "o-6"}, "order": {"id": "o-7"}} {}',
            b'{"order": {"id": "o-7"}, "order": {}} {}',
            b'{"order": {"id": "o-7"}, "order": 7} {}',
            b'{"order": {"id": "o-7", "id": null}} {}',
            b'{"order": {"id": "o-7", "id": "o-6',
        ]
    )
    sixes, sevens = ask(lake, "order.id=o-6"), ask(lake, "order.id=o-7")
    assert [facts.offset for facts, _ in sixes.records] == []
    # The last one ends before its second value is there.
    assert [facts.offset for facts, _ in sevens.records] == [0, 1, 2, 3, 4, 8]


def test_a_record_whose_key_would_be_rounded_is_not_of_the_rounded_key(
    make_lake: Callable[..., Lake], contract: DataContract
) -> None:
    """What is found may be forgotten: `price=1.01` must not find what was sent as 1.005."""
    kinds = {"price": DecimalType(5, 2), "ratio": DoubleType(), "share": FloatType()}
    parts = [StructField(column, kind, nullable=False) for column, kind in kinds.items()]
    key = (*kinds, "scheduled_departure")
    schema = StructType([*contract.schema, *parts])
    lake = make_lake(contract=replace(contract, schema=schema, key=key, row_rules=(), conditions=()))

    def sent(price: str = "1.01", ratio: str = "0.5", share: str = "0.25", fraction: str = "") -> bytes:
        marked = flight(price=-1, ratio=-2, share=-3, scheduled_departure=f"2013-01-01T10:15:00{fraction}Z")
        marks = {b'"price": -1': price, b'"ratio": -2': ratio, b'"share": -3': share}
        for mark, value in marks.items():
            assert mark in marked
            marked = marked.replace(mark, mark[:9] + value.encode())
        return marked

    large, near, finer = "9007199254740993", "0.500000000000000001", ".0000001"
    lake.ingest(
        [
            *(sent(), sent() + b" {}", sent('"1.01"', '"0.5"')),
            *(sent(price="1.005"), sent(price='"1.005"'), sent(ratio=large), sent(ratio=near)),
            *(sent(share="0.2500000001"), sent(fraction=finer)),
            *(sent(price="1.005") + b" {}", sent(ratio=large) + b" {}", sent(fraction=finer) + b" {}"),
            # Its first fault is another one.
            sent(price="1.005").replace(b"1545", b'"x"'),
        ]
    )

    def offsets(*given: str) -> list[int]:
        return sorted(facts.offset for facts, _ in ask(lake, *given).records)

    moment = "scheduled_departure=2013-01-01T10:15:00Z"
    assert offsets("price=1.01", "ratio=0.5", "share=0.25", moment) == [0, 1, 2]
    assert offsets("ratio=9007199254740992") == []
    # Parts that can be read find a record whose other parts cannot be.
    assert offsets("price=1.01") == [0, 1, 2, 5, 6, 7, 8, 10, 11]
    assert offsets("ratio=0.5", moment) == [0, 1, 2, 3, 4, 7, 9, 12]
