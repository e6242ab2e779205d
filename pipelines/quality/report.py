"""Render a ``ReportData`` as one self-contained HTML page, and as JSON.

The page needs no network and no script. Every text that comes from data passes ``visible`` (by Jinja's
``finalize``) and is then escaped, so that a poison record can neither act nor hide in its own report. The
same data gives the same bytes.
"""

import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template

from pipelines.errors import InfrastructureError
from pipelines.quality import charts
from pipelines.quality.checks import LAYERS_AGREE
from pipelines.quality.flow_chart import flow_chart
from pipelines.quality.report_model import CheckStatus, ReportCheck, ReportData
from pipelines.quality.report_text import NOTHING, plural, share, visible

_FIRST: Final[dict[CheckStatus, int]] = {"failed": 0, "warned": 1, "skipped": 2, "passed": 3}

_REASONS: Final = {
    "null_value": "The record has no value.",
    "malformed_json": "The value is not JSON, or it is cut off.",
    "not_an_object": "The value is JSON, but not an object with fields.",
    "wrong_type": "A field holds a value of another type than the contract says.",
    "missing_field": "A field that the contract requires is not there, or is null.",
    "rule_failed": "A value breaks a rule of the contract.",
    "event_time_future": "The event time lies further in the future than is allowed.",
}


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
        whole: the left side.
        parts: the right side.
        missing: whole minus parts, zero if it adds up.
        meaning: what the sum says, in words.
        pending: the right side is not there yet, so that a difference is no fault.
        judge: the check that has judged a difference and let it pass; None if a difference is a fault.
    """

    whole: Part
    parts: tuple[Part, ...]
    missing: int
    meaning: str
    pending: bool = False
    judge: str | None = None

    def width(self, part: Part) -> str:
        """Share of a part in the bar, as a CSS width; negative room is not drawn."""
        total = sum(each.count for each in self.parts) + max(self.missing, 0)
        return f"{100 * part.count / total:.3f}%"


def sums(data: ReportData) -> tuple[Sum, ...]:
    """State the three sums of the flow, from bronze to the batch layer and across to the speed layer.

    Args:
        data: the report.

    Returns:
        The sums, in the direction of the flow.
    """
    flow = data.flow
    pending = data.verdict.status == "open"
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
                Part("late rows, in the rebuild alone", flow.late, "late"),
            ),
            flow.missing_from_speed,
            "The two layers differ by rows that came too late for the speed layer, and by nothing else.",
            pending,
            LAYERS_AGREE if data.layers_agree else None,
        ),
    )


def headline(data: ReportData) -> str:
    """Say the day's verdict in one line of plain words.

    Args:
        data: the report.

    Returns:
        One sentence without a full stop, beginning with the day.
    """
    verdict, day = data.verdict, data.day.isoformat()
    if verdict.status == "certified":
        if not data.flow.batch:
            return f"{day} is certified: no event on this day"
        return f"{day} is certified: every event once"
    if verdict.status == "open":
        return f"{day} is open: not yet rebuilt and audited"
    if verdict.status == "failed" and verdict.failed:
        total = verdict.passed + verdict.failed + verdict.warned
        return f"{day} is NOT certified: {verdict.failed:,} of {plural(total, 'check')} failed"
    return f"{day} is NOT certified: {_why_not(data)}"


def _why_not(data: ReportData) -> str:
    return "its audit did not pass" if data.verdict.status == "failed" else "no audit of it has passed"


def doubts(data: ReportData) -> list[str]:
    """Name what the page's own numbers have against a certified verdict.

    Args:
        data: the report.

    Returns:
        One clause for each contradiction; none if the day is not certified.
    """
    if data.verdict.status != "certified":
        return []
    found = [f"the {each.whole.name} do not add up" for each in sums(data) if each.missing]
    failed = data.verdict.failed or sum(check.status == "failed" for check in data.checks)
    return [*found, f"{plural(failed, 'check')} failed"] if failed else found


def ordered_checks(checks: Iterable[ReportCheck]) -> list[ReportCheck]:
    """Put failed checks first, then warned, skipped and passed ones; the order within each stays."""
    return sorted(checks, key=lambda check: _FIRST[check.status])


def render_html(data: ReportData) -> str:
    """Render the report as one HTML page that needs nothing but itself.

    Args:
        data: the report.

    Returns:
        The page; the same bytes for the same data.
    """

    def local(instant: datetime) -> str:
        return instant.astimezone(data.zone).strftime("%Y-%m-%d %H:%M:%S %Z")

    return _template().render(
        data=data,
        headline=headline(data),
        sums=sums(data),
        doubts=doubts(data),
        checks=ordered_checks(data.checks),
        failed_names=[check.name for check in data.checks if check.status == "failed"],
        hours=list(zip(charts.hour_labels(data), data.duplicates_by_hour, strict=True)),
        flow_chart=flow_chart(data),
        duplicates_chart=charts.duplicates_chart(data),
        lateness_chart=charts.lateness_chart(data),
        trend_chart=charts.trend_chart(data),
        reasons=_REASONS,
        nothing=NOTHING,
        local=local,
    )


def render_json(data: ReportData) -> str:
    """Render the report as JSON, in the structure of ``ReportData``.

    Args:
        data: the report.

    Returns:
        Indented JSON with a final newline; ``ReportData.model_validate_json`` reads it back.
    """
    return data.model_dump_json(indent=2) + "\n"


def write_report(data: ReportData, out: Path) -> tuple[Path, Path]:
    """Write ``PIPELINE-DAY.html`` and ``PIPELINE-DAY.json``, each complete or not at all.

    Args:
        data: the report.
        out: folder; made if it is not there.

    Returns:
        The paths of page and JSON.

    Raises:
        InfrastructureError: the folder cannot be made or written.
    """
    stem = f"{data.pipeline}-{data.day.isoformat()}"
    page, numbers = out / f"{stem}.html", out / f"{stem}.json"
    contents = {page: render_html(data), numbers: render_json(data)}
    try:
        out.mkdir(parents=True, exist_ok=True)
        for path, content in contents.items():
            _replace(path, content)
    except OSError as error:
        raise InfrastructureError(
            f"report of {data.pipeline} {data.day}: cannot write to {out}: {error.strerror or error}; "
            "a folder that this user may write to was expected; name another one with --out"
        ) from error
    return page, numbers


def _replace(path: Path, content: str) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files for their owner alone; a report is there to be read.
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _read(name: str) -> str:
    # Not a file loader: the package may be a zip on the Python path.
    return resources.files("pipelines.quality").joinpath("templates", name).read_text(encoding="utf-8")


@cache
def _template() -> Template:
    environment = Environment(
        loader=FunctionLoader(_read),
        autoescape=True,
        finalize=visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(plural=plural, share=share, n=lambda count: f"{count:,}", cut=visible)
    return environment.get_template("report.html.j2")
