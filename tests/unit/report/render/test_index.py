"""The index is made from the JSON files of a folder alone, and shows every one of them or says why not."""

import json
import re
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import InfrastructureError
from pipelines.report.model.report import DayStatus
from pipelines.report.render.files import render_json, write_index
from pipelines.report.render.index import entries, render_index
from tests.support.pages import Page
from tests.support.reports import sample, trend_until

FIRST = date(2012, 1, 1)


def put(out: Path, day: date, status: DayStatus = "certified", pipeline: str = "flights") -> Path:
    """The JSON of a report, as `oncelake report --format json` leaves it."""
    data = sample(status)
    trend = (trend_until(day, 1)[0].model_copy(update={"repairs": int(day == FIRST), "quarantined": 4}),)
    changed = data.model_copy(update={"pipeline": pipeline, "day": day, "trend": trend})
    path = out / f"{pipeline}-{day}.json"
    path.write_text(render_json(changed), encoding="utf-8")
    return path


def page(out: Path) -> Page:
    return Page(render_index(entries(out)))


def links(shown: Page) -> list[str]:
    return [attributes["href"] for tag, attributes in shown.elements if tag == "a"]


def test_four_hundred_days_are_there_newest_first_and_by_pipeline(tmp_path: Path) -> None:
    """Each day has its place in a calendar and its line; months but the newest are folded."""
    days = [FIRST + timedelta(days=n) for n in range(400)]
    for day in days:
        put(tmp_path, day, "failed" if day == days[7] else "certified")
    put(tmp_path, days[3], "open", pipeline="weather")
    shown = page(tmp_path)
    assert shown.inside("h2") == ["flights", "weather"]
    of_flights = [link for link in links(shown) if link.startswith("flights-")]
    assert sorted(of_flights) == sorted([f"flights-{day}.json" for day in days] * 2)
    rows = [text for text in shown.inside("tbody") if re.fullmatch(r"[\d-]{10}", text)]
    assert rows[:400] == [day.isoformat() for day in reversed(days)]
    assert "399 days certified, 1 day failed; days in America/New_York." in shown.text
    folded = [attributes for tag, attributes in shown.elements if tag == "details"]
    assert ["open" in attributes for attributes in folded] == [True] + [False] * 13 + [True]


def test_a_calendar_has_each_day_under_its_weekday(tmp_path: Path) -> None:
    """2012-02-01 was a Wednesday, and 2012 a leap year."""
    put(tmp_path, date(2012, 2, 3))
    shown = page(tmp_path)
    cells = [a for tag, a in shown.elements if a.get("class", "").startswith("day ") and tag in ("a", "span")]
    assert len(cells) == 29
    assert cells[0]["style"] == "grid-column-start:3"
    assert [n for n, cell in enumerate(cells, 1) if "href" in cell] == [3]


def test_a_line_says_verdict_counts_and_leads_to_the_page_if_there_is_one(tmp_path: Path) -> None:
    """Page before figures; what the day itself had in quarantine, not what bronze holds in all."""
    path = put(tmp_path, FIRST, "failed")
    assert links(page(tmp_path)) == [path.name] * 2
    path.with_suffix(".html").write_text("", encoding="utf-8")
    shown = page(tmp_path)
    assert links(shown) == ["flights-2012-01-01.html"] * 2
    flow = sample().flow
    line = " ".join(shown.inside("tbody"))
    assert line.startswith(f"2012-01-01 failed repaired 2 checks failed {flow.batch} {flow.day_records} ")
    assert line.endswith(f" {flow.late} {flow.conflicts} 4 2013-01-06 02:04 EST")


def test_what_is_called_a_report_and_is_none_is_named(tmp_path: Path) -> None:
    """Other files are not looked at; nothing that looks like a report vanishes without a word."""
    put(tmp_path, FIRST)
    put(tmp_path, FIRST, pipeline="weather").rename(tmp_path / "other-2012-01-01.json")
    (tmp_path / "flights-2012-01-02.json").write_bytes(b"{\xff")
    (tmp_path / "<img>-2012-01-03.json").write_text("{}", encoding="utf-8")
    (tmp_path / "package.json").write_text("{}", encoding="utf-8")
    shown = page(tmp_path)
    assert "<img>-2012-01-03.json , flights-2012-01-02.json , other-2012-01-01.json" in shown.text
    assert "package.json" not in shown.text
    assert set(links(shown)) == {"flights-2012-01-01.json"}
    assert not {tag for tag, _ in shown.elements} & {"img", "script"}


@pytest.mark.parametrize("change", [{"surplus": 1}, {"history": None, "trend": []}])
def test_a_report_of_another_version_is_read(tmp_path: Path, change: dict[str, Any]) -> None:
    """More fields than are known, or fewer than are written now."""
    path = put(tmp_path, FIRST)
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **change}), encoding="utf-8")
    assert entries(tmp_path).unread == ()
    assert len(entries(tmp_path).entries) == 1


def test_an_empty_folder_and_one_that_is_not_there_give_a_page(tmp_path: Path) -> None:
    """Who opens the index before the first night reads why it is empty."""
    written = write_index(tmp_path / "new")
    assert "This folder has no report yet." in Page(written.read_text(encoding="utf-8")).text
    (tmp_path / "taken").write_text("", encoding="utf-8")
    with pytest.raises(InfrastructureError, match=r"index of the reports: cannot write to .*taken"):
        write_index(tmp_path / "taken")
