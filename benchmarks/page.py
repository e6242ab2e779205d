"""The page of a benchmark: its plots, and the table that they are drawn from, in one file."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import altair as alt
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from benchmarks.summary import Summary
from pipelines.report.render.svg import to_svg

_WIDTH: Final = 720
_LABELS: Final = 190


def page(
    told: Mapping[str, Any],
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    summaries: Sequence[Summary],
    nights: Sequence[str],
) -> str:
    """Return the page as HTML that refers to nothing outside itself.

    Args:
        told: machine and setup, names and values.
        headings: of the table.
        rows: its cells.
        summaries: what the plots show.
        nights: what nightly runs consisted of.
    """
    slopes = [
        {"work": one.label, "value": one.marginal_us} for one in summaries if one.marginal_us is not None
    ]
    ratios = [{"work": one.label, "value": one.sizes[-1].ratio_wall} for one in summaries if one.sizes]
    plots = [
        ("CPU microseconds for each further event", "Slope over the sizes; less is better.", slopes, ".1f"),
        (
            "Speed against a raw append of as many records",
            "Wall time at the largest size; a raw append is 1.00, more is faster.",
            ratios,
            ".2f",
        ),
    ]
    drawn = [
        {"title": title, "note": note, "svg": _bars(values, digits, f"plot{number}")}
        for number, (title, note, values, digits) in enumerate(plots)
        if values
    ]
    template = _environment().get_template("page.html.j2")
    return template.render(told=told, plots=drawn, headings=headings, rows=rows, nights=nights)


def _bars(values: Sequence[Mapping[str, object]], digits: str, prefix: str) -> Markup:
    """Draw one bar for each piece of work, with its figure beside it."""
    most = max(float(str(row["value"])) for row in values)
    base = alt.Chart(alt.InlineData(values=values), width=_WIDTH - _LABELS, height=alt.Step(24))
    work = alt.Y("work:N", sort=None, title=None)
    work = work.axis(domain=False, ticks=False, minExtent=_LABELS, labelLimit=_LABELS)
    # Room beyond the longest bar for its own figure.
    length = alt.X("value:Q", axis=None, scale=alt.Scale(domain=[0, most * 1.15]))
    bars = base.mark_bar(color="var(--bar)", height={"band": 0.62}).encode(x=length, y=work)
    figures = base.mark_text(align="left", dx=6, color="var(--ink)").encode(
        x=length, y=work, text=alt.Text("value:Q", format=digits)
    )
    return to_svg(bars + figures, prefix)


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
