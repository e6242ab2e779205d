"""The plan of a replay is repeatable, adds up, and its truth follows from what is sent."""

import json
from collections import Counter, defaultdict
from datetime import datetime
from typing import Any

import pytest

from demo.poison import REASONS, Poison
from demo.replay import MAX_DISORDER_MS, Plan, plan_replay
from demo.sends import DAY, HOUR, Send, Sort, split_waves
from demo.source import ZONE, Flight, FlightKey, demo_days, read_flights
from demo.truth import Copy, expected_events

pytestmark = pytest.mark.patient

PARTITIONS = 3


@pytest.fixture(scope="module")
def flights() -> list[Flight]:
    return read_flights(demo_days(14))


@pytest.fixture(scope="module")
def plan(flights: list[Flight]) -> Plan:
    return plan_replay(flights, seed=7, partitions=PARTITIONS)


def decoded(value: bytes | None) -> dict[str, Any]:
    """Decode as strictly as the contract asks; `ValueError` names the quarantine reason."""
    if value is None:
        raise ValueError("null_value")
    try:
        fields = json.loads(value)
    except json.JSONDecodeError:
        raise ValueError("malformed_json") from None
    if not isinstance(fields, dict):
        raise ValueError("not_an_object")
    required = ("carrier", "flight", "origin", "scheduled_departure", "dest", "distance")
    if any(fields.get(name) is None for name in required):
        raise ValueError("missing_field")
    numbers = ("departure_delay", "arrival_delay", "air_time", "distance")
    if type(fields["flight"]) is not int or any(
        fields[name] is not None and type(fields[name]) is not float for name in numbers
    ):
        raise ValueError("wrong_type")
    if datetime.fromisoformat(fields["scheduled_departure"]).year > 2014:
        raise ValueError("event_time_future")
    return fields


def event(fields: dict[str, Any]) -> tuple[Any, ...]:
    return (
        fields["carrier"],
        fields["flight"],
        fields["origin"],
        datetime.fromisoformat(fields["scheduled_departure"]),
    )


def test_the_same_seed_gives_the_same_plan(flights: list[Flight], plan: Plan) -> None:
    again = plan_replay(flights, seed=7, partitions=PARTITIONS)
    assert again == plan
    assert again.truth.fingerprint() == plan.truth.fingerprint()


def test_another_seed_gives_another_plan_of_the_same_events(flights: list[Flight], plan: Plan) -> None:
    other = plan_replay(flights, seed=8, partitions=PARTITIONS)
    assert other.sends != plan.sends
    assert other.truth.events.keys() == plan.truth.events.keys()
    assert other.truth.fingerprint() != plan.truth.fingerprint()


def test_sent_is_unique_plus_duplicates_plus_poison(flights: list[Flight], plan: Plan) -> None:
    truth = plan.truth
    assert len(truth.events) == len(flights)
    assert (
        truth.sent
        == len(plan.sends)
        == len(truth.events) + truth.duplicates + sum(truth.quarantined.values())
    )
    in_time = len(flights) - plan.sorts[Sort.OVERDUE]
    assert truth.duplicates - plan.sorts[Sort.CONFLICT] == round(in_time * 0.05)


def test_the_wire_alone_gives_the_truth(plan: Plan) -> None:
    """Independently of the planner: decode what is sent, count, and choose winners by the rule."""
    copies: dict[tuple[Any, ...], list[tuple[int, int, int, dict[str, Any]]]] = defaultdict(list)
    refused: Counter[str] = Counter()
    offsets: Counter[int] = Counter()
    for send in plan.sends:
        offset = offsets[send.partition]
        offsets[send.partition] += 1
        try:
            fields = decoded(send.value)
        except ValueError as reason:
            refused[str(reason)] += 1
            continue
        copies[event(fields)].append((send.timestamp_ms, send.partition, offset, fields))
    assert refused == plan.truth.quarantined
    assert sum(len(same) - 1 for same in copies.values()) == plan.truth.duplicates
    assert copies.keys() == plan.truth.events.keys()
    conflicts = 0
    for key, same in copies.items():
        expected = plan.truth.events[FlightKey(*key)]
        winner = min(same, key=lambda copy: copy[:3])[3]
        assert {name: winner[name] for name in expected.winner._fields} == expected.winner._asdict()
        assert key[3].astimezone(ZONE).date() == expected.day
        conflicts += len({json.dumps(copy[3]) for copy in same}) > 1
    assert conflicts == plan.truth.conflicts == plan.sorts[Sort.CONFLICT]


@pytest.mark.parametrize("days", [2, 3, 14])
def test_overdue_flights_come_last_and_belong_to_days_that_the_first_night_certified(days: int) -> None:
    plan = plan_replay(read_flights(demo_days(days)), seed=7, partitions=PARTITIONS)
    assert [*plan.before_first_night, *plan.after_first_night] == list(plan.sends)
    assert plan.first_night == plan.days[: max(days - 2, 1)]
    overdue = [send.flight for send in plan.after_first_night if send.flight]
    before = {send.flight.key for send in plan.before_first_night if send.flight}
    assert Counter(flight.day for flight in overdue) == dict.fromkeys(plan.first_night[-2:], 2)
    assert not {flight.key for flight in overdue} & before
    assert plan.truth.late == plan.sorts[Sort.LATE] + len(overdue)


def test_rows_by_day_cover_all_events(flights: list[Flight], plan: Plan) -> None:
    assert plan.truth.rows_by_day == Counter(flight.day for flight in flights)
    assert tuple(plan.truth.rows_by_day) == plan.days
    assert plan.truth.uncertified_day == plan.days[-1]


@pytest.mark.parametrize("kind", Poison)
def test_every_kind_of_poison_is_refused_for_its_reason(plan: Plan, kind: Poison) -> None:
    broken = [send for send in plan.sends if send.poison is kind]
    assert len(broken) >= 2
    for send in broken:
        assert send.flight is None
        with pytest.raises(ValueError, match=REASONS[kind]):
            decoded(send.value)


def test_disorder_stays_below_the_watermark_delay_except_for_late_flights(plan: Plan) -> None:
    seen = 0.0
    disordered = 0
    for send in plan.sends:
        if send.flight is None:
            continue
        departure = send.flight.key.scheduled_departure.timestamp() * 1000
        if send.sort is Sort.FIRST:
            assert seen - departure <= MAX_DISORDER_MS
            disordered += seen - departure > HOUR
        if send.sort is Sort.LATE:
            assert seen - departure > DAY
        seen = max(seen, departure)
    assert disordered > 100


def test_late_flights_come_once_the_watermark_is_past_and_never_for_the_uncertified_day(plan: Plan) -> None:
    late = [send for send in plan.sends if send.sort is Sort.LATE]
    assert len(late) == plan.truth.late - plan.sorts[Sort.OVERDUE] >= 2
    assert all(send.flight and send.flight.day < plan.truth.uncertified_day for send in late)
    assert all(send.attempt == 1 for send in late)


def test_retries_are_of_every_sort(plan: Plan) -> None:
    first = {send.flight.key: send for send in plan.sends if send.flight and send.attempt == 1}

    def pairs(sort: Sort) -> list[tuple[Send, Send]]:
        return [(first[send.flight.key], send) for send in plan.sends if send.flight and send.sort is sort]

    assert all(again.at_ms - once.at_ms >= 6 * HOUR for once, again in pairs(Sort.LONG_GAP_RETRY))
    assert all(again.partition != once.partition for once, again in pairs(Sort.OTHER_PARTITION_RETRY))
    assert {again.timestamp_ms == once.timestamp_ms for once, again in pairs(Sort.RETRY)} == {True, False}
    assert all(again.value == once.value for once, again in pairs(Sort.RETRY))
    assert min(plan.sorts.values()) >= 2


def test_some_conflicts_are_won_by_the_copy_sent_later(plan: Plan) -> None:
    first = {send.flight.key: send.flight for send in plan.sends if send.flight and send.attempt == 1}
    contested = {key: expected for key, expected in plan.truth.events.items() if expected.losers}
    won_by_first = [expected.winner == first[key].payload for key, expected in contested.items()]
    assert any(won_by_first)
    assert not all(won_by_first)


def test_partitions_are_all_used_and_in_range(plan: Plan) -> None:
    assert {send.partition for send in plan.sends} == set(range(PARTITIONS))


def test_sends_are_in_the_order_of_sending(plan: Plan) -> None:
    assert all(one.at_ms <= two.at_ms for one, two in zip(plan.sends, plan.sends[1:], strict=False))


@pytest.mark.parametrize(
    ("one", "two", "winner"),
    [
        ((5, 0, 9), (4, 2, 10), "two"),
        ((5, 1, 0), (5, 0, 10), "two"),
        ((5, 1, 0), (5, 1, 10), "one"),
        ((4, 2, 10), (5, 0, 0), "one"),
    ],
)
def test_the_winner_is_first_by_timestamp_then_partition_then_offset(
    flights: list[Flight], one: tuple[int, int, int], two: tuple[int, int, int], winner: str
) -> None:
    told = {
        name: flights[0]._replace(payload=flights[0].payload._replace(tailnum=name))
        for name in ("one", "two")
    }
    events = expected_events([Copy(told["one"], *one), Copy(told["two"], *two)])
    assert events[flights[0].key].winner.tailnum == winner
    assert len(events[flights[0].key].losers) == 1


def test_a_certified_day_accepts_the_winner_alone_and_the_uncertified_day_any_copy(plan: Plan) -> None:
    for key, expected in plan.truth.events.items():
        if expected.losers:
            uncertified_day = expected.day == plan.truth.uncertified_day
            assert len(plan.truth.acceptable(key)) == (1 + len(expected.losers) if uncertified_day else 1)


@pytest.mark.parametrize("count", [1, 2, 14, 1000])
def test_waves_joined_are_the_plan(plan: Plan, count: int) -> None:
    sends = plan.sends[:500]
    waves = split_waves(sends, count)
    assert [send for wave in waves for send in wave] == list(sends)
    assert all(waves)
    assert len(waves) == min(count, 500)


def test_two_days_have_no_late_flights_and_still_every_poison() -> None:
    plan = plan_replay(read_flights(demo_days(2)), seed=1)
    assert plan.sorts[Sort.LATE] == 0
    assert {send.poison for send in plan.sends} == {None, *Poison}


def test_nothing_to_replay_is_refused() -> None:
    with pytest.raises(ValueError, match="expected flights"):
        plan_replay([], seed=1)
