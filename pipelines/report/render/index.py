"""The index of a folder of reports: every day of every pipeline, from the JSON files in it alone."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from pathlib import Path
from typing import Annotated, Final
from zoneinfo import ZoneInfo

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from pipelines.report.model.records import Count, Text
from pipelines.report.model.report import DayStatus, PipelineName, Zone
from pipelines.report.render.jinja import template
from pipelines.report.render.text import NOTHING

INDEX: Final = "index.html"

# No table has more rows, and no share can be computed of much larger numbers.
_Number = Annotated[Count, Field(le=2**63 - 1)]
_REPORT: Final = re.compile(r".+-\d{4}-\d\d-\d\d\.json")


class _Part(BaseModel):
    # A report of another version of Oncelake may have more than the index asks for.
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Verdict(_Part):
    status: DayStatus
    failed: _Number


class _Flow(_Part):
    day_records: _Number
    duplicates: _Number
    conflicts: _Number
    batch: _Number
    late: _Number


class _Day(_Part):
    day: date
    quarantined: _Number | None = None
    repairs: _Number = 0


class Report(_Part):
    """What the index needs of one report.

    Attributes:
        pipeline: Name of the pipeline.
        day: The event day.
        time_zone: IANA zone of the day.
        generated_at: When the report was made.
        version: The version of Oncelake that made it.
        verdict: The verdict on the day, and how many checks failed.
        flow: Counts of the day.
        trend: The days that the report knows, this one among them.
    """

    pipeline: PipelineName
    day: date
    time_zone: Zone
    generated_at: AwareDatetime
    version: Text
    verdict: _Verdict
    flow: _Flow
    trend: tuple[_Day, ...] = ()

    @property
    def made(self) -> str:
        """When the report was made, in the zone of its days."""
        return self.generated_at.astimezone(ZoneInfo(self.time_zone)).strftime("%Y-%m-%d %H:%M %Z")

    @property
    def stem(self) -> str:
        """The name of its files, without the ending."""
        return f"{self.pipeline}-{self.day.isoformat()}"

    @property
    def of_day(self) -> _Day:
        """What the trend says of the day itself."""
        return next((entry for entry in self.trend if entry.day == self.day), _Day(day=self.day))


@dataclass(frozen=True)
class Entry:
    """One report of the folder: what it says, and the file that a reader is sent to."""

    report: Report
    link: str


@dataclass(frozen=True)
class ReportFolder:
    """The reports of a folder.

    Attributes:
        entries: The reports, by pipeline, the newest day first.
        unread: Names of files that are called like a report, and from which none could be read.
    """

    entries: tuple[Entry, ...]
    unread: tuple[str, ...]


@dataclass(frozen=True)
class Month:
    """The reports of one month of one pipeline.

    Attributes:
        name: Year and month, ``2013-01``.
        offset: Days of the week before the first of the month; weeks begin on Monday.
        cells: Each day of the month by its number, with its report if there is one.
        entries: The reports, the newest day first.
        states: How many days have which verdict.
    """

    name: str
    offset: int
    cells: tuple[tuple[int, Entry | None], ...]
    entries: tuple[Entry, ...]
    states: Mapping[DayStatus, int]


def entries(out: Path) -> ReportFolder:
    """Read the reports of a folder.

    Args:
        out: The folder; it need not be there.
    """
    readable: list[Entry] = []
    unread: list[str] = []
    for path in sorted(out.glob("*.json")):
        if not _REPORT.fullmatch(path.name):
            continue
        try:
            report = Report.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            unread.append(path.name)
            continue
        if report.stem == path.stem:
            page = path.with_suffix(".html")
            readable.append(Entry(report, (page if page.exists() else path).name))
        else:
            unread.append(path.name)
    readable.sort(key=lambda entry: (entry.report.pipeline, -entry.report.day.toordinal()))
    return ReportFolder(tuple(readable), tuple(unread))


def render_index(folder: ReportFolder) -> str:
    """Render the index as one HTML page that needs nothing but itself, and links to the reports beside it.

    Args:
        folder: The reports.

    Returns:
        The page; the same bytes for the same reports.
    """
    by_pipeline = groupby(folder.entries, key=lambda entry: entry.report.pipeline)
    pipelines = {name: list(_months(group)) for name, group in by_pipeline}
    return template("index.html.j2").render(
        pipelines={name: (months, _states(months)) for name, months in pipelines.items()},
        unread=folder.unread,
        nothing=NOTHING,
    )


def _months(group: Iterable[Entry]) -> Iterator[Month]:
    for (year, month), entries_of_month in groupby(
        group, key=lambda e: (e.report.day.year, e.report.day.month)
    ):
        days = tuple(entries_of_month)
        by_day = {entry.report.day.day: entry for entry in days}
        first = date(year, month, 1)
        after = date(year + month // 12, month % 12 + 1, 1)
        cells = tuple((n, by_day.get(n)) for n in range(1, (after - first).days + 1))
        states = Counter(entry.report.verdict.status for entry in days)
        yield Month(f"{year:04}-{month:02}", first.weekday(), cells, days, states)


def _states(months: Iterable[Month]) -> Counter[DayStatus]:
    total: Counter[DayStatus] = Counter()
    for month in months:
        total.update(month.states)
    return total
