"""Alerts neither flap nor repeat, whatever evaluations find, and survive restarts and hooks that fail."""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, get_args

from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from pipelines.lag.alerts import (
    AlertPolicy,
    AlertState,
    Evaluation,
    EvaluationStatus,
    PipelineAlerts,
    status_of,
)
from pipelines.lag.diagnosis import LagCause

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
POLICIES = st.builds(AlertPolicy, st.integers(2, 5), st.integers(2, 5))
FINDINGS = st.lists(st.sampled_from(get_args(EvaluationStatus)), max_size=60)
FILE = TypeAdapter(PipelineAlerts)
HOOKS = ("notify.command", "notify.webhook")


def changes(
    findings: list[EvaluationStatus], policy: AlertPolicy, state: AlertState | None = None
) -> list[int]:
    """The evaluations that change an alert; the first of them raises it, the next one clears it."""
    now, found = state or AlertState(), list[int]()
    for number, status in enumerate(findings):
        after = now.after(status, AT, policy)
        found += [number] if after.is_raised != now.is_raised else []
        now = after
    return found


@given(FINDINGS, POLICIES)
def test_an_alert_changes_only_after_a_whole_streak(
    findings: list[EvaluationStatus], policy: AlertPolicy
) -> None:
    found = changes(findings, policy)
    for number, (at, against) in enumerate(zip(found, ("bad", "good") * 30, strict=False)):
        needed = policy.clear_after if number % 2 else policy.raise_after
        assert findings[at - needed + 1 : at + 1] == [against] * needed
    # Not more than one change in as many evaluations as it takes.
    for number, (one, next_one) in enumerate(pairwise(found)):
        assert next_one - one >= (policy.raise_after if number % 2 else policy.clear_after)


@given(FINDINGS, POLICIES)
def test_a_streak_is_never_overlooked(findings: list[EvaluationStatus], policy: AlertPolicy) -> None:
    raised = changes(findings, policy)
    bad = ["bad"] * policy.raise_after
    streaks = [at for at in range(len(findings)) if findings[at : at + len(bad)] == bad]
    assert bool(raised) == bool(streaks)
    if streaks:
        assert raised[0] == streaks[0] + len(bad) - 1


@given(st.integers(0, 30), st.integers(0, 30), POLICIES, st.booleans())
def test_a_single_odd_evaluation_never_alerts(
    before: int, after: int, policy: AlertPolicy, is_raised: bool
) -> None:
    usual, odd = ("bad", "good") if is_raised else ("good", "bad")
    findings: list[Any] = [usual] * before + [odd] + [usual] * after
    assert changes(findings, policy, AlertState(is_raised)) == []


@given(FINDINGS, POLICIES, st.lists(st.integers(0, 60), max_size=5))
def test_restarts_change_nothing(
    findings: list[EvaluationStatus], policy: AlertPolicy, restarts: list[int]
) -> None:
    going_on = restarted = PipelineAlerts()
    for number, status in enumerate(findings):
        observed, at = [Evaluation("speed", status, {"records": 7})], AT + timedelta(minutes=number)
        going_on = going_on.after(observed, at, policy, HOOKS)
        restarted = restarted.after(observed, at, policy, HOOKS)
        if number in restarts:
            restarted = FILE.validate_json(FILE.dump_json(restarted))
    assert restarted == going_on


def book(*subjects: str) -> PipelineAlerts:
    """A book in which these have just raised an alert."""
    found = PipelineAlerts()
    for minute in range(2):
        observed = [Evaluation(subject, "bad", {"cause": "slow"}) for subject in subjects]
        found = found.after(observed, AT + timedelta(minutes=minute), AlertPolicy(2, 2), HOOKS)
    return found


def test_a_message_says_what_has_changed_and_since_when() -> None:
    raised = book("speed")
    assert [dict(letter.message) for letter in raised.outbox] == [
        {
            "alert": "raised",
            "stage": "speed",
            "at": "2026-01-01T12:01:00+00:00",
            "raised_at": "2026-01-01T12:01:00+00:00",
            "cause": "slow",
        }
    ]
    cleared = raised.send_pending(lambda message, hooks: ())
    for minute in (7, 8):
        at = AT + timedelta(minutes=minute)
        cleared = cleared.after([Evaluation("speed", "good")], at, AlertPolicy(2, 2), HOOKS)
    assert [dict(letter.message) for letter in cleared.outbox] == [
        {
            "alert": "cleared",
            "stage": "speed",
            "at": "2026-01-01T12:08:00+00:00",
            "raised_at": "2026-01-01T12:01:00+00:00",
        }
    ]


def test_a_hook_that_fails_is_called_again_and_one_that_worked_is_not() -> None:
    calls = list[tuple[str, tuple[str, ...]]]()

    def send(message: Mapping[str, Any], hooks: Collection[str]) -> Collection[str]:
        calls.append((message["stage"], tuple(hooks)))
        return ["notify.webhook"] if len(calls) == 1 else []

    raised = book("ingest", "speed")
    once = raised.send_pending(send)
    assert once.send_pending(send).outbox == ()
    assert calls == [
        ("ingest", HOOKS),
        # What stands behind the message that failed waits for it, and for one time-out alone.
        ("speed", ("notify.command",)),
        ("ingest", ("notify.webhook",)),
        ("speed", ("notify.webhook",)),
    ]


def test_what_no_hook_sends_does_not_grow_without_end() -> None:
    found = PipelineAlerts()
    for number in range(200):
        status: EvaluationStatus = "bad" if number // 2 % 2 == 0 else "good"
        found = found.after([Evaluation("speed", status)], AT, AlertPolicy(2, 2), HOOKS)
    assert len(found.outbox) == 20
    assert found.outbox[-1].message["alert"] == "cleared"


def test_subjects_that_an_evaluation_says_nothing_of_stay_as_they_are() -> None:
    raised = book("speed")
    after = raised.after([Evaluation("evaluation", "bad")], AT, AlertPolicy(2, 2), HOOKS)
    assert after.states["speed"] == raised.states["speed"]


def test_each_cause_has_a_meaning_for_alerts() -> None:
    found = {cause: status_of(cause) for cause in get_args(LagCause)}
    assert {cause for cause, status in found.items() if status != "bad"} == {
        "none",
        "source_quiet",
        "catching_up",
    }
    assert found["catching_up"] == "neither"
