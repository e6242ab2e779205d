"""The report's charts, as inline SVG without script, made by Altair and vl-convert (no browser, no network).

Colours are CSS variables of the page (``var(--name)``), so that one picture serves light mode, dark mode
and print; the page gives every chart a title, a description and a table of the same numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeAlias

import altair as alt
from markupsafe import Markup

from pipelines.report.model.report import DayStatus, LatenessBucket, ReportData, TrendDay
from pipelines.report.render.svg import to_svg
from pipelines.report.render.text import visible

Rows: TypeAlias = Sequence[Mapping[str, object]]

WIDE: Final = 1040
"""Width of a chart on a desk, px."""
HALF: Final = 500
"""Width of a chart that shares its line with another, px."""
NARROW: Final = 330
"""Width of a chart on a phone, px; the text keeps its size instead of shrinking with the picture."""

_COUNT = ",.0f"
_MAX_TREND_DAYS = 400
_MAX_LABEL = 40
_AXIS_ROOM = 64
_LABEL_ROOM = 128
_SIGN_ROOM = 13
_FEW_SIGNS = "If days are too close together for signs, only days that are not certified have one."
# The signs of the page's own verdicts, so that a state is shown by shape as well as by colour.
_STATUS_SIGN: Final[dict[DayStatus, tuple[str, str]]] = {
    "certified": ("M-1,0.1L-0.3,0.8L1,-0.8", "var(--good)"),
    "failed": ("M-0.9,-0.9L0.9,0.9M0.9,-0.9L-0.9,0.9", "var(--bad)"),
    "not_certified": ("M0,-1L0,0.3M0,0.95L0,1.05", "var(--warn)"),
    "open": ("circle", "var(--idle)"),
}

_REPAIR_SIGN: Final = "M1,0A1,1,0,1,1,0.66,-0.76M1,-1.28L1,-0.64L0.36,-0.64"
_TICKS: Final = 3
_SHARES: Final = (("duplicates", 60), ("late", 44), ("conflicts", 52), ("quarantined", 72))

NO_CHART: Final = Markup()
"""Stands where there is nothing to draw."""


@dataclass(frozen=True)
class Picture:
    """One chart in the widths that the page chooses from.

    Attributes:
        wide: SVG for a desk and for paper.
        narrow: SVG for a phone; empty if the page has a better form there.
        note: What the reader must know to read it rightly; may be empty.
    """

    wide: Markup
    narrow: Markup = NO_CHART
    note: str = ""


def hour_labels(data: ReportData) -> list[str]:
    """Name the hours of a day by local time, the second of a repeated hour marked by an asterisk.

    Args:
        data: The report.

    Returns:
        One label for each hour: ``00``, ``01``, ``01*`` … or ``00:30`` where a day starts off the hour.
    """
    local = [hour.hour_start.astimezone(data.zone) for hour in data.duplicates_by_hour]
    pattern = "%H" if all(start.minute == 0 for start in local) else "%H:%M"
    labels: list[str] = []
    for start in local:
        label = start.strftime(pattern)
        labels.append(f"{label}*" if label in labels else label)
    return labels


def duplicates_chart(data: ReportData) -> Picture:
    """Draw records and removed duplicates for each hour of the day, in two panels over one axis.

    Args:
        data: The report.

    Returns:
        The picture, or an empty one if the day has no records.
    """
    if not any(hour.records for hour in data.duplicates_by_hour):
        return Picture(NO_CHART)
    labels = hour_labels(data)
    rows = [
        {"at": label, "records": hour.records, "duplicates": hour.duplicates}
        for label, hour in zip(labels, data.duplicates_by_hour, strict=True)
    ]

    def draw(width: int) -> Markup:
        hours = alt.X("at:N", sort=None, title=f"hour of event time, {data.time_zone}")
        hours = hours.axis(labelAngle=0, labelOverlap="parity", labelSeparation=8)
        top = _panel(rows, width, 130, "var(--duplicates)").encode(
            x=hours.axis(None), y=_count_axis(rows, "duplicates")
        )
        bottom = _panel(rows, width, 90, "var(--records)").encode(x=hours, y=_count_axis(rows, "records"))
        return to_svg(alt.vconcat(top, bottom, spacing=14), f"dup{width}")

    return Picture(draw(HALF), draw(NARROW))


def lateness_chart(data: ReportData) -> Picture:
    """Draw the histogram of lateness as bars with their counts.

    Args:
        data: The report.

    Returns:
        The picture, or an empty one if no record has a lateness.
    """
    total = sum(bucket.records for bucket in data.lateness)
    if not total:
        return Picture(NO_CHART)
    rows = [_lateness_row(bucket) for bucket in data.lateness]
    longest = max(bucket.records for bucket in data.lateness)

    def draw(width: int) -> Markup:
        base = alt.Chart(alt.InlineData(values=rows), width=width - _LABEL_ROOM - 10, height=alt.Step(26))
        bars = alt.Y("label:N", sort=None, title=None)
        bars = bars.axis(domain=False, ticks=False, minExtent=_LABEL_ROOM, labelLimit=_LABEL_ROOM)
        # Room beyond the longest bar for its own count.
        counts = alt.X("records:Q", axis=None, scale=alt.Scale(domain=[0, longest * 1.35]))
        return to_svg(
            base.mark_bar(color="var(--records)", height={"band": 0.62}).encode(x=counts, y=bars)
            + base.mark_text(align="left", dx=6, color="var(--ink)").encode(
                x=counts, y=bars, text=alt.Text("records:Q", format=_COUNT)
            ),
            f"late{width}",
        )

    return Picture(draw(HALF), draw(NARROW))


def trend_chart(data: ReportData) -> Picture:
    """Draw rows with the verdict of each day, repairs, and the shares of what was not sound, over the days.

    Days between the first and the last that have no entry are drawn as gaps.

    Args:
        data: The report.

    Returns:
        The picture, or an empty one if there are fewer than two days.
    """
    if len(data.trend) < 2:
        return Picture(NO_CHART)
    days = _all_days(data.trend)
    rows = [_trend_row(entry, data) for entry in data.trend]

    def draw(width: int) -> Markup:
        day = alt.X("day:O", title=f"event day, {data.time_zone}", scale=alt.Scale(domain=days))
        shown = day.axis(labelAngle=0, labelOverlap="greedy", labelSeparation=22)
        weight = alt.Opacity("weight:Q", scale=None)
        top = _panel(rows, width, 110, "var(--batch)").encode(
            x=day.axis(None), y=_count_axis(rows, "rows"), opacity=weight
        )
        shares = [
            _panel(rows, width, height, f"var(--{share})").encode(
                x=shown if share == _SHARES[-1][0] else day.axis(None),
                y=_share_axis(rows, share),
                opacity=weight,
            )
            for share, height in _SHARES
        ]
        strips = [_verdict_strip(rows, day.axis(None), width, len(days))]
        if any(row["repairs"] for row in rows):
            strips.append(_repair_strip(rows, day.axis(None), width))
        return to_svg(alt.vconcat(top, *strips, *shares, spacing=12), f"trend{width}")

    note = "" if _fits_signs(len(days), NARROW) else _FEW_SIGNS
    return Picture(draw(WIDE), draw(NARROW), note)


def _fits_signs(days: int, width: int) -> bool:
    return (width - _AXIS_ROOM) / days >= _SIGN_ROOM


def _verdict_strip(rows: Rows, day: alt.X, width: int, days: int) -> alt.Chart:
    shown = rows if _fits_signs(days, width) else [row for row in rows if row["status"] != "certified"]
    states = list(_STATUS_SIGN)
    signs = alt.Scale(domain=states, range=[sign for sign, _ in _STATUS_SIGN.values()])
    colours = alt.Scale(domain=states, range=[colour for _, colour in _STATUS_SIGN.values()])
    strip: alt.Chart = (
        alt.Chart(alt.InlineData(values=shown), width=width - _AXIS_ROOM, height=18)
        .mark_point(filled=False, size=56, strokeWidth=2.4, strokeCap="round", strokeJoin="round", opacity=1)
        .encode(
            x=day,
            shape=alt.Shape("status:N", legend=None, scale=signs),
            stroke=alt.Stroke("status:N", legend=None, scale=colours),
        )
    )
    return strip


def _repair_strip(rows: Rows, day: alt.X, width: int) -> alt.Chart:
    repaired = [row for row in rows if row["repairs"]]
    strip: alt.Chart = (
        alt.Chart(alt.InlineData(values=repaired), width=width - _AXIS_ROOM, height=14)
        .mark_point(filled=False, size=44, strokeWidth=1.8, strokeCap="round", shape=_REPAIR_SIGN, opacity=1)
        .encode(x=day, stroke=alt.value("var(--late)"))
    )
    return strip


def _panel(rows: Rows, width: int, height: int, colour: str) -> alt.Chart:
    chart = alt.Chart(alt.InlineData(values=rows), width=width - _AXIS_ROOM, height=height)
    bars: alt.Chart = chart.mark_bar(color=colour, width={"band": 0.72})
    return bars


def _count_axis(rows: Rows, field: str) -> alt.Y:
    most = max(int(str(row[field])) for row in rows)
    return (
        alt.Y(f"{field}:Q", title=field)
        .scale(alt.Scale(domain=[0, max(most, 1)], nice=_TICKS))
        .axis(
            # Short numbers such as 120k keep the axes of all panels in one line.
            format=",d" if most < 10_000 else "~s",
            labelExpr="datum.value === 0 ? '0' : datum.label",
            tickCount=_TICKS,
            tickMinStep=1,
            domain=False,
            ticks=False,
            minExtent=40,
            maxExtent=40,
        )
    )


def _share_axis(rows: Rows, field: str) -> alt.Y:
    most = max(float(str(row[field] or 0)) for row in rows)
    return (
        alt.Y(f"{field}:Q", title=field)
        .scale(alt.Scale(domain=[0, most or 1], nice=False))
        .axis(
            format=".2~p",
            values=[0, most] if most else [0],
            domain=False,
            ticks=False,
            minExtent=40,
            maxExtent=40,
        )
    )


def _lateness_row(bucket: LatenessBucket) -> dict[str, object]:
    # Vega aborts the process on a NUL in a text, so that labels too must have passed visible.
    return {"label": visible(bucket.label, _MAX_LABEL), "records": bucket.records}


def _trend_row(entry: TrendDay, data: ReportData) -> dict[str, object]:
    return {
        "day": entry.day.isoformat(),
        "status": entry.status,
        "rows": entry.rows,
        "repairs": entry.repairs,
        **entry.shares,
        "weight": 1 if entry.day == data.day else 0.55,
    }


def _all_days(trend: Sequence[TrendDay]) -> list[str]:
    first, last = trend[0].day, trend[-1].day
    span = (last - first).days + 1
    if span > _MAX_TREND_DAYS:
        return [entry.day.isoformat() for entry in trend]
    return [(first + timedelta(days=offset)).isoformat() for offset in range(span)]
