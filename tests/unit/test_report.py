"""The report says the verdict first, lists everything, adds up visibly, and nothing in it can act or hide."""

import json
import subprocess
import sys
import zipfile
from datetime import UTC, date, datetime, timedelta
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from pydantic import ValidationError

from pipelines.errors import InfrastructureError
from pipelines.quality import report
from pipelines.quality.report_model import (
    DayStatus,
    Flow,
    HourCount,
    LatenessBucket,
    ReportCheck,
    ReportData,
    TrendDay,
    Verdict,
)
from pipelines.quality.report_records import (
    ConflictColumn,
    ConflictCopy,
    ConflictSample,
    KeyPart,
    QuarantineExample,
    QuarantineReason,
)
from pipelines.quality.report_text import share, visible

NEW_YORK = ZoneInfo("America/New_York")
POISON = "<script>alert(1)</script><img src=x onerror=alert(2)>\x00\x1b[31m\u202egnp.exe"
VOID = {"meta", "link", "br", "img", "input", "hr", "path", "rect", "line"}


def hours_of(day: date) -> tuple[HourCount, ...]:
    """Busy daytime, quiet night; as many hours as the clock of New York gives the day."""
    start = datetime(day.year, day.month, day.day, tzinfo=NEW_YORK).astimezone(UTC)
    after = day + timedelta(days=1)
    end = datetime(after.year, after.month, after.day, tzinfo=NEW_YORK).astimezone(UTC)
    count = int((end - start) / timedelta(hours=1))
    records = [0, 0, 0, 0, 0, 4, 53, 51, 60, 57, 49, 46, 51, 58, 55, 62, 60, 59, 57, 55, 45, 28, 12, 1, 0][
        :count
    ]
    return tuple(
        HourCount(
            hour_start=start + timedelta(hours=hour), records=many, duplicates=many // 16 + (hour == 9) * 7
        )
        for hour, many in enumerate(records)
    )


def trend_until(day: date, days: int = 14) -> tuple[TrendDay, ...]:
    """Fourteen days with a week's rhythm; one of them failed."""
    return tuple(
        TrendDay(
            day=day - timedelta(days=days - 1 - index),
            status="failed" if index == 5 else "certified",
            rows=720 + 130 * (index % 7 < 5) + 7 * index,
            records=760 + 140 * (index % 7 < 5) + 7 * index,
            duplicates=40 + 3 * (index % 4),
            conflicts=index % 3,
            late=(2 * index) % 5,
        )
        for index in range(days)
    )


def checks_of(failed: bool) -> tuple[ReportCheck, ...]:
    """Integrity checks and expectations, of every status."""
    found = 2 if failed else 0
    return (
        ReportCheck(name="unique_keys", kind="integrity", status="failed" if failed else "passed",
                    observed=f"{found} keys stand more than once", expected="no key more than once",
                    detail="UA-1545-EWR 2013-01-05T05:15:00-05:00 (2 rows)" if failed else ""),
        ReportCheck(name="counts_add_up", kind="integrity", status="passed", observed="14,213 = 14,213",
                    expected="bronze = batch + duplicates + quarantined + other days", detail=""),
        ReportCheck(name="rows_in_their_day", kind="integrity", status="passed", observed="0 rows outside",
                    expected="every row between 2013-01-05 00:00 and 24:00", detail=""),
        ReportCheck(name="offsets_contiguous", kind="integrity", status="warned",
                    observed="1 gap of 3 offsets", expected="no gap in any partition",
                    detail="flights-2: offsets 4812 to 4814 are not in bronze\ntransactions leave gaps"),
        ReportCheck(name="speed_agrees", kind="integrity", status="passed", observed="3 rows, all late",
                    expected="layers differ by late rows alone", detail=""),
        ReportCheck(name="expect_column_values_to_not_be_null(carrier)", kind="expectation", status="passed",
                    observed="0 of 720 null", expected="0 null", detail=""),
        ReportCheck(name="expect_column_values_to_be_between(distance)", kind="expectation",
                    status="failed" if failed else "passed", expected="1 to 6,000",
                    observed="-4 to 4,983" if failed else "80 to 4,983",
                    detail="1 row: " + POISON if failed else ""),
        ReportCheck(name="expect_column_values_to_match_regex(tailnum)", kind="expectation", status="skipped",
                    observed="not run", expected="N[0-9A-Z]{1,5}", detail="the contract gives no severity"),
    )  # fmt: skip


def quarantine_of() -> tuple[QuarantineReason, ...]:
    """Poison of several kinds, as bronze really holds it."""
    sent = datetime(2013, 1, 5, 14, 3, 11, tzinfo=UTC)
    return (
        QuarantineReason(reason="malformed_json", records=3, examples=(
            QuarantineExample(topic="flights", partition=1, offset=4711, kafka_timestamp=sent,
                              value_preview='{"carrier":"UA","flight":15'),
            QuarantineExample(topic="flights", partition=0, offset=120, kafka_timestamp=sent,
                              value_preview=b"\xff\xfe{" + POISON.encode()),  # type: ignore[arg-type]
            QuarantineExample(topic="flights", partition=2, offset=9, value_preview="x" * 50_000),
        )),
        QuarantineReason(reason="wrong_type", records=2, examples=(
            QuarantineExample(topic="flights", partition=2, offset=1_204_881, kafka_timestamp=sent,
                              column="flight", found='"fifteen"',
                              value_preview='{"carrier":"UA","flight":"fifteen","origin":"EWR"}'),
        )),
        QuarantineReason(reason="event_time_future", records=1, examples=(
            QuarantineExample(topic="flights", partition=0, offset=77, kafka_timestamp=sent,
                              column="scheduled_departure", found="2099-01-01T00:00:00-05:00",
                              value_preview="{}"),
        )),
        QuarantineReason(reason="null_value", records=1, examples=(
            QuarantineExample(topic="flights", partition=1, offset=78, kafka_timestamp=sent),
        )),
    )  # fmt: skip


def conflicts_of() -> tuple[ConflictSample, ...]:
    """A plain conflict with a value that would act, and one of personal data alone."""
    sent = datetime(2013, 1, 5, 14, 3, 11, tzinfo=UTC)
    first, second = (
        ConflictCopy(topic="flights", partition=1, offset=offset, kafka_timestamp=sent, winner=offset == 4712)
        for offset in (4712, 4713)
    )
    third = ConflictCopy(topic="flights", partition=2, offset=1_204_999, winner=False)
    flight = KeyPart(column="flight", value="1545")
    return (
        ConflictSample(key=(KeyPart(column="carrier", value="UA"), flight), copies_of_day=12,
                       copies=(first, second, third), columns=(
            ConflictColumn(column="departure_delay", values=("2.0", "9.0", None)),
            ConflictColumn(column="dest", values=("IAH", POISON, "x" * 200 + "… (50,000 characters)")),
            ConflictColumn(column="tailnum", personal="hash",
                           values=("sha256:0011223344556677", "sha256:8899aabbccddeeff", None)),
            ConflictColumn(column="pilot.name", personal="drop"),
        )),
        ConflictSample(key=(KeyPart(column="carrier"), flight), copies_of_day=2, copies=(first, second),
                       columns=(ConflictColumn(column="pilot.name", personal="drop"),)),
    )  # fmt: skip


def sample(status: DayStatus = "certified", day: date = date(2013, 1, 5)) -> ReportData:
    """One day as the demo makes it."""
    hours = hours_of(day)
    records, duplicates = sum(h.records for h in hours), sum(h.duplicates for h in hours)
    batch = records - duplicates
    checks = checks_of(failed=status == "failed")
    counts = {kind: sum(check.status == kind for check in checks) for kind in ("passed", "failed", "warned")}
    lateness = (("before event time", 0.31), ("0 to 1 min", 0.42), ("1 to 15 min", 0.18),
                ("15 to 60 min", 0.06), ("1 to 6 h", 0.02), ("6 to 24 h", 0.005),
                ("over 1 day", 0.0))  # fmt: skip
    buckets = [LatenessBucket(label=label, records=int(part * records)) for label, part in lateness]
    rest = records - sum(bucket.records for bucket in buckets)
    buckets[-1] = LatenessBucket(label="over 1 day", lower_s=86_400, records=rest)
    return ReportData(
        pipeline="flights",
        day=day,
        time_zone="America/New_York",
        generated_at=datetime(2013, 1, 6, 7, 4, 5, tzinfo=UTC),
        version="0.1.0",
        verdict=Verdict(
            status=status,
            certified_at=datetime(2013, 1, 6, 7, 0, 1, tzinfo=UTC) if status == "certified" else None,
            run_id="nightly-20130106T070000Z-3f9c",
            batch_version=18,
            bronze_version=1204,
            **counts,
        ),
        flow=Flow(bronze=13_286 + 7 + records, other_days=13_286, quarantined=7, day_records=records,
                  duplicates=duplicates, conflicts=2, batch=batch, speed=batch - 3, late=3),
        duplicates_by_hour=hours,
        lateness=tuple(buckets),
        quarantine=quarantine_of(),
        conflict_samples=conflicts_of(),
        checks=checks,
        trend=trend_until(day),
    )  # fmt: skip


def empty(status: DayStatus = "open") -> ReportData:
    """A day without rows, checks, quarantine or trend."""
    return ReportData(
        pipeline="weather",
        day=date(2013, 1, 20),
        time_zone="America/New_York",
        generated_at=datetime(2013, 1, 20, 7, tzinfo=UTC),
        version="0.1.0",
        verdict=Verdict(status=status, passed=0, failed=0, warned=0),
        flow=Flow(bronze=0, other_days=0, quarantined=0, day_records=0, duplicates=0, conflicts=0, batch=0,
                  speed=0, late=0),
    )  # fmt: skip


def huge() -> ReportData:
    """A year of a pipeline with billions of records, and sixty checks."""
    small = sample()
    factor = 1_234_567
    grown = {name: count * factor for name, count in small.flow.model_dump().items()}
    return small.model_copy(
        update={
            "flow": Flow.model_validate(grown),
            "duplicates_by_hour": tuple(
                hour.model_copy(
                    update={"records": hour.records * factor, "duplicates": hour.duplicates * factor}
                )
                for hour in small.duplicates_by_hour
            ),
            "lateness": tuple(
                bucket.model_copy(update={"records": bucket.records * factor}) for bucket in small.lateness
            ),
            "trend": trend_until(small.day, days=365),
            "checks": small.checks * 8,
        }
    )


class Page(HTMLParser):
    """What a reader, a screen reader and a browser get from the page."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[tuple[str, ...], str]] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((tuple(self._open), " ".join(data.split())))

    def inside(self, tag: str) -> list[str]:
        """The texts inside elements of one tag."""
        return [text for path, text in self.texts if tag in path]

    @property
    def text(self) -> str:
        """Everything that is read, in order."""
        return " ".join(text for path, text in self.texts if "style" not in path)


CASES = {
    "certified": sample(),
    "failed": sample("failed"),
    "not_certified": sample("not_certified"),
    "open": sample("open"),
    "empty": empty(),
    "huge": huge(),
    "spring": sample(day=date(2013, 3, 10)),
    "autumn": sample(day=date(2013, 11, 3)),
}


@cache
def page_of(name: str) -> str:
    """The page of a sample, rendered once for all tests."""
    return report.render_html(CASES[name])


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[ReportData, str]:
    """Each sample with its page."""
    return CASES[request.param], page_of(request.param)


@pytest.fixture
def failed_page() -> Page:
    """The page of a failed day, with poison in its records and checks."""
    return Page(page_of("failed"))


def test_page_refers_to_nothing_outside_itself(case: tuple[ReportData, str]) -> None:
    """No address that a browser would fetch, no script, no handler, in any element of any case."""
    for tag, attributes in Page(case[1]).elements:
        assert tag not in {"script", "iframe", "object", "embed", "form", "base", "image", "img", "a"}, tag
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            if name in {"src", "href", "xlink:href", "srcset", "data", "action"}:
                assert value.startswith(("data:", "#")), (tag, name, value)
            if name != "xmlns" and not name.startswith("xmlns:"):
                assert "//" not in value, (tag, name, value)
    style = " ".join(text for path, text in Page(case[1]).texts if "style" in path)
    assert "url(" not in style
    assert "@import" not in style


def test_ids_are_unique_and_references_resolve(case: tuple[ReportData, str]) -> None:
    """Several charts on one page share no id, and every aria reference has its target."""
    elements = Page(case[1]).elements
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in elements:
        for name in ("aria-labelledby", "aria-describedby"):
            assert set(attributes.get(name, "").split()) <= set(ids)
        for value in attributes.values():
            if value.startswith("url("):
                assert value.removeprefix("url(#").removesuffix(")") in ids


def test_headings_lead_through_the_page_verdict_first(case: tuple[ReportData, str]) -> None:
    """One h1, the verdict, before all else; levels never jump."""
    data, html = case
    page = Page(html)
    levels = [int(tag[1]) for tag, _ in page.elements if tag in {"h1", "h2", "h3"}]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert page.inside("h1") == [report.headline(data)]
    assert page.inside("main")[0] == report.headline(data)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (CASES["certified"], "2013-01-05 is certified: every event once"),
        (CASES["failed"], "2013-01-05 is NOT certified: 2 of 7 checks failed"),
        (CASES["not_certified"], "2013-01-05 is NOT certified: no audit of it has passed"),
        (CASES["open"], "2013-01-05 is open: not yet rebuilt and audited"),
        (empty("certified"), "2013-01-20 is certified: no event on this day"),
        (empty("failed"), "2013-01-20 is NOT certified: its audit did not pass"),
    ],
)
def test_headline_says_the_verdict_in_plain_words(data: ReportData, expected: str) -> None:
    """The line on top is the answer to the question with which the reader came."""
    assert report.headline(data) == expected


def test_verdict_names_the_failed_checks(failed_page: Page) -> None:
    """The names of failed checks stand in the verdict, not only far below."""
    verdict = failed_page.text.split("Event day")[0]
    assert "unique_keys" in verdict
    assert "expect_column_values_to_be_between(distance)" in verdict
    assert "keep the last certified state" in verdict


def test_every_check_is_listed_failed_first(case: tuple[ReportData, str]) -> None:
    """No check is left out, and verdicts are words as well as colours."""
    data, html = case
    rows = [attributes["class"] for tag, attributes in Page(html).elements
            if tag == "tr" and attributes.get("class", "").startswith("check ")]  # fmt: skip
    statuses = [row.removeprefix("check ") for row in rows]
    assert sorted(statuses) == sorted(check.status for check in data.checks)
    assert statuses == [check.status for check in report.ordered_checks(data.checks)]
    assert {"failed", "warned", "skipped", "passed"} >= set(statuses)
    text = Page(html).text
    for check in data.checks:
        assert check.name in text
        assert check.expected in text
        assert check.observed in text
    if data.checks:
        assert [status == "failed" for status in statuses] == sorted(
            (status == "failed" for status in statuses), reverse=True
        )


def test_sums_are_checked_on_the_numbers_shown() -> None:
    """A record that vanished between two steps is counted on the page, and the sums that hold say so."""
    data = sample("failed")
    lossy = data.model_copy(
        update={"flow": data.flow.model_copy(update={"batch": data.flow.batch - 1_000 + 997})}
    )
    assert Page(report.render_html(data)).text.count("adds up") == 3
    text = Page(report.render_html(lossy)).text
    assert text.count("adds up") == 1
    assert "3 missing" in text
    assert "3 too many" in text
    assert "unaccounted for" in text


def test_a_difference_of_the_layers_that_the_audit_explained_is_no_fault() -> None:
    """The speed layer may lag, or hold a key twice; the check that judged it is named, for both signs."""
    data = sample()
    explained = ReportCheck(
        name="layers_agree", kind="integrity", status="warned", observed="", expected="", detail=""
    )
    for speed, words in ((data.flow.batch, "3 more"), (data.flow.batch - 10, "7 fewer")):
        flow = data.flow.model_copy(update={"speed": speed, "late": 3})
        changed = data.model_copy(update={"flow": flow, "checks": (*data.checks, explained)})
        text = Page(report.render_html(changed)).text
        assert f"{words} in the speed layer: see the check layers_agree" in text
        assert "unaccounted" not in text
        assert text.count("adds up") == 2


def test_open_day_is_not_accused_of_losing_what_is_not_rebuilt() -> None:
    """Before the rebuild the batch side is empty; that is said as such, not as a loss."""
    data = sample("open")
    flow = data.flow.model_copy(update={"batch": 0, "duplicates": 0, "late": 0})
    text = Page(report.render_html(data.model_copy(update={"flow": flow}))).text
    assert "not rebuilt yet" in text
    assert "unaccounted" not in text
    assert "missing" not in text


def test_certified_day_whose_numbers_disagree_says_so_at_the_top() -> None:
    """A green page never hides a sum that does not add up or a failed check."""
    data = sample()
    odd = data.model_copy(update={"flow": data.flow.model_copy(update={"bronze": data.flow.bronze + 5})})
    verdict = Page(report.render_html(odd)).text.split("Event day")[0]
    assert "say otherwise: the records in bronze do not add up" in verdict
    assert report.doubts(data) == []
    broken = data.verdict.model_copy(update={"failed": 1})
    assert report.doubts(data.model_copy(update={"verdict": broken})) == ["1 check failed"]


def test_poison_is_shown_and_harmless() -> None:
    """Markup of a record arrives as text; control and reordering characters become visible."""
    html = page_of("failed")
    text = Page(html).text
    assert "<script" not in html
    assert "<script>alert(1)</script><img src=x onerror=alert(2)>⟨U+0000⟩⟨U+001B⟩[31m⟨U+202E⟩gnp.exe" in text
    assert "\\xff\\xfe{" in text
    for character in ("\x00", "\x1b", "\u202e", "\ufffe"):
        assert character not in html
    html.encode("utf-8")


def test_every_text_field_is_escaped() -> None:
    """Poison in each text field of the structure, not only where it is expected, stays text."""
    data = sample("failed")
    dirty = data.model_copy(
        update={
            "version": POISON,
            "verdict": data.verdict.model_copy(update={"run_id": POISON}),
            "lateness": tuple(bucket.model_copy(update={"label": POISON}) for bucket in data.lateness),
            "quarantine": (
                QuarantineReason(
                    reason=POISON,
                    records=7,
                    examples=(QuarantineExample(topic=POISON, partition=0, offset=1, column=POISON,
                                                found=POISON, value_preview=POISON),),
                ),
            ),
            "conflict_samples": (
                ConflictSample(
                    key=(KeyPart(column=POISON, value=POISON),),
                    copies_of_day=2,
                    copies=(ConflictCopy(topic=POISON, partition=0, offset=1, winner=True),),
                    columns=(ConflictColumn(column=POISON, values=(POISON,)),
                             ConflictColumn(column=POISON, personal="drop")),
                ),
            ),
            "checks": (
                ReportCheck(name=POISON, kind="integrity", status="failed", observed=POISON, expected=POISON,
                            detail=POISON),
            ),
        }
    )  # fmt: skip
    html = report.render_html(dirty)
    assert "<script" not in html
    assert "<img" not in html
    assert "\x00" not in html
    assert "\u202e" not in html
    Page(html)


def conflicts_section(html: str) -> str:
    """What is read in the section of the conflicts; empty if there is none."""
    text = Page(html).text
    start = text.find(" Conflicts 2 keys in conflict")
    return "" if start < 0 else text[start : text.index(" Quarantine ", start)]


def test_conflicts_are_shown_copy_by_copy_the_winner_first() -> None:
    """Each copy stands with its coordinates, its time and its values in the columns that differ."""
    shown = conflicts_section(page_of("certified"))
    one, two = shown.split("12 copies, 3 of them here")
    assert "carrier = UA , flight = 1545" in one
    winner, loser, last = two.split(" @ ")[1:4]
    assert winner.startswith(
        "4712 winner 2013-01-05 09:03:11 EST departure_delay 2.0 dest IAH tailnum sha256:00"
    )
    assert loser.startswith("4713 2013-01-05 09:03:11 EST departure_delay 9.0 dest <script>alert(1)</script>")
    assert last.startswith("1204999 \u2013 departure_delay null dest xxx")
    assert "x… (50,000 characters) tailnum null" in last
    assert shown.count("winner 2013") == 2


def test_samples_say_of_how_many_conflicts_they_are() -> None:
    """A few samples of many conflicts do not look like all of them."""
    assert "2 keys of 2,469,134 in conflict" in Page(page_of("huge")).text


def test_what_the_contract_forbids_to_show_is_named_without_a_value() -> None:
    """A column with personal data that is dropped is said to differ, and a key part to be there."""
    shown = conflicts_section(page_of("certified"))
    assert (
        shown.count("The copies differ in pilot.name , too; the contract forbids to show these values.") == 1
    )
    assert "carrier = not shown , flight = 1545 2 copies The copies differ in pilot.name ;" in shown


def test_a_day_without_samples_of_conflicts_has_no_section_of_them() -> None:
    """Nothing is said twice: that there is no conflict stands with the sums."""
    without = report.render_html(sample().model_copy(update={"conflict_samples": ()}))
    assert conflicts_section(page_of("certified"))
    for html in (page_of("empty"), without):
        assert not conflicts_section(html)
        assert 'id="conflicts"' not in html


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("plain", 10, "plain"),
        ("x" * 10, 10, "x" * 10),
        ("x" * 12_345, 10, "xxxxxxxxxx… (12,345 characters)"),
        ("a\x00\x7f\x85b", 10, "a⟨U+0000⟩⟨U+007F⟩⟨U+0085⟩b"),
        ("a\nb\tc", 10, "a↵b c"),
        ("\u200b\u2066\ufeff\ue000\u2028", 10, "⟨U+200B⟩⟨U+2066⟩⟨U+FEFF⟩⟨U+E000⟩⟨U+2028⟩"),
        ("Zürich 東京 ✈", 20, "Zürich 東京 ✈"),
    ],
)
def test_visible_hides_nothing_and_ends(text: str, limit: int, expected: str) -> None:
    """What is cut says its full length; what has no glyph gets one."""
    shown = visible(text, limit)
    assert shown == expected
    assert visible(shown, 1) == shown


def test_long_values_say_their_full_length(failed_page: Page) -> None:
    """Fifty thousand characters become one line and their number."""
    assert "(50,000 characters)" in failed_page.text
    assert "x" * 300 not in failed_page.text


def test_empty_day_has_a_sentence_for_every_empty_part() -> None:
    """Nothing is drawn of nothing, and no section is silently blank."""
    page = Page(page_of("empty"))
    for sentence in (
        "Bronze holds no record yet.",
        "No record of this day, so no hours to show.",
        "No record of this day, so no lateness to show.",
        "Nothing in quarantine: every record keeps the contract.",
        "No check has run for this day.",
        "No day has been rebuilt yet.",
    ):
        assert sentence in page.text
    assert "figure" not in {tag for tag, _ in page.elements}


def test_one_day_of_trend_is_a_table_and_no_picture() -> None:
    """A trend of one point is not drawn; its numbers are there and open."""
    data = sample()
    html = report.render_html(data.model_copy(update={"trend": data.trend[-1:]}))
    assert "One day so far" in html
    assert "<details open>" in html


def test_numbers_have_thousands_separators() -> None:
    """Billions are readable; identifiers such as offsets keep their digits together."""
    text = Page(page_of("huge")).text
    assert f"{CASES['huge'].flow.bronze:,}" in text
    assert str(CASES["huge"].flow.bronze) not in text
    assert "@ 1204881" in text


@pytest.mark.parametrize(("name", "count"), [("spring", 23), ("autumn", 25), ("certified", 24)])
def test_hours_follow_the_clock_of_the_zone(name: str, count: int) -> None:
    """A day has the hours that its zone gives it; a repeated hour is told apart."""
    data = CASES[name]
    assert len(data.duplicates_by_hour) == count
    text = Page(page_of(name)).text
    assert (f"This day has {count} hours" in text) == (count != 24)
    assert ("01*" in text) == (count == 25)


def test_instants_are_shown_in_the_zone_of_the_day(failed_page: Page) -> None:
    """07:04 UTC is 02:04 in New York."""
    assert "2013-01-06 02:04:05 EST" in failed_page.text


def test_same_data_gives_the_same_bytes() -> None:
    """A report can be made again and compared."""
    assert report.render_html(sample()) == page_of("certified")
    assert report.render_json(sample()) == report.render_json(sample())


def test_json_reads_back_as_the_same_report() -> None:
    """The JSON holds everything that the page was made from."""
    for data in CASES.values():
        assert ReportData.model_validate_json(report.render_json(data)) == data
    assert json.loads(report.render_json(CASES["failed"]))["verdict"]["failed"] == 2


@pytest.mark.parametrize(
    ("part", "whole", "expected"),
    [(0, 0, "\u2013"), (0, 5, "0.0 %"), (1, 10_000_000, "< 0.1 %"), (9_999_999, 10_000_000, "> 99.9 %"),
     (5, 5, "100.0 %"), (51, 863, "5.9 %")],
)  # fmt: skip
def test_share_never_rounds_something_away(part: int, whole: int, expected: str) -> None:
    """One lost record in ten millions is not 0 %."""
    assert share(part, whole) == expected


def test_write_report_leaves_two_complete_files(tmp_path: Path) -> None:
    """Page and JSON are there, readable, replaced by a second run, and no temporary file stays."""
    out = tmp_path / "new" / "reports"
    first = report.write_report(sample("failed"), out)
    second = report.write_report(sample(), out)
    assert first == second == (out / "flights-2013-01-05.html", out / "flights-2013-01-05.json")
    assert second[0].read_text(encoding="utf-8") == page_of("certified")
    assert second[1].read_text(encoding="utf-8") == report.render_json(sample())
    assert sorted(path.name for path in out.iterdir()) == [path.name for path in second]
    assert second[0].stat().st_mode & 0o777 == 0o644


def test_write_report_that_fails_keeps_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk leaves yesterday's report whole, no debris, and one message that says where."""
    page, _ = report.write_report(sample("failed"), tmp_path)
    before = page.read_text(encoding="utf-8")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pipelines.quality.report.os.fsync", full)
    with pytest.raises(InfrastructureError, match=r"flights 2013-01-05.*No space left on device.*--out"):
        report.write_report(sample(), tmp_path)
    assert page.read_text(encoding="utf-8") == before
    assert len(list(tmp_path.iterdir())) == 2


def test_write_report_into_a_file_is_refused_with_its_name(tmp_path: Path) -> None:
    """--out that is a file is a mistake with a message."""
    occupied = tmp_path / "taken"
    occupied.write_text("x", encoding="utf-8")
    with pytest.raises(InfrastructureError, match="taken"):
        report.write_report(sample(), occupied)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pipeline": "../etc/passwd"}, "pipeline"),
        ({"time_zone": "America/Nowhere"}, "not an IANA time zone"),
        ({"time_zone": "../../etc/passwd"}, "not an IANA time zone"),
        ({"generated_at": datetime(2013, 1, 6)}, "timezone"),  # noqa: DTZ001 - the fault under test
        ({"surplus": 1}, "Extra inputs"),
        ({"trend": [trend_until(date(2013, 1, 5))[0]] * 2}, "twice"),
    ],
)
def test_wrong_data_is_refused(change: dict[str, object], message: str) -> None:
    """Names that would leave the folder, naive instants and unknown fields never reach a page."""
    with pytest.raises(ValidationError, match=message):
        ReportData.model_validate({**sample().model_dump(), **change})


def test_trend_is_put_in_order() -> None:
    """The layer may hand the days over in any order."""
    data = sample()
    assert ReportData.model_validate({**data.model_dump(), "trend": data.trend[::-1]}).trend == data.trend


def test_text_of_any_bytes_is_taken() -> None:
    """Neither bytes that are not UTF-8 nor lone surrogates break the report."""
    example = QuarantineExample.model_validate(
        {"topic": "t", "partition": 0, "offset": 0, "found": "\ud800", "value_preview": b"\xc3("}
    )
    assert example.found == "\\ud800"
    assert example.value_preview == "\\xc3("


def test_report_is_rendered_from_a_zip(tmp_path: Path) -> None:
    """Template and style are found where executors and drivers import the package from a zip."""
    package = Path(report.__file__).parents[1]
    archive = tmp_path / "pipelines.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        for path in sorted(package.rglob("*")):
            if path.suffix in {".py", ".j2", ".css"}:
                zipped.write(path, path.relative_to(package.parent))
    program = (
        "import sys; from pipelines.quality import report, report_model as model; "
        "assert '.zip' in report.__file__; "
        "print(report.render_html(model.ReportData.model_validate_json(sys.stdin.read())))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=report.render_json(CASES["empty"]),
        capture_output=True,
        encoding="utf-8",
        cwd=tmp_path,
        env={"PYTHONPATH": str(archive), "PYTHONUTF8": "1"},
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == page_of("empty").strip()
