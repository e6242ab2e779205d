"""Charts are plain shapes and text: legible in both modes, safe in a page, true to the numbers."""

import re
import socket
from datetime import UTC, date, datetime, timedelta
from importlib import resources
from xml.etree import ElementTree

import altair as alt
import pytest

from pipelines.report.model.report import DayVerdict, Flow, HourCount, LatenessBucket, ReportData, TrendDay
from pipelines.report.render import charts
from pipelines.report.render.flow_chart import flow_chart
from pipelines.report.render.svg import to_svg

pytestmark = pytest.mark.patient

SOUND = Flow(bronze=1_000, other_days=790, quarantined=10, day_records=200, duplicates=20, conflicts=0,
             batch=180, speed=176, late=4)  # fmt: skip
NOTHING = Flow(bronze=0, other_days=0, quarantined=0, day_records=0, duplicates=0, conflicts=0, batch=0,
               speed=0, late=0)  # fmt: skip


def day(number: int, status: str = "certified") -> TrendDay:
    """A day of January 2013 with a hundred rows."""
    return TrendDay.model_validate(
        {"day": date(2013, 1, number), "status": status, "rows": 100, "records": 110, "duplicates": 10,
         "conflicts": 1, "late": 2}
    )  # fmt: skip


def report(flow: Flow = SOUND, **parts: object) -> ReportData:
    """A report of 2013-01-05 in UTC with the given parts."""
    return ReportData.model_validate(
        {
            "pipeline": "flights",
            "day": date(2013, 1, 5),
            "time_zone": "UTC",
            "generated_at": datetime(2013, 1, 6, tzinfo=UTC),
            "version": "0.1.0",
            "verdict": DayVerdict(status="certified", passed=1, failed=0, warned=0),
            "flow": flow,
            **parts,
        }
    )


def hours(
    *counts: tuple[int, int], zone_start: datetime = datetime(2013, 1, 5, tzinfo=UTC)
) -> list[HourCount]:
    """Consecutive hours with (records, duplicates)."""
    return [
        HourCount(hour_start=zone_start + timedelta(hours=index), records=records, duplicates=duplicates)
        for index, (records, duplicates) in enumerate(counts)
    ]


def parsed(svg: str) -> ElementTree.Element:
    """The chart as a tree."""
    return ElementTree.fromstring(svg)  # noqa: S314 - drawn by the code under test


def texts(svg: str) -> list[str]:
    """All texts of a chart, in order."""
    return [element.text or "" for element in parsed(svg).iter("{http://www.w3.org/2000/svg}text")]


def style() -> str:
    """The style sheet of the page."""
    templates = resources.files("pipelines.report.render").joinpath("templates")
    return templates.joinpath("report.css").read_text(encoding="utf-8")


def full_report() -> ReportData:
    """A report in which every chart has something to draw."""
    return report(
        duplicates_by_hour=hours((120, 12), (80, 8)),
        lateness=[
            LatenessBucket(label="0 to 1 min", records=150),
            LatenessBucket(label="over 1 day", records=50),
        ],
        trend=[day(3, "failed"), day(4), day(5)],
    )


def pictures(data: ReportData) -> list[str]:
    """Every chart in every width."""
    drawn = (
        flow_chart(data),
        charts.duplicates_chart(data),
        charts.lateness_chart(data),
        charts.trend_chart(data),
    )
    return [svg for picture in drawn for svg in (picture.wide, picture.narrow) if svg]


def test_charts_hold_shapes_and_text_alone() -> None:
    """No script, style, link, image or address; colours come from the page, for both modes."""
    drawn = pictures(full_report())
    assert len(drawn) == 7
    for svg in drawn:
        root = parsed(svg)
        assert {element.tag.split("}")[-1] for element in root.iter()} <= {
            "svg", "g", "path", "rect", "line", "text", "defs", "clipPath", "tspan"
        }  # fmt: skip
        assert not re.search(r"(?:href|src)=", svg)
        for element in root.iter():
            for name in ("fill", "stroke"):
                colour = element.get(name, "none")
                assert colour in {"none", "transparent"} or colour.startswith("var(--"), colour
            assert element.get("font-family", "inherit") == "inherit"
        assert root.get("aria-hidden") == "true"


def test_colours_of_charts_are_defined_by_the_page_in_both_modes() -> None:
    """A colour that the page does not define would be black on black."""
    css = style()
    used = set(re.findall(r"var\((--[a-z-]+)\)", css + "".join(pictures(full_report()))))
    light, dark = css.split("@media screen and (prefers-color-scheme: dark)")[:2]
    dark = dark.split("\n}\n")[0]
    assert used - {"--tone", "--tone-bg"} <= set(re.findall(r"(--[a-z-]+):", light))
    assert used - {"--tone", "--tone-bg"} <= set(re.findall(r"(--[a-z-]+):", dark))


def luminance(colour: str) -> float:
    """Relative luminance of ``#rrggbb`` as WCAG 2 defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Contrast of two colours, 1 to 21."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("mode", [0, 1], ids=["light", "dark"])
def test_colours_have_the_contrast_of_wcag_aa(mode: int) -> None:
    """Text 4.5 to 1 on everything that it stands on; marks of charts 3 to 1."""
    css = style()
    block = css.split("@media screen and (prefers-color-scheme: dark)")[mode].split("\n}\n")[0]
    colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block))
    for text in ("ink", "muted"):
        for ground in ("bg", "card", "tint"):
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    for tone in ("good", "bad", "warn", "idle"):
        for ground in (f"{tone}-bg", "card"):
            assert contrast(colours[tone], colours[ground]) >= 4.5, (tone, ground)
        assert contrast(colours["ink"], colours[f"{tone}-bg"]) >= 4.5
    assert contrast(colours["bad"], colours["good-bg"]) >= 4.5
    for mark in (
        "records",
        "batch",
        "bronze",
        "duplicates",
        "late",
        "conflicts",
        "quarantined",
        "speed",
        "failed",
    ):
        assert contrast(colours[mark], colours["card"]) >= 3, mark


def test_labels_that_are_markup_or_control_characters_stay_text() -> None:
    """Vega aborts the process on a NUL; markup in a label must arrive as text."""
    data = report(lateness=[LatenessBucket(label="<b>\x00", records=1)])
    svg = charts.lateness_chart(data).wide
    assert "<b>⟨U+0000⟩" in texts(svg)


def test_drawing_needs_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing opens a socket from Python, and Vega may not load: a chart with an address is refused."""

    def refuse(*_: object) -> None:
        raise AssertionError("a chart opened a socket")

    monkeypatch.setattr(socket, "socket", refuse)
    assert pictures(full_report())
    remote = alt.Chart(alt.UrlData("http://127.0.0.1:9/rows.csv")).mark_bar().encode(x="a:N")
    with pytest.raises(ValueError, match=r"127\.0\.0\.1"):
        to_svg(remote, "remote")


def test_ids_carry_the_prefix_of_their_chart() -> None:
    """Two charts with clip paths stand on one page, so their ids and references differ."""
    rows = alt.InlineData(values=[{"a": 1, "b": 2}, {"a": 3, "b": 4}])
    chart = alt.Chart(rows).mark_line(clip=True).encode(x="a:Q", y="b:Q")
    first, second = to_svg(chart, "one"), to_svg(chart, "two")
    assert re.findall(r'id="(.*?)"', first)
    assert all(name.startswith("one-") for name in re.findall(r'id="(.*?)"|url\(#(.*?)\)', first)[0] if name)
    assert set(re.findall(r'id="(.*?)"', first)).isdisjoint(re.findall(r'id="(.*?)"', second))
    assert set(re.findall(r"url\(#(.*?)\)", first)) == set(re.findall(r'id="(.*?)"', first))


def test_nothing_is_drawn_of_nothing() -> None:
    """Empty parts give empty pictures, which the page replaces by a sentence."""
    data = report(NOTHING, duplicates_by_hour=hours((0, 0)), lateness=[LatenessBucket(label="x", records=0)],
                  trend=[day(5)])  # fmt: skip
    assert pictures(data) == []
    assert pictures(report(NOTHING)) == []


def test_lateness_bars_carry_their_counts() -> None:
    """Every range shows its number, also where the bar is too short to see."""
    data = report(lateness=[LatenessBucket(label="0 to 1 min", records=9_000_000),
                            LatenessBucket(label="over 1 day", records=1)])  # fmt: skip
    assert {"9,000,000", "1", "0 to 1 min", "over 1 day"} <= set(texts(charts.lateness_chart(data).wide))


def test_hours_of_a_repeated_hour_are_told_apart() -> None:
    """When clocks go back the label 01 stands twice, the second time marked."""
    start = datetime(2013, 11, 3, 4, tzinfo=UTC)
    data = report(
        time_zone="America/New_York",
        duplicates_by_hour=hours((1, 0), (1, 0), (1, 0), (1, 0), zone_start=start),
    )
    assert charts.hour_labels(data) == ["00", "01", "01*", "02"]


def test_hours_of_a_zone_off_the_hour_show_minutes() -> None:
    """A day that starts at half past the hour of UTC still starts at 00 of its own zone."""
    start = datetime(2013, 1, 4, 18, 30, tzinfo=UTC)
    data = report(time_zone="Asia/Kolkata", duplicates_by_hour=hours((1, 0), (1, 0), zone_start=start))
    assert charts.hour_labels(data) == ["00", "01"]
    shifted = report(time_zone="UTC", duplicates_by_hour=hours((1, 0), (1, 0), zone_start=start))
    assert charts.hour_labels(shifted) == ["18:30", "19:30"]


def test_trend_keeps_the_place_of_days_without_an_entry() -> None:
    """A missing day is a gap, not two neighbours that never were."""
    svg = charts.trend_chart(report(trend=[day(1), day(5)])).wide
    assert [text for text in texts(svg) if text.startswith("2013-")] == [f"2013-01-0{n}" for n in range(1, 6)]


def test_trend_tells_verdicts_by_shape() -> None:
    """A reader who sees no colour still sees which day failed."""
    signs = {sign for sign, _ in charts._STATUS_SIGN.values()}
    assert len(signs) == len(charts._STATUS_SIGN) == 4
    all_good = charts.trend_chart(report(trend=[day(4), day(5)])).wide
    one_bad = charts.trend_chart(report(trend=[day(4, "failed"), day(5)])).wide
    assert "var(--bad)" in one_bad
    assert "var(--bad)" not in all_good


def test_trend_marks_repairs_and_draws_shares() -> None:
    """A day with twice the records and twice the duplicates is no worse; who was repaired has a sign."""
    busy = day(5).model_copy(update={"records": 220, "rows": 200, "duplicates": 20, "quarantined": 2})
    plain = charts.trend_chart(report(trend=[day(4), busy])).wide
    shown = texts(plain)
    assert "9.1%" in shown
    assert "0.9%" in shown
    assert 'stroke="var(--late)"' not in plain
    repaired = charts.trend_chart(report(trend=[day(4), busy.model_copy(update={"repairs": 1})])).wide
    assert repaired.count('stroke="var(--late)"') == 1


def test_long_trend_marks_the_days_that_failed() -> None:
    """Among a year of certified days one failed day stands out, and the reader is told how to read it."""
    first = date(2012, 1, 6)
    year = [day(1).model_copy(update={"day": first + timedelta(days=n)}) for n in range(365)]
    year[200] = year[200].model_copy(update={"status": "failed"})
    picture = charts.trend_chart(report(trend=year))
    assert picture.wide.count("var(--bad)") == 1
    assert picture.wide.count("var(--good)") == 0
    assert "only days that are not certified" in picture.note
    assert charts.trend_chart(report(trend=year[:14])).note == ""


def heights(svg: str) -> dict[str, float]:
    """Height of each block of the flow, by its colour."""
    found = {}
    for path in parsed(svg).iter("{http://www.w3.org/2000/svg}path"):
        block = re.fullmatch(r"M[\d.]+,[\d.]+h[\d.]+v([\d.]+)h-[\d.]+Z", path.get("d") or "")
        if block:
            found[str(path.get("fill"))] = float(block[1])
    return found


def test_flow_is_to_scale_within_the_day() -> None:
    """A band nine times as high holds nine times as many records; a single record can still be seen."""
    block = heights(flow_chart(report()).wide)
    assert block["var(--batch)"] == pytest.approx(9 * block["var(--duplicates)"])
    assert block["var(--records)"] == pytest.approx(20 * block["var(--quarantined)"])
    rare = SOUND.model_copy(update={"day_records": 10**9, "batch": 10**9, "quarantined": 1})
    assert heights(flow_chart(report(rare)).wide)["var(--quarantined)"] >= 2


def test_flow_shows_every_count_with_its_name() -> None:
    """The picture holds the numbers of the sums."""
    shown = texts(flow_chart(report()).wide)
    for count, name in (("1,000", "records in bronze"), ("200", "of this day"), ("10", "quarantined"),
                        ("790", "of other days"), ("180", "rows in the batch layer"),
                        ("20", "duplicates removed"), ("176", "also in the speed layer"),
                        ("4", "late: only in the rebuild")):  # fmt: skip
        assert count in shown
        assert name in shown
    assert "unaccounted for" not in shown


def test_flow_says_when_it_is_not_to_scale() -> None:
    """Other days that would press the day into a line are cut short, and the reader is told."""
    assert "cut short" in flow_chart(report()).note
    few = SOUND.model_copy(update={"bronze": 215, "other_days": 5})
    assert flow_chart(report(few)).note == ""


def test_flow_draws_what_is_missing() -> None:
    """A loss between two steps has a band of its own."""
    lossy = SOUND.model_copy(update={"batch": 150, "speed": 146})
    shown = texts(flow_chart(report(lossy)).wide)
    assert "unaccounted for" in shown
    assert "30" in shown


@pytest.mark.parametrize(
    "flow",
    [
        NOTHING.model_copy(update={"bronze": 5, "other_days": 5}),
        NOTHING.model_copy(update={"bronze": 5, "quarantined": 5}),
        NOTHING.model_copy(update={"bronze": 5, "day_records": 5}),
        NOTHING.model_copy(update={"bronze": 5, "day_records": 5, "batch": 9, "speed": 40}),
        NOTHING.model_copy(update={"bronze": 5, "batch": 5}),
        NOTHING.model_copy(
            update={"bronze": 10**12, "other_days": 10**12 - 1, "day_records": 1, "batch": 1, "late": 1}
        ),
    ],
)
def test_flow_of_odd_counts_is_drawn(flow: Flow) -> None:
    """A report of a broken lake is when it is needed most."""
    assert "records in bronze" in texts(flow_chart(report(flow)).wide)
