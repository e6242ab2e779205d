"""Render a ``ReportData`` as Markdown, short enough for a chat or a pull request.

Every text that comes from data stands as code, so that it can neither format, link nor call anybody.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pipelines.report.model.history import ChangedRow, Comparison
from pipelines.report.model.report import ReportData
from pipelines.report.render.findings import Sum, doubts, headline, ordered_checks, sums
from pipelines.report.render.text import NOTHING, percentage, plural, visible

_TREND_DAYS: Final = 7
_TEXT: Final = 160
_SAMPLES: Final = 10


def render_markdown(data: ReportData) -> str:
    """Render the report as Markdown with tables as GitHub and GitLab know them.

    Args:
        data: The report.

    Returns:
        The text with a final newline; the same for the same data.
    """
    parts = [
        [f"### {data.pipeline}: {headline(data)}"],
        _lede(data),
        _sums(data),
        _checks(data),
        _comparison(data.comparison) if data.comparison else [],
        _quarantine(data),
        _history(data),
        _trend(data),
        [f"Oncelake {_code(data.version)}; days in {data.time_zone}, moments in UTC."],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _lede(data: ReportData) -> list[str]:
    flow, verdict = data.flow, data.verdict
    counts = [
        plural(flow.day_records, "record") + " of this day",
        plural(flow.duplicates, "duplicate") + " removed",
        plural(flow.batch, "row"),
        f"{flow.late:,} late",
        plural(flow.conflicts, "conflict"),
        f"{flow.quarantined:,} in quarantine, of all days",
    ]
    checks = f"Checks: {verdict.passed:,} passed, {verdict.failed:,} failed, {verdict.warned:,} warned."
    against = doubts(data)
    doubt = [f"**The numbers do not confirm this: {', '.join(against)}.**"] if against else []
    return [", ".join(counts) + ". " + checks, *doubt]


def _sums(data: ReportData) -> list[str]:
    rows = [
        (
            f"{each.whole.count:,} {each.whole.name} = "
            + " + ".join(f"{part.count:,} {part.name}" for part in each.parts),
            _proof(each),
        )
        for each in sums(data)
    ]
    return _table(("Where every record went", ""), rows)


def _proof(each: Sum) -> str:
    if not each.missing:
        return "adds up"
    if each.pending:
        return "not rebuilt yet"
    if each.judge:
        return f"{abs(each.missing):,} {'fewer' if each.missing > 0 else 'more'}: see {each.judge}"
    return f"**{abs(each.missing):,} {'missing' if each.missing > 0 else 'too many'}**"


def _checks(data: ReportData) -> list[str]:
    problems = [check for check in ordered_checks(data.checks) if check.status in ("failed", "warned")]
    rows = [(c.status, _code(c.name), _code(c.expected), _code(c.observed)) for c in problems]
    return _table(("Verdict", "Check", "Expected", "Observed"), rows) if rows else []


def _comparison(comparison: Comparison) -> list[str]:
    if comparison.gone:
        return [f"Against the version that was certified before: {comparison.gone}"]
    counts = (
        f"{plural(comparison.added or 0, 'row')} added, {comparison.removed:,} removed,"
        f" {comparison.changed:,} changed"
    )
    versions = f"batch version {comparison.batch_version} against {comparison.previous_version}"
    shown = comparison.samples[:_SAMPLES]
    return [f"This rebuild changed the day: {counts} ({versions}).", *map(_sample, shown)]


def _sample(row: ChangedRow) -> str:
    key = ", ".join(f"{_code(part.column)} = {_value(part.value)}" for part in row.key)
    if row.change != "changed":
        return f"- {row.change}: {key}"
    values = ", ".join(
        f"{_code(c.column)} "
        + ("(not shown)" if c.personal == "drop" else f"{_value(c.before)} → {_value(c.after)}")
        for c in row.columns
    )
    return f"- changed: {key}: {values or 'same values, from another record'}"


def _quarantine(data: ReportData) -> list[str]:
    rows = [(_code(reason.reason), f"{reason.records:,}") for reason in data.quarantine]
    return _table(("In quarantine", "Records"), rows) if rows else []


def _history(data: ReportData) -> list[str]:
    rows = [
        (
            f"{past.decided_at:%Y-%m-%d %H:%M}",
            past.status,
            _value(past.cause),
            f"{past.batch_version}",
            *(_count(n) for n in (past.rows, past.came_late, past.added, past.removed, past.changed)),
        )
        for past in reversed(data.history)
    ]
    names = ("Decided", "Verdict", "Cause", "Version", "Rows", "Came late", "Added", "Removed", "Changed")
    # A day with one verdict has no history beyond the headline.
    return _table(names, rows) if len(rows) > 1 else []


def _trend(data: ReportData) -> list[str]:
    rows = [
        (
            day.day.isoformat() + (" (repaired)" if day.repairs else ""),
            day.status.replace("_", " "),
            f"{day.rows:,}",
            f"{day.duplicates:,} ({percentage(day.duplicates, day.records)})",
            f"{day.late:,}",
            _count(day.quarantined),
        )
        for day in data.trend[: -_TREND_DAYS - 1 : -1]
    ]
    return _table(("Day", "Verdict", "Rows", "Duplicates", "Late", "Quarantined"), rows) if rows else []


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return list(_lines([names, ["---"] * len(names), *rows]))


def _lines(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _count(number: int | None) -> str:
    return NOTHING if number is None else f"{number:,}"


def _value(text: str | None) -> str:
    return NOTHING if text is None else _code(text)


def _code(text: str) -> str:
    """Return a text as code.

    Behind a fence that is longer than any in it, without a bar that would end a cell.
    """
    shown = str(visible(text, _TEXT)).replace("|", "¦")
    fence = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
    return f"{fence} {shown} {fence}" if not shown or "`" in shown else f"{fence}{shown}{fence}"
