"""The picture of the flow: bands from bronze to the day, to the batch layer, and across to the speed layer.

Heights are to scale within the day. The records of other days can be a hundred times as many, and would
press the day into a line; their band is then cut short, and the picture says so.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import altair as alt
from markupsafe import Markup

from pipelines.report.model.report import Flow, ReportData
from pipelines.report.render.charts import NO_CHART, WIDE, Picture
from pipelines.report.render.svg import to_svg

_DAY_HEIGHT: Final = 170.0
_OTHER_HEIGHT: Final = 74.0
_LEAST_HEIGHT: Final = 3.0
_GAP: Final = 38.0
_NODE_WIDTH: Final = 12.0
_COLUMNS: Final = (0.0, 280.0, 560.0, 830.0)
_STEPS: Final = 24
_MARGIN: Final = 20.0


@dataclass(frozen=True)
class _Node:
    """A block of the picture; px from the top left corner."""

    name: str
    count: int
    tone: str
    x: float
    top: float
    height: float


def flow_chart(data: ReportData) -> Picture:
    """Draw where the records went, as bands between blocks.

    Args:
        data: The report.

    Returns:
        The picture for a wide page, with a note if it is not to scale throughout; an empty one if bronze
        holds nothing. A phone has the sums instead.
    """
    flow = data.flow
    if not flow.bronze:
        return Picture(NO_CHART)
    scale = _DAY_HEIGHT / max(flow.day_records + flow.quarantined, flow.batch, 1)
    is_cut = flow.other_days * scale > _OTHER_HEIGHT
    other = _OTHER_HEIGHT / flow.other_days if is_cut else scale
    sorted_out, built, compared = _of_bronze(flow, scale, other), _of_day(data, scale), _of_batch(data, scale)
    height = sum(node.height for node in sorted_out)
    bronze = _Node("records in bronze", flow.bronze, "bronze", _COLUMNS[0], _MARGIN, height)
    links = [*_links(bronze, sorted_out)]
    if flow.day_records:
        links += _links(sorted_out[0], built)
    if compared:
        links += _links(built[0], compared)
    note = "Heights are to scale, except for other days, whose band is cut short." if is_cut else ""
    return Picture(_draw([bronze, *sorted_out, *built, *compared], links), NO_CHART, note)


def _of_bronze(flow: Flow, scale: float, other: float) -> list[_Node]:
    """Return what becomes of the records in bronze; those of other days have a scale of their own."""
    return _column(
        1,
        [
            ("of this day", flow.day_records, "records", scale),
            ("unaccounted for", max(flow.missing_from_day, 0), "failed", min(scale, other)),
            ("quarantined", flow.quarantined, "quarantined", scale),
            ("of other days", flow.other_days, "other", other),
        ],
    )


def _of_day(data: ReportData, scale: float) -> list[_Node]:
    """Return what becomes of the records of the day."""
    flow, (lost, tone) = data.flow, _lost(data)
    return _column(
        2,
        [
            ("rows in the batch layer", flow.batch, "batch", scale),
            (lost, max(flow.missing_from_batch, 0), tone, scale),
            ("duplicates removed", flow.duplicates, "duplicates", scale),
        ],
    )


def _of_batch(data: ReportData, scale: float) -> list[_Node]:
    """Return which rows of the batch layer the speed layer has; nothing where there is none."""
    flow = data.flow
    if not flow.batch:
        return []
    behind, tone = ("not there, for known reasons", "open") if data.layers_agree else _lost(data)
    return _column(
        3,
        [
            ("also in the speed layer", flow.speed, "speed", scale),
            (behind, max(flow.missing_from_speed, 0), tone, scale),
            ("late: only in the rebuild", flow.late, "late", scale),
        ],
    )


def _lost(data: ReportData) -> tuple[str, str]:
    """Return what is said of rows that are not there, and its tone."""
    return ("unaccounted for", "failed") if data.is_decided else ("not rebuilt yet", "open")


def _column(column: int, parts: Iterable[tuple[str, int, str, float]]) -> list[_Node]:
    nodes: list[_Node] = []
    top = _MARGIN
    for name, count, tone, scale in parts:
        if count:
            height = max(_LEAST_HEIGHT, count * scale)
            nodes.append(_Node(name, count, tone, _COLUMNS[column], top, height))
            top += height + _GAP
    return nodes


def _links(source: _Node, targets: Iterable[_Node]) -> list[dict[str, object]]:
    """Return bands that leave the source one under the other, each as points of its two edges."""
    rows: list[dict[str, object]] = []
    leaves = source.top
    start = source.x + _NODE_WIDTH
    for target in targets:
        for step in range(_STEPS + 1):
            way = step / _STEPS
            eased = way * way * (3 - 2 * way)
            edge = leaves + (target.top - leaves) * eased
            rows.append(
                {
                    "link": f"{source.name} to {target.name}",
                    "tone": f"var(--{target.tone})",
                    "x": round(start + (target.x - start) * way, 2),
                    "y": round(edge, 2),
                    "y2": round(edge + target.height, 2),
                }
            )
        leaves += target.height
    return rows


def _draw(nodes: list[_Node], links: list[dict[str, object]]) -> Markup:
    bottom = max(node.top + node.height for node in nodes) + _MARGIN
    x = alt.X("x:Q", axis=None, scale=alt.Scale(domain=[0, WIDE], nice=False))
    y = alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[bottom, 0], nice=False))
    tone = alt.Color("tone:N", scale=None)
    rows = [
        {
            "x": node.x,
            "x2": node.x + _NODE_WIDTH,
            "y": node.top,
            "y2": node.top + node.height,
            "label_x": node.x + _NODE_WIDTH + 8,
            "middle": node.top + node.height / 2,
            "tone": f"var(--{node.tone})",
            "count": f"{node.count:,}",
            "name": node.name,
        }
        for node in nodes
    ]
    blocks = alt.Chart(alt.InlineData(values=rows), width=WIDE, height=bottom)
    bands = alt.Chart(alt.InlineData(values=links))
    at = {"x": alt.X("label_x:Q"), "y": alt.Y("middle:Q")}
    text = blocks.mark_text(align="left", baseline="middle", dy=-8, fontSize=16, fontWeight=700)
    name = blocks.mark_text(align="left", baseline="middle", dy=10, fontSize=13)
    return to_svg(
        bands.mark_area(opacity=0.28, line=False).encode(x=x, y=y, y2="y2:Q", detail="link:N", color=tone)
        + blocks.mark_rect().encode(x=x, x2="x2:Q", y=y, y2="y2:Q", color=tone)
        + text.encode(text="count:N", color=alt.value("var(--ink)"), **at)
        + name.encode(text="name:N", color=alt.value("var(--ink)"), **at),
        "flow",
    )
