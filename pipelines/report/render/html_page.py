"""Render a ``ReportData`` as one self-contained HTML page.

The page needs no network and no script. Every text that comes from data passes ``visible`` (by Jinja's
``finalize``) and is then escaped, so that a poison record can neither act nor hide in its own report. The
same data gives the same bytes.
"""

from datetime import datetime

from pipelines.records.reasons import REASONS
from pipelines.report.model.report import ReportData
from pipelines.report.render import charts
from pipelines.report.render.findings import doubts, headline, ordered_checks, sums
from pipelines.report.render.flow_chart import flow_chart
from pipelines.report.render.jinja import template
from pipelines.report.render.text import NOTHING


def render_html(data: ReportData) -> str:
    """Render the report as one HTML page that needs nothing but itself.

    Args:
        data: The report.

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
        reasons=REASONS,
        nothing=NOTHING,
        local=local,
    )
