"""What must hold, whatever has happened: pure rules over what was read, each with its violations."""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from itertools import pairwise
from typing import Final

from chaos.observations import BronzeRow, EventKey, EventRow, Lake, OutputRecord, Place, Poll, SourceRecord
from chaos.traffic import DAYS, WATERMARK_DELAY, Reading, Refused
from chaos.values import JSON, Values

_EXAMPLES: Final = 3
_US: Final = 1_000_000


@dataclass(frozen=True)
class Violation:
    """A rule that does not hold.

    Attributes:
        rule: its name.
        count: how many records, rows or moments break it.
        examples: some of them, in words.
    """

    rule: str
    count: int
    examples: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.rule}: {self.count:,}, such as {'; '.join(self.examples)}"


class Truth:
    """What the lake has to hold, from the records of the topic alone.

    Args:
        source: the records of the topic.
        values: what their values say.
    """

    def __init__(self, source: Sequence[SourceRecord], values: Values = JSON) -> None:
        self.records = {record.place: record for record in source}
        self.judged = {
            place: values.judge(each.value, each.timestamp_ms) for place, each in self.records.items()
        }

    @cached_property
    def copies(self) -> Mapping[EventKey, list[Place]]:
        """The places of the valid records of each key, the winner first."""
        found = defaultdict[EventKey, list[Place]](list)
        for place, judged in self.judged.items():
            if isinstance(judged, Reading):
                found[EventKey.of(judged)].append(place)
        for places in found.values():
            places.sort(key=lambda place: (self.records[place].timestamp_ms, place))
        return found

    @cached_property
    def refused(self) -> Mapping[Place, str]:
        """The reasons of the records that break the contract."""
        return {place: each.reason for place, each in self.judged.items() if isinstance(each, Refused)}

    def winners(self, days: Iterable[date]) -> dict[EventKey, tuple[Place, Reading]]:
        """Return the row that each key of some days has to have."""
        wanted, found = set(days), dict[EventKey, tuple[Place, Reading]]()
        for key, (winner, *_) in self.copies.items():
            judged = self.judged[winner]
            if key.day in wanted and isinstance(judged, Reading):
                found[key] = winner, judged
        return found


Rule = Callable[[Lake, Truth], Iterator[str]]


def violations(lake: Lake, values: Values = JSON) -> list[Violation]:
    """Hold a lake against what the topic holds.

    Args:
        lake: what was read when the dust had settled.
        values: what the values of records say.
    """
    truth = Truth(lake.source, values)
    found = ((name, list(rule(lake, truth))) for name, rule in RULES.items())
    return [Violation(name, len(broken), tuple(broken[:_EXAMPLES])) for name, broken in found if broken]


def acknowledged_are_kept(lake: Lake, truth: Truth) -> Iterator[str]:
    """Yield records that the cluster has acknowledged and does not have."""
    for sent in lake.acknowledged:
        record = truth.records.get(sent.place)
        if record is None or (record.number, record.value) != (sent.number, sent.value):
            yield f"send {sent.number} at {sent.place}: found {record and record.number}"


def sends_in_the_topic_twice(lake: Lake) -> int:
    """Return how many sends the topic has more than once.

    Producers are idempotent, but a client whose connections are cut may begin a new epoch, and send once more
    what the broker had taken. The topic then has two records, and the lake has to have both.
    """
    return sum(count > 1 for count in Counter(record.number for record in lake.source).values())


def bronze_is_the_topic(lake: Lake, truth: Truth) -> Iterator[str]:
    """Yield records that bronze lacks, has twice, has otherwise, or that no producer sent."""
    yield from _more_than(1, (row.place for row in lake.bronze), "record")
    rows = {row.place: row for row in lake.bronze}
    for place, record in truth.records.items():
        row = rows.get(place)
        if row is None:
            yield f"record {place} is missing"
        elif (row.key, row.value, row.timestamp_ms) != (record.key, record.value, record.timestamp_ms):
            yield f"record {place} is another one"
    yield from (f"record {place} was never sent" for place in rows.keys() - truth.records.keys())


def quarantine_is_what_is_broken(lake: Lake, truth: Truth) -> Iterator[str]:
    """Yield broken records that the quarantine lacks, and others that it has."""
    yield from _more_than(1, (row.place for row in lake.quarantine), "record")
    found = {row.place: row for row in lake.quarantine}
    for place in found.keys() | truth.refused.keys():
        row, expected = found.get(place), truth.refused.get(place)
        if row is None or row.reason != expected:
            yield f"record {place}: found {row and row.reason}, expected {expected}"
        elif row.value != truth.records[place].value:
            yield f"record {place} has another value"


def speed_rows_are_records(lake: Lake, truth: Truth) -> Iterator[str]:
    """Yield rows of the speed layer that are there twice, or are not what their record says."""
    yield from _rows_are_records(lake.speed, truth)


def speed_lacks_only_late_events(lake: Lake, truth: Truth) -> Iterator[str]:
    """Yield events that the speed layer lacks although no copy of them can have been late in it."""
    known = {row.key for row in lake.speed}
    clock = Clock(lake.bronze, truth)
    for key, places in truth.copies.items():
        if key not in known and not all(clock.may_have_passed(place, key) for place in places):
            yield f"{key}, {places[0]}"


class Clock:
    """How far the watermark of the speed layer can have been when a record came to it.

    Args:
        bronze: tells when each record was read.
        truth: tells what moves the watermark.
    """

    def __init__(self, bronze: Sequence[BronzeRow], truth: Truth) -> None:
        self._ingested = {row.place: row.ingested_us for row in bronze}
        moments = dict[int, float]()
        for place, at in self._ingested.items():
            judged = truth.judged.get(place)
            if isinstance(judged, Reading):
                sent_s = truth.records[place].timestamp_ms / 1000
                moved = min(judged.measured_at.timestamp(), sent_s, at / _US)
                moments[at] = max(moments.get(at, moved), moved)
        self._newest = dict[int, float]()
        newest = float("-inf")
        for at in sorted(set(self._ingested.values())):
            newest = max(newest, moments.get(at, newest))
            self._newest[at] = newest

    def may_have_passed(self, place: Place, key: EventKey) -> bool:
        """Return whether the watermark can have been past an event when its record came."""
        at = self._ingested.get(place)
        if at is None:
            return True
        return key.measured_at.timestamp() <= self._newest[at] - WATERMARK_DELAY.total_seconds()


def days_are_certified(lake: Lake, truth: Truth) -> Iterator[str]:
    """Yield days that the last nightly run had to certify and did not."""
    yield from (f"{day} is not certified" for day in DAYS if day not in lake.certified)


def batch_is_the_winners(lake: Lake, truth: Truth) -> Iterator[str]:
    """Yield what the certified days lack, have twice, or have otherwise."""
    yield from _rows_are_winners(lake.batch, truth, lake.certified)


def serving_table_is_the_winners(lake: Lake, truth: Truth) -> Iterator[str]:
    """Yield the same of the serving table."""
    yield from _rows_are_winners(lake.serving, truth, lake.certified)


def output_is_once(lake: Lake, truth: Truth) -> Iterator[str]:
    """Yield events, or corrections, that consumers got twice between two times when all was sent again."""
    fresh, corrections = list[Hashable](), list[Hashable]()
    for record in lake.output:
        begun = sum(record.place.offset >= ends.get(record.place.partition, 0) for ends in lake.sent_again)
        if record.correction is None:
            fresh.append((record.key, f"when sent for the {begun + 1}. time"))
        else:
            corrections.append(
                (record.key, record.correction, record.origin, f"when sent for the {begun + 1}. time")
            )
    yield from _more_than(1, fresh, "event")
    yield from _more_than(1, corrections, "correction")


def output_says_what_records_say(lake: Lake, truth: Truth) -> Iterator[str]:
    """Yield records of the output topic that are not what the record says that they came from."""
    for record in lake.output:
        if record.reading is not None and truth.judged.get(record.origin) != record.reading:
            yield f"{record.key}, {record.correction}, {record.place}"


def output_is_what_is_served(lake: Lake, truth: Truth) -> Iterator[str]:
    """Yield events of which a consumer who keeps the newest values has another one than the lake."""
    kept = dict[EventKey, OutputRecord]()
    for record in lake.output:
        kept[record.key] = record
    served = {row.key: row.reading for row in lake.batch}
    served |= {row.key: row.reading for row in lake.speed if row.key.day not in lake.certified}
    for key in kept.keys() | served.keys():
        sent = kept[key].reading if key in kept else None
        if sent != served.get(key):
            yield f"{key}: found {sent}, expected {served.get(key)}"


RULES: Final[Mapping[str, Rule]] = {
    "acknowledged records are in the topic": acknowledged_are_kept,
    "bronze is the topic": bronze_is_the_topic,
    "the quarantine is what is broken": quarantine_is_what_is_broken,
    "rows of the speed layer are records, each key once": speed_rows_are_records,
    "the speed layer lacks only late events": speed_lacks_only_late_events,
    "the days are certified": days_are_certified,
    "certified days are the winners": batch_is_the_winners,
    "the serving table is the winners": serving_table_is_the_winners,
    "consumers get each event once": output_is_once,
    "the output topic says what records say": output_says_what_records_say,
    "the output topic, compacted, is what is served": output_is_what_is_served,
}


def unsteady(polls: Sequence[Poll]) -> list[Violation]:
    """Hold what a reader found all the time against what it was promised.

    Args:
        polls: in their order.
    """
    found = {
        "readers never get a key twice": [
            f"at {poll.at_s:.0f} s {key}" for poll in polls for key in poll.doubled
        ],
        "a certified day changes with a verdict only": list(_changed(polls)),
        "the serving table changes with a verdict only": list(_changed_copies(polls)),
    }
    return [Violation(name, len(said), tuple(said[:_EXAMPLES])) for name, said in found.items() if said]


def _changed(polls: Sequence[Poll]) -> Iterator[str]:
    for before, after in pairwise(polls):
        for day, digest in before.served.items():
            if day not in after.served:
                yield f"at {after.at_s:.0f} s {day} is no longer certified"
            elif digest != after.served[day] and after.verdicts[day] <= before.verdicts[day]:
                yield f"at {after.at_s:.0f} s {day}"


def _changed_copies(polls: Sequence[Poll]) -> Iterator[str]:
    # The copy follows the verdict, so the verdict of a change may have been seen before it.
    changes = Counter[date]()
    for before, after in pairwise(polls):
        for day, digest in before.copied.items():
            if digest != after.copied.get(day):
                changes[day] += 1
                if changes[day] >= after.verdicts.get(day, 0):
                    yield f"at {after.at_s:.0f} s {day}"


def _rows_are_records(rows: Sequence[EventRow], truth: Truth) -> Iterator[str]:
    yield from _more_than(1, (row.key for row in rows), "key")
    for row in rows:
        if truth.judged.get(row.place) != row.reading or row.day != row.key.day:
            yield f"{row.key}, {row.place} is not what the record says"


def _rows_are_winners(rows: Sequence[EventRow], truth: Truth, days: Iterable[date]) -> Iterator[str]:
    yield from _rows_are_records(rows, truth)
    found, expected = {row.key: row.place for row in rows}, truth.winners(days)
    for key in found.keys() | expected.keys():
        place, winner = found.get(key), expected[key][0] if key in expected else None
        if place != winner:
            yield f"{key}: found {place}, expected {winner}"


def _more_than(limit: int, things: Iterable[Hashable], what: str) -> Iterator[str]:
    for thing, times in Counter(things).items():
        if times > limit:
            name = ", ".join(map(str, thing)) if isinstance(thing, tuple) else thing
            yield f"{what} {name} {times} times"
