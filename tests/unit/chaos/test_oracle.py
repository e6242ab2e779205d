"""The oracle finds nothing in a lake as it has to be, and every single thing that is not so."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

from chaos.observations import EventKey, EventRow, Lake, OutputRecord, Place, Poll, SourceRecord
from chaos.oracle import RULES, Clock, sends_in_the_topic_twice, unsteady, violations
from chaos.traffic import DAYS, WATERMARK_DELAY
from tests.unit.chaos.conftest import INGESTED_US, Good, row_of

pytestmark = pytest.mark.patient

BRONZE = "bronze is the topic"
QUARANTINE = "the quarantine is what is broken"
SPEED = "rows of the speed layer are records, each key once"
BATCH = "certified days are the winners"
SERVING = "the serving table is the winners"
ONCE = "consumers get each event once"
SAYS = "the output topic says what records say"
COMPACTED = "the output topic, compacted, is what is served"
Change = Callable[[Good], Lake]


def broken(lake: Lake) -> set[str]:
    return {violation.rule for violation in violations(lake)}


def test_a_lake_as_it_has_to_be_violates_nothing(good: Good) -> None:
    assert violations(good.lake) == []
    # The traffic has something for each rule to look at.
    assert good.truth.refused
    assert any(len(places) > 1 for places in good.truth.copies.values())
    assert any(record.correction for record in good.lake.output)


def fresh(good: Good) -> int:
    """The place in the speed layer of an event that is late for nobody, of which there is one record."""
    return next(
        number
        for number, row in enumerate(good.lake.speed)
        if len(good.truth.copies[row.key]) == 1 and row.day not in DAYS
    )


def without(rows: Sequence[EventRow], number: int) -> list[EventRow]:
    return [*rows[:number], *rows[number + 1 :]]


def contested(good: Good) -> int:
    """The place in the batch layer of an event that is told in two ways."""
    judged = good.truth.judged
    return next(
        number
        for number, row in enumerate(good.lake.batch)
        if len({judged[place] for place in good.truth.copies[row.key]}) > 1
    )


def with_loser(good: Good) -> Lake:
    number = contested(good)
    row = good.lake.batch[number]
    judged = good.truth.judged
    loser = next(place for place in good.truth.copies[row.key] if judged[place] != row.reading)
    other = row_of(good.truth, loser)
    return good.changed(batch=[*without(good.lake.batch, number), other])


def sent_again(good: Good) -> SourceRecord:
    return replace(good.lake.source[0], place=Place(0, 10**6))


PLANTED: dict[str, tuple[Change, set[str]]] = {
    "an acknowledged record is nowhere": (
        lambda good: good.changed(
            acknowledged=[*good.lake.acknowledged, replace(good.lake.acknowledged[0], place=Place(0, 10**6))]
        ),
        {"acknowledged records are in the topic"},
    ),
    "an acknowledged record has another value": (
        lambda good: good.changed(acknowledged=[replace(good.lake.acknowledged[0], value=b"another")]),
        {"acknowledged records are in the topic"},
    ),
    "bronze lacks a record": (lambda good: good.changed(bronze=good.lake.bronze[1:]), {BRONZE}),
    "bronze has a record twice": (
        lambda good: good.changed(bronze=[*good.lake.bronze, good.lake.bronze[9]]),
        {BRONZE},
    ),
    "bronze has another value": (
        lambda good: good.changed(
            bronze=[replace(good.lake.bronze[0], value=b"another"), *good.lake.bronze[1:]]
        ),
        {BRONZE},
    ),
    "bronze has another time": (
        lambda good: good.changed(
            bronze=[replace(good.lake.bronze[0], timestamp_ms=1), *good.lake.bronze[1:]]
        ),
        {BRONZE},
    ),
    "bronze has what nobody sent": (
        lambda good: good.changed(
            bronze=[*good.lake.bronze, replace(good.lake.bronze[0], place=Place(3, 10**6))]
        ),
        {BRONZE},
    ),
    "the quarantine lacks a record": (
        lambda good: good.changed(quarantine=good.lake.quarantine[1:]),
        {QUARANTINE},
    ),
    "the quarantine has a record twice": (
        lambda good: good.changed(quarantine=[*good.lake.quarantine, good.lake.quarantine[0]]),
        {QUARANTINE},
    ),
    "the quarantine has another reason": (
        lambda good: good.changed(
            quarantine=[replace(good.lake.quarantine[0], reason="another"), *good.lake.quarantine[1:]]
        ),
        {QUARANTINE},
    ),
    "the quarantine has a valid record": (
        lambda good: good.changed(
            quarantine=[
                *good.lake.quarantine,
                replace(good.lake.quarantine[0], place=good.lake.speed[0].place),
            ]
        ),
        {QUARANTINE},
    ),
    "the speed layer has a key twice": (
        lambda good: good.changed(speed=[*good.lake.speed, good.lake.speed[0]]),
        {SPEED},
    ),
    "the speed layer has another value": (
        lambda good: good.changed(
            speed=[
                replace(good.lake.speed[0], reading=replace(good.lake.speed[0].reading, power=-7.0)),
                *good.lake.speed[1:],
            ]
        ),
        {SPEED},
    ),
    "the speed layer lacks an event that is not late": (
        lambda good: good.changed(speed=without(good.lake.speed, fresh(good))),
        {"the speed layer lacks only late events", COMPACTED},
    ),
    "a day is not certified": (
        lambda good: good.changed(
            certified=frozenset(DAYS[:1]),
            batch=[row for row in good.lake.batch if row.day == DAYS[0]],
            serving=[row for row in good.lake.serving if row.day == DAYS[0]],
        ),
        # The corrections of the other day were sent all the same.
        {"the days are certified", COMPACTED},
    ),
    "the batch layer lacks a row": (
        lambda good: good.changed(batch=good.lake.batch[1:]),
        {BATCH, COMPACTED},
    ),
    "the batch layer has a key twice": (
        lambda good: good.changed(batch=[*good.lake.batch, good.lake.batch[0]]),
        {BATCH},
    ),
    "the batch layer has a copy that does not win": (with_loser, {BATCH, COMPACTED}),
    "a row is on another day": (
        lambda good: good.changed(
            batch=[
                replace(good.lake.batch[0], day=good.lake.batch[0].day - timedelta(days=1)),
                *good.lake.batch[1:],
            ]
        ),
        {BATCH},
    ),
    "the serving table lacks a row": (lambda good: good.changed(serving=good.lake.serving[1:]), {SERVING}),
    "a consumer gets an event twice": (
        lambda good: good.changed(output=[good.lake.output[0], *good.lake.output]),
        {ONCE},
    ),
    "a consumer gets a correction twice": (
        lambda good: good.changed(output=[*good.lake.output, good.lake.output[-1]]),
        {ONCE},
    ),
    "a consumer lacks an event": (lambda good: good.changed(output=good.lake.output[1:]), {COMPACTED}),
    "a consumer gets another value": (
        lambda good: good.changed(
            output=[
                replace(good.lake.output[0], reading=good.lake.speed[1].reading),
                *good.lake.output[1:],
            ]
        ),
        {SAYS, COMPACTED},
    ),
    "bronze lacks what a client has sent twice": (
        lambda good: good.changed(source=[*good.lake.source, sent_again(good)]),
        {BRONZE},
    ),
}


def test_what_a_client_has_sent_twice_is_counted(good: Good) -> None:
    assert sends_in_the_topic_twice(good.lake) == 0
    again = good.changed(source=[*good.lake.source, sent_again(good)])
    assert sends_in_the_topic_twice(again) == 1


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_found(good: Good, name: str) -> None:
    change, rules = PLANTED[name]
    assert rules <= broken(change(good))
    assert broken(change(good)) <= rules | {QUARANTINE, COMPACTED}


def test_every_rule_has_a_fault_that_it_finds() -> None:
    assert {rule for _, rules in PLANTED.values() for rule in rules} == set(RULES)


def test_publishing_that_began_again_may_repeat_what_it_sent(good: Good) -> None:
    ends = Counter[int]()
    for record in good.lake.output:
        ends[record.place.partition] = max(ends[record.place.partition], record.place.offset + 1)

    def later(times: int) -> list[OutputRecord]:
        """All records once more, behind those that are there so many times."""
        return [
            replace(record, place=replace(record.place, offset=record.place.offset + times * ends[partition]))
            for record in good.lake.output
            if (partition := record.place.partition) in ends
        ]

    again = [*good.lake.output, *later(1)]
    assert ONCE in broken(good.changed(output=again))
    assert ONCE not in broken(good.changed(output=again, sent_again=[ends]))
    # Not more often than that, wherever it began anew: before all, or once too often.
    assert ONCE in broken(good.changed(output=again, sent_again=[{}, {}]))
    assert ONCE in broken(good.changed(output=[*again, *later(2)], sent_again=[ends]))


def test_a_late_event_may_be_missing_from_the_speed_layer_until_its_day_is_certified(good: Good) -> None:
    clock = Clock(good.lake.bronze, good.truth)
    late = next(
        row
        for row in good.lake.speed
        if row.day in DAYS and all(clock.may_have_passed(p, row.key) for p in good.truth.copies[row.key])
    )
    lake = good.changed(speed=[row for row in good.lake.speed if row != late])
    assert broken(lake) == set()
    unbuilt = [row for row in good.lake.batch if row.key != late.key]
    assert broken(replace(lake, batch=unbuilt)) == {BATCH, COMPACTED}


def test_the_clock_moves_with_what_was_read_no_later(good: Good) -> None:
    clock = Clock(good.lake.bronze, good.truth)
    row = next(row for row in good.lake.bronze if row.ingested_us == INGESTED_US)
    newest = max(
        row.reading.measured_at for row in good.lake.speed if good.truth.records[row.place].number < 50
    )
    key = EventKey("m000", 0, newest - WATERMARK_DELAY)
    assert clock.may_have_passed(row.place, key)
    assert not clock.may_have_passed(
        row.place, replace(key, measured_at=key.measured_at + timedelta(hours=1))
    )


DAY = date(2024, 3, 1)


def poll(at_s: float, verdicts: int, served: str, copied: str = "a") -> Poll:
    return Poll(at_s, {DAY: verdicts}, {DAY: served}, {DAY: copied})


def rules_of(*polls: Poll) -> set[str]:
    return {violation.rule for violation in unsteady(polls)}


def test_a_certified_day_may_change_with_a_verdict_and_not_without() -> None:
    assert rules_of(poll(1, 1, "a"), poll(2, 1, "a"), poll(3, 2, "b")) == set()
    assert rules_of(poll(1, 1, "a"), poll(2, 1, "b")) == {"a certified day changes with a verdict only"}
    gone = Poll(2, {}, {}, {DAY: "a"})
    assert "a certified day changes with a verdict only" in rules_of(poll(1, 1, "a"), gone)


def test_the_serving_table_follows_verdicts_however_late() -> None:
    assert rules_of(poll(1, 1, "a"), poll(2, 2, "b"), poll(3, 2, "b", "b")) == set()
    twice = poll(1, 2, "b"), poll(2, 2, "b", "b"), poll(3, 2, "b", "c")
    assert rules_of(*twice) == {"the serving table changes with a verdict only"}


def test_a_key_that_a_reader_gets_twice_is_found() -> None:
    twice = replace(poll(1, 1, "a"), doubled=[EventKey("m000", 1, datetime(2024, 3, 1, tzinfo=UTC))])
    assert rules_of(twice) == {"readers never get a key twice"}
