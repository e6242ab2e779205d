"""A chart as SVG that can stand inside a page: shapes and text alone, drawn without browser or network."""

import re
from typing import Any
from xml.etree import ElementTree

import altair as alt
import vl_convert
from markupsafe import Markup

_SVG = "http://www.w3.org/2000/svg"
_VEGALITE = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])


def to_svg(chart: Any, prefix: str) -> Markup:
    """Turn a chart into SVG that can stand inside a page.

    Args:
        chart: An Altair chart; its data is inline.
        prefix: Put before every id, unique on the page.

    Returns:
        An ``svg`` element without script, external reference, or an id that another chart has.

    Raises:
        ValueError: The chart refers to something outside itself.
    """
    styled = chart.configure(aria=False, background="transparent", padding=2, font="sans-serif")
    styled = styled.configure_view(stroke=None)
    styled = styled.configure_axis(
        labelColor="var(--muted)",
        titleColor="var(--muted)",
        gridColor="var(--line)",
        domainColor="var(--line)",
        tickColor="var(--line)",
        labelFontSize=12,
        titleFontSize=12,
        titleFontWeight="normal",
        labelLimit=220,
    )
    styled = styled.configure_text(fontSize=12)
    drawn = vl_convert.vegalite_to_svg(styled.to_dict(), vl_version=_VEGALITE, allowed_base_urls=[])
    return _embeddable(drawn, prefix)


def _embeddable(drawn: str, prefix: str) -> Markup:
    ElementTree.register_namespace("", _SVG)
    root = ElementTree.fromstring(drawn)  # noqa: S314 - written by Vega just now, without a document type
    for element in root.iter():
        if element.tag.split("}")[-1] in {"script", "image", "foreignObject", "a", "style"}:
            raise ValueError(f"chart {prefix} has a <{element.tag}>; expected only shapes and text")
        for name, value in list(element.attrib.items()):
            if name.startswith("role") or name.startswith("aria-") or name == "class":
                del element.attrib[name]
            elif name == "id":
                element.set(name, f"{prefix}-{value}")
            elif name == "font-family":
                element.set(name, "inherit")
            elif "url(" in value:
                element.set(name, re.sub(r"url\(#", f"url(#{prefix}-", value))
    root.set("aria-hidden", "true")
    root.set("focusable", "false")
    # Serialized from a parsed tree of shapes and text alone, so that it is safe as markup.
    return Markup(ElementTree.tostring(root, encoding="unicode"))  # noqa: S704
