"""The comparison sees every way in which a lake can differ from the truth."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from demo.compare import Findings, Served, compare
from demo.replay import Plan, plan_replay
from demo.source import demo_days, read_flights


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_replay(read_flights(demo_days(3)), seed=3)


def right_rows(plan: Plan) -> list[Served]:
    return [Served(key, expected.winner, expected.day) for key, expected in plan.truth.events.items()]


def judged(plan: Plan, rows: list[Served]) -> Findings:
    return compare(rows, plan.truth.quarantined, plan.truth)


def test_a_right_lake_is_sound(plan: Plan) -> None:
    findings = judged(plan, right_rows(plan))
    assert findings.sound
    assert findings.rows == len(plan.truth.events)
    assert not findings.examples


def lose(rows: list[Served]) -> None:
    del rows[7]


def double(rows: list[Served]) -> None:
    rows.append(rows[7])


def falsify(rows: list[Served]) -> None:
    rows[7] = rows[7]._replace(payload=rows[7].payload._replace(departure_delay=9999.0))


def move(rows: list[Served]) -> None:
    rows[7] = rows[7]._replace(day=rows[7].day + timedelta(days=1))


def invent(rows: list[Served]) -> None:
    rows.append(rows[7]._replace(key=rows[7].key._replace(flight=99999)))


@pytest.mark.parametrize(
    ("harm", "difference"),
    [
        (lose, "lost"),
        (double, "duplicated"),
        (falsify, "wrong payload"),
        (move, "wrong payload"),
        (invent, "never sent"),
    ],
)
def test_one_harmed_row_is_one_difference_with_an_example(
    plan: Plan, harm: Callable[[list[Served]], None], difference: str
) -> None:
    rows = right_rows(plan)
    harm(rows)
    findings = judged(plan, rows)
    assert {name: count for name, count in findings.differences.items() if count} == {difference: 1}
    assert len(findings.examples) == 1
    assert not findings.sound


def test_a_loser_is_wrong_on_a_certified_day_and_lawful_on_the_last_one(plan: Plan) -> None:
    contested = {key: expected for key, expected in plan.truth.events.items() if expected.losers}
    for key, expected in contested.items():
        rows = [
            row._replace(payload=next(iter(expected.losers))) if row.key == key else row
            for row in right_rows(plan)
        ]
        assert judged(plan, rows).wrong == (0 if expected.day == plan.truth.uncertified_day else 1)
    assert {expected.day == plan.truth.uncertified_day for expected in contested.values()} >= {False}


@pytest.mark.parametrize("change", [-1, 1])
def test_a_record_too_few_or_too_many_in_quarantine_is_seen(plan: Plan, change: int) -> None:
    quarantined = dict(plan.truth.quarantined)
    quarantined["null_value"] += change
    findings = compare(right_rows(plan), quarantined, plan.truth)
    assert findings.misquarantined == 1
    assert not findings.sound


def test_an_empty_lake_has_lost_everything(plan: Plan) -> None:
    assert judged(plan, []).lost == len(plan.truth.events)
