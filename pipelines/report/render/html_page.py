"""Render a ``ReportData`` as one self-contained HTML page.

The page needs no network and no script. Every text that comes from data passes ``visible`` (by Jinja's
``finalize``) and is then escaped, so that a poison record can neither act nor hide in its own report. The
same data gives the same bytes.
"""

from datetime import datetime
from typing import Final

from pipelines.report.model.report import ReportData
from pipelines.report.render import charts
from pipelines.report.render.findings import doubts, headline, ordered_checks, sums
from pipelines.report.render.flow_chart import flow_chart
from pipelines.report.render.templates import template
from pipelines.report.render.text import NOTHING

_REASONS: Final = {
    "null_value": "The record has no value.",
    "malformed_json": "The value is not JSON, or it is cut off.",
    "not_an_object": "The value is JSON, but not an object with fields.",
    "wrong_type": "A field holds a value of another type than the contract says.",
    "missing_field": "A field that the contract requires is not there, or is null.",
    "rule_failed": "A value breaks a rule of the contract.",
    "event_time_future": "The event time lies further in the future than is allowed.",
    "event_time_past": "The event time lies before 1970.",
}


def render_html(data: ReportData) -> str:
    """Render the report as one HTML page that needs nothing but itself.

    Args:
        data: the report.

    Returns:
        The page; the same bytes for the same data.
    """

    def local(instant: datetime) -> str:
        return instant.astimezone(data.zone).strftime("%Y-%m-%d %H:%M:%S %Z")

    return template("report.html.j2").render(
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
