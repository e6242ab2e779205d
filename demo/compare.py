"""Holds the lake against the truth, in plain Python: independent of how the pipeline does it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import NamedTuple

from demo.source import FlightKey, FlightPayload
from demo.truth import Truth

_EXAMPLES = 5


class Served(NamedTuple):
    """A row as a reader of the lake gets it.

    Attributes:
        key: The dedup key.
        payload: The rest of the contract's columns.
        day: `_event_date`.
    """

    key: FlightKey
    payload: FlightPayload
    day: date


@dataclass(frozen=True)
class Findings:
    """How the lake differs from the truth; all numbers are zero in a lake that is right.

    Attributes:
        rows: Rows served.
        lost: Events without a row.
        doubled: Rows beyond the first of an event.
        wrong: Rows whose payload or event day is not the winner's.
        never_sent: Rows of events that were never sent.
        misquarantined: Records by which the quarantine differs, summed over the reasons.
        quarantined: Records in quarantine by reason.
        examples: Some of the offending rows, in words.
    """

    rows: int
    lost: int
    doubled: int
    wrong: int
    never_sent: int
    misquarantined: int
    quarantined: Mapping[str, int]
    examples: tuple[str, ...] = field(default=())

    @property
    def sound(self) -> bool:
        """Whether nothing differs."""
        return not any(self.differences.values())

    @property
    def differences(self) -> dict[str, int]:
        """The kinds of difference in words, each with its number."""
        return {
            "lost": self.lost,
            "duplicated": self.doubled,
            "wrong payload": self.wrong,
            "never sent": self.never_sent,
            "quarantine differs": self.misquarantined,
        }


def compare(served: Iterable[Served], quarantined: Mapping[str, int], truth: Truth) -> Findings:
    """Compare what readers get with what must be there.

    Args:
        served: Every row that a reader gets.
        quarantined: Number of records in quarantine by reason.
        truth: What was sent, and what must become of it.

    Returns:
        The differences.
    """
    seen: Counter[FlightKey] = Counter()
    wrong: list[Served] = []
    never_sent: list[Served] = []
    for row in served:
        seen[row.key] += 1
        expected = truth.events.get(row.key)
        if expected is None:
            never_sent.append(row)
        elif row.day != expected.day or row.payload not in truth.acceptable(row.key):
            wrong.append(row)
    lost = [key for key in truth.events if key not in seen]
    doubled = {key: count - 1 for key, count in seen.items() if count > 1}
    reasons = quarantined.keys() | truth.quarantined.keys()
    off = {reason: quarantined.get(reason, 0) - truth.quarantined.get(reason, 0) for reason in reasons}
    examples = [
        *(f"lost: {_name(key)}" for key in lost[:_EXAMPLES]),
        *(f"duplicated: {_name(key)}" for key in list(doubled)[:_EXAMPLES]),
        *(
            f"wrong: {_name(row.key)} is {row.payload} on {row.day}, expected {truth.events[row.key]}"
            for row in wrong[:_EXAMPLES]
        ),
        *(f"never sent: {_name(row.key)}" for row in never_sent[:_EXAMPLES]),
        *(f"quarantine: {difference:+} for {reason}" for reason, difference in off.items() if difference),
    ]
    return Findings(
        rows=sum(seen.values()),
        lost=len(lost),
        doubled=sum(doubled.values()),
        wrong=len(wrong),
        never_sent=len(never_sent),
        misquarantined=sum(abs(difference) for difference in off.values()),
        quarantined=dict(quarantined),
        examples=tuple(examples),
    )


def _name(key: FlightKey) -> str:
    return f"{key.carrier} {key.flight} from {key.origin} at {key.scheduled_departure:%Y-%m-%d %H:%M} UTC"
