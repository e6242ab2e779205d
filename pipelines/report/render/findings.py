"""What the numbers of a report say: the headline, the sums that must hold, and what speaks against them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pipelines.ledger.checks import LAYERS_AGREE, CheckStatus
from pipelines.report.model.report import ReportCheck, ReportData
from pipelines.report.render.text import plural

_FIRST: Final[dict[CheckStatus, int]] = {"failed": 0, "warned": 1, "passed": 2}


@dataclass(frozen=True)
class Part:
    """One term of a sum: what it counts, how many, and the colour that it has in the pictures."""

    name: str
    count: int
    tone: str


@dataclass(frozen=True)
class Sum:
    """A sum that must hold between two steps of the flow.

    Attributes:
        whole: The left side.
        parts: The right side.
        missing: Whole minus parts, zero if it adds up.
        meaning: What the sum says, in words.
        pending: The right side is not there yet, so that a difference is no fault.
        judge: The check that has judged a difference and let it pass; None if a difference is a fault.
    """

    whole: Part
    parts: tuple[Part, ...]
    missing: int
    meaning: str
    pending: bool = False
    judge: str | None = None

    def width(self, part: Part) -> str:
        """Return the share of a part in the bar, as a CSS width; a negative remainder is not drawn."""
        total = sum(each.count for each in self.parts) + max(self.missing, 0)
        return f"{100 * part.count / total:.3f}%"


def sums(data: ReportData) -> tuple[Sum, ...]:
    """State the three sums of the flow, from bronze to the batch layer and across to the speed layer.

    Args:
        data: The report.

    Returns:
        The sums, in the direction of the flow.
    """
    flow = data.flow
    pending = not data.is_decided
    day = Part("records of this day", flow.day_records, "records")
    batch = Part("rows in the batch layer", flow.batch, "batch")
    return (
        Sum(
            Part("records in bronze", flow.bronze, "bronze"),
            (
                day,
                Part("records of other days", flow.other_days, "other"),
                Part("quarantined", flow.quarantined, "quarantined"),
            ),
            flow.missing_from_day,
            "Everything that was read from Kafka is of this day, of another day, or in quarantine.",
        ),
        Sum(
            day,
            (batch, Part("duplicates removed", flow.duplicates, "duplicates")),
            flow.missing_from_batch,
            "Every record of the day is one row, or a copy of one.",
            pending,
        ),
        Sum(
            batch,
            (
                Part("rows that the speed layer had", flow.speed, "speed"),
                Part("late rows, only in the rebuild", flow.late, "late"),
            ),
            flow.missing_from_speed,
            "The two layers differ only by rows that came too late for the speed layer.",
            pending,
            LAYERS_AGREE if data.layers_agree else None,
        ),
    )


def headline(data: ReportData) -> str:
    """Say the day's verdict in one line of plain words.

    Args:
        data: The report.

    Returns:
        One sentence without a full stop, beginning with the day.
    """
    verdict, day = data.verdict, data.day.isoformat()
    if verdict.status == "certified":
        if not data.flow.batch:
            return f"{day} is certified: no event on this day"
        return f"{day} is certified: every event once"
    if verdict.status == "open":
        return f"{day} is not over: not yet rebuilt and audited"
    if verdict.status == "failed" and verdict.failed:
        total = verdict.passed + verdict.failed + verdict.warned
        return f"{day} is NOT certified: {verdict.failed:,} of {plural(total, 'check')} failed"
    return f"{day} is NOT certified: {_why_not(data)}"


def _why_not(data: ReportData) -> str:
    return "its audit did not pass" if data.verdict.status == "failed" else "no audit of it has passed"


def doubts(data: ReportData) -> list[str]:
    """Name what the page's own numbers have against a certified verdict.

    Args:
        data: The report.

    Returns:
        One clause for each contradiction; none if the day is not certified.
    """
    if data.verdict.status != "certified":
        return []
    problems = [
        f"the {each.whole.name} do not add up"
        for each in sums(data)
        if each.missing and not (each.judge or each.pending)
    ]
    failed = data.verdict.failed or sum(check.status == "failed" for check in data.checks)
    return [*problems, f"{plural(failed, 'check')} failed"] if failed else problems


def ordered_checks(checks: Iterable[ReportCheck]) -> list[ReportCheck]:
    """Put failed checks first, then warned and passed ones; the order within each stays."""
    return sorted(checks, key=lambda check: _FIRST[check.status])
