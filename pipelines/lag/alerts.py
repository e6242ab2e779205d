"""When people are told that a stream is behind, and when that it no longer is.

One odd evaluation says nothing: an alert is raised after some bad evaluations in a row, and cleared after
some good ones. In between nothing is sent, so each alert is two messages.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Literal

from pydantic import AwareDatetime

from pipelines.lag.diagnosis import LagCause

EvaluationStatus = Literal["bad", "good", "neither"]
Change = Literal["raised", "cleared"]
Send = Callable[[Mapping[str, Any], Collection[str]], Collection[str]]
"""Sends a message by the hooks of these settings; returns those that failed."""

EVALUATION: Final = "evaluation"
"""The subject of an alert that the lag of no stream can be found out."""

_GOOD: Final[frozenset[LagCause]] = frozenset({"none", "source_quiet"})
# It is behind, as after an outage, and needs nobody.
_NEITHER: Final[frozenset[LagCause]] = frozenset({"catching_up"})
# A hook that never works must not let the file grow.
_MOST_KEPT: Final = 20


@dataclass(frozen=True)
class AlertPolicy:
    """How many evaluations in a row change an alert.

    Attributes:
        raise_after: Bad ones that raise it.
        clear_after: Good ones that clear it.
    """

    raise_after: int
    clear_after: int


@dataclass(frozen=True)
class AlertState:
    """The alert of a stage.

    Attributes:
        is_raised: Whether it is raised.
        streak: How many of the last evaluations in a row speak against that.
        changed_at: When it was raised or cleared; None if it never was raised.
    """

    is_raised: bool = False
    streak: int = 0
    changed_at: AwareDatetime | None = None

    def after(self, status: EvaluationStatus, at: datetime, policy: AlertPolicy) -> "AlertState":
        """Return the state after one more evaluation.

        Args:
            status: What the evaluation says; one that is neither bad nor good ends a streak.
            at: When it was made.
            policy: How many in a row change the alert.
        """
        against, needed = ("good", policy.clear_after) if self.is_raised else ("bad", policy.raise_after)
        streak = self.streak + 1 if status == against else 0
        if streak < needed:
            return replace(self, streak=streak)
        return AlertState(not self.is_raised, 0, at)


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation says of one subject.

    Attributes:
        subject: A stage, or `EVALUATION`.
        status: Whether that is bad.
        details: What a message says of it.
    """

    subject: str
    status: EvaluationStatus
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PendingMessage:
    """A message that has to be sent.

    Attributes:
        message: The message, as JSON takes it.
        hooks: The settings of the hooks that have yet to send it.
    """

    message: Mapping[str, Any]
    hooks: tuple[str, ...]


@dataclass(frozen=True)
class PipelineAlerts:
    """The alerts of a pipeline, as they are kept from one evaluation to the next.

    Attributes:
        states: The alert of each subject that was observed.
        outbox: Messages that have not been sent by all hooks, the oldest first.
    """

    states: Mapping[str, AlertState] = field(default_factory=dict)
    outbox: tuple[PendingMessage, ...] = ()

    def after(
        self, observed: Sequence[Evaluation], at: datetime, policy: AlertPolicy, hooks: Sequence[str]
    ) -> "PipelineAlerts":
        """Return the book after one more evaluation, with a message for each alert that it changes.

        Subjects that it says nothing of stay as they are.

        Args:
            observed: What it says.
            at: When it was made.
            policy: How many in a row change an alert.
            hooks: The settings of the hooks that send messages.
        """
        states, letters = dict(self.states), list(self.outbox)
        for each in observed:
            before = states.get(each.subject, AlertState())
            states[each.subject] = now = before.after(each.status, at, policy)
            if now.is_raised != before.is_raised:
                letters.append(PendingMessage(_message(each, before, now), tuple(hooks)))
        return PipelineAlerts(states, tuple(letters[-_MOST_KEPT:]))

    def send_pending(self, send: Send) -> "PipelineAlerts":
        """Send what has to be sent; return the book with what has not been sent.

        A hook gets its messages in order: one that has failed is not called for those behind.
        """
        failed, kept = set[str](), list[PendingMessage]()
        for letter in self.outbox:
            if due := [hook for hook in letter.hooks if hook not in failed]:
                failed |= {*send(letter.message, due)}
            if left := tuple(hook for hook in letter.hooks if hook in failed):
                kept.append(replace(letter, hooks=left))
        return replace(self, outbox=tuple(kept))


def raised_since(states: Mapping[str, AlertState]) -> dict[str, str]:
    """Return since when each alert is raised, as text; those that are not raised are left out."""
    since = {name: each.changed_at for name, each in states.items() if each.is_raised and each.changed_at}
    return {name: at.isoformat(timespec="seconds") for name, at in since.items()}


def status_of(cause: LagCause) -> EvaluationStatus:
    """Return what a cause of lag means for an alert."""
    return "good" if cause in _GOOD else "neither" if cause in _NEITHER else "bad"


def _message(observation: Evaluation, before: AlertState, now: AlertState) -> Mapping[str, Any]:
    change: Change = "raised" if now.is_raised else "cleared"
    raised = now if now.is_raised else before
    return {
        "alert": change,
        "stage": observation.subject,
        "at": _text(now.changed_at),
        "raised_at": _text(raised.changed_at),
        **observation.details,
    }


def _text(at: datetime | None) -> str | None:
    return at.isoformat(timespec="seconds") if at else None
