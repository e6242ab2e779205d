"""Renders a `LakeView`: a page over all pipelines, and one for each; texts from data are shown harmlessly."""

import base64
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import cache
from typing import Any, Final
from urllib.parse import quote

from markupsafe import Markup

from pipelines.console.batch_chart import BAR_WIDTH, batch_chart, phase_bar
from pipelines.console.concerns import SEVERITIES, Judged, concerns, judged, severity_of, utc
from pipelines.console.jobs import (
    LEASES,
    all_held_leases,
    held_leases,
    leases,
    stream_command,
    stream_state,
    streams_at_work,
)
from pipelines.console.view import DayView, LakeView, PipelineView
from pipelines.durations import about
from pipelines.lag.stage_facts import PartitionLag, StageFacts
from pipelines.lag.texts import caught_up_text, least_retention, rate_text
from pipelines.records.reasons import REASONS
from pipelines.report.model.report import DayStatus
from pipelines.report.render.jinja import template
from pipelines.report.render.text import NOTHING

INDEX: Final = "index.html"
FOLDER: Final = "pipelines"
SCRIPT: Final = "console.js"

_PACKAGE: Final = "pipelines.console"
_STRIP: Final = 14
_BEHIND: Final = ("Ingest behind", "Speed behind", "Publish behind")
# The cells of two hundred rows do not repeat them: where a row is a card, the style has them.
_COLUMNS: Final = ("Pipeline", "State", *_BEHIND, f"Last {_STRIP} days", "Quarantine", "Jobs")
_MOST_PARTITIONS: Final = 12


@dataclass(frozen=True)
class Site:
    """How pages are delivered.

    Attributes:
        every_s: After how many seconds a page asks for newer figures; None if it does not.
        is_live: Whether a server answers, or the pages are files.
        reports: The path from the overview to the folder of reports.
    """

    every_s: float | None
    is_live: bool
    reports: str

    @property
    def policy(self) -> str:
        """The Content-Security-Policy: no script but our own, no style but that of the page, nothing else."""
        script = " script-src 'self'; connect-src 'self';" if self.is_live else ""
        return (
            f"default-src 'none';{script} style-src '{_style_hash()}'; img-src data:; base-uri 'none';"
            " form-action 'none'"
        )


def render_overview(view: LakeView | None, now: datetime, site: Site) -> str:
    """Render the page over all pipelines, the worst first.

    Args:
        view: What is known; None before the first collection is done.
        now: The time, to which ages are told.
        site: How it is delivered.
    """
    pipelines = judged(view, now) if view else []
    counts = Counter(each.severity for each in pipelines)
    return template("overview.html.j2", _PACKAGE).render(
        **_common(view, now, site, up=""),
        pipelines=pipelines,
        counts=[(severity, counts[severity]) for severity in SEVERITIES if counts[severity]],
        strip=_STRIP,
        columns=_COLUMNS,
        numbers=(*_BEHIND, "Quarantine"),
        day_runs=_day_runs,
        held=all_held_leases(view, now),
    )


def render_pipeline(view: LakeView, pipeline: PipelineView, now: datetime, site: Site) -> str:
    """Render the page of one pipeline.

    Args:
        view: What is known of the lake.
        pipeline: One of its pipelines.
        now: The time, to which ages are told.
        site: How it is delivered.
    """
    figures, cluster = pipeline.lake.value, pipeline.cluster.value
    return template("pipeline.html.j2", _PACKAGE).render(
        **_common(view, now, site, up="../"),
        pipeline=pipeline,
        one=Judged(pipeline, concerns(pipeline, now, view.old_after_s)),
        charts=[(each, batch_chart(each.busy, each.stage)) for each in figures.streams] if figures else [],
        held=held_leases(pipeline, now),
        leases=list(leases(pipeline)),
        at_work=streams_at_work(pipeline, now),
        stages=cluster.stages if cluster else (),
        most_behind=_most_behind,
        settled=_settled(pipeline),
        reasons=REASONS,
        most=_MOST_PARTITIONS,
    )


def page_name(pipeline: str) -> str:
    """Return the name of a pipeline's page, in the folder of pages, as a part of an address."""
    return f"{quote(pipeline, safe='')}.html"


def script() -> str:
    """Return the script that asks for newer figures."""
    return template(SCRIPT, _PACKAGE).render()


@cache
def _style() -> str:
    return template("console.css", _PACKAGE).render(strip=_STRIP, columns=_COLUMNS)


@cache
def _style_hash() -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()}"


def _common(view: LakeView | None, now: datetime, site: Site, up: str) -> dict[str, Any]:
    def ago(instant: datetime) -> str:
        # A page that stays as it is would tell a wrong age soon.
        if site.every_s is None:
            return f"at {utc(instant)}"
        return f"{about(max((now - instant).total_seconds(), 0.0))} ago"

    return {
        "view": view,
        "now": now,
        "site": site,
        "up": up,
        "style": Markup(_style()),  # noqa: S704 - a file of the package
        "script": SCRIPT,
        "index": INDEX,
        "folder": FOLDER,
        "page_name": page_name,
        "quote": quote,
        "nothing": NOTHING,
        "ago": ago,
        "utc": utc,
        "about": about,
        "rate": rate_text,
        "caught_up": caught_up_text,
        "least_retention": least_retention,
        "severity_of": severity_of,
        "held_leases": held_leases,
        "lease_words": LEASES,
        "stream_state": stream_state,
        "stream_command": stream_command,
        "phase_bar": phase_bar,
        "bar_width": BAR_WIDTH,
    }


@dataclass(frozen=True)
class _DayRun:
    """Days, one after the other, that are drawn as one.

    Attributes:
        status: Of each of them.
        first: The first.
        last: The last.
        days: How many.
    """

    status: DayStatus
    first: date
    last: date
    days: int


def _day_runs(days: Sequence[DayView]) -> list[_DayRun]:
    """Return days, the oldest first, with certified ones that follow each other as one."""
    runs = list[_DayRun]()
    for each in days:
        before = runs[-1] if runs else None
        # The others have a sign each.
        if before and before.status == each.status == "certified":
            runs[-1] = replace(before, last=each.day, days=before.days + 1)
        else:
            runs.append(_DayRun(each.status, each.day, each.day, 1))
    return runs


def _most_behind(facts: StageFacts) -> list[PartitionLag]:
    numbered = [each for each in facts.partitions if each.partition is not None]
    worst = sorted(numbered, key=lambda each: each.records, reverse=True)[:_MOST_PARTITIONS]
    return sorted(worst, key=lambda each: each.partition or 0)


def _settled(pipeline: PipelineView) -> dict[str, Any] | None:
    """Return what publishing has settled, and which of the shown days wait; None if it is not known."""
    ledger, figures = pipeline.ledger.value, pipeline.lake.value
    if ledger is None or figures is None or figures.publish_query is None:
        return None
    settled = ledger.settled.get(figures.publish_query)
    version = settled.version if settled else -1
    waiting = [v.day for v in ledger.verdicts if v.status == "certified" and v.batch_version > version]
    return {"settled": settled, "waiting": waiting}
