"""The report says the verdict first, lists everything, adds up visibly, and nothing in it can act or hide."""

from itertools import pairwise
from typing import get_args

import pytest

from pipelines.records.reasons import REASONS, Reason
from pipelines.report.model.history import Comparison
from pipelines.report.model.records import (
    ConflictColumn,
    ConflictCopy,
    ConflictSample,
    KeyPart,
    QuarantineExample,
    QuarantineReason,
)
from pipelines.report.model.report import ReportCheck, ReportData
from pipelines.report.render import html_page
from pipelines.report.render.findings import doubts, headline, ordered_checks
from pipelines.report.render.text import percentage, visible
from tests.support.pages import Page
from tests.support.report_pages import CASES, page_of, read_page
from tests.support.reports import POISON, empty, sample


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[ReportData, str]:
    """Each sample with its page."""
    return CASES[request.param], page_of(request.param)


@pytest.fixture
def failed_page() -> Page:
    """The page of a failed day, with poison in its records and checks."""
    return read_page(page_of("failed"))


@pytest.mark.patient
def test_page_refers_to_nothing_outside_itself(case: tuple[ReportData, str]) -> None:
    """No address that a browser would fetch, no script, no handler, in any element of any case."""
    for tag, attributes in read_page(case[1]).elements:
        assert tag not in {"script", "iframe", "object", "embed", "form", "base", "image", "img", "a"}, tag
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            if name in {"src", "href", "xlink:href", "srcset", "data", "action"}:
                assert value.startswith(("data:", "#")), (tag, name, value)
            if name != "xmlns" and not name.startswith("xmlns:"):
                assert "//" not in value, (tag, name, value)
    style = " ".join(text for path, text in read_page(case[1]).texts if "style" in path)
    assert "url(" not in style
    assert "@import" not in style


def test_ids_are_unique_and_references_resolve(case: tuple[ReportData, str]) -> None:
    """Several charts on one page share no id, and every aria reference has its target."""
    elements = read_page(case[1]).elements
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
    page = read_page(html)
    levels = [int(tag[1]) for tag, _ in page.elements if tag in {"h1", "h2", "h3"}]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert page.inside("h1") == [headline(data)]
    assert page.inside("main")[0] == headline(data)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (CASES["certified"], "2013-01-05 is certified: every event once"),
        (CASES["failed"], "2013-01-05 is NOT certified: 2 of 7 checks failed"),
        (CASES["not_certified"], "2013-01-05 is NOT certified: no audit of it has passed"),
        (CASES["open"], "2013-01-05 is not over: not yet rebuilt and audited"),
        (empty("certified"), "2013-01-20 is certified: no event on this day"),
        (empty("failed"), "2013-01-20 is NOT certified: its audit did not pass"),
    ],
)
def test_headline_says_the_verdict_in_plain_words(data: ReportData, expected: str) -> None:
    """The line on top is the answer to the question with which the reader came."""
    assert headline(data) == expected


def test_verdict_names_the_failed_checks(failed_page: Page) -> None:
    """The names of failed checks stand in the verdict, not only far below."""
    verdict = failed_page.text.split("Event day")[0]
    assert "unique_keys" in verdict
    assert "expect_column_values_to_be_between(distance)" in verdict
    assert "keep the last certified state" in verdict


def test_every_check_is_listed_failed_first(case: tuple[ReportData, str]) -> None:
    """No check is left out, and verdicts are words as well as colours."""
    data, html = case
    rows = [attributes["class"] for tag, attributes in read_page(html).elements
            if tag == "tr" and attributes.get("class", "").startswith("check ")]  # fmt: skip
    statuses = [row.removeprefix("check ") for row in rows]
    assert sorted(statuses) == sorted(check.status for check in data.checks)
    assert statuses == [check.status for check in ordered_checks(data.checks)]
    assert {"failed", "warned", "passed"} >= set(statuses)
    text = read_page(html).text
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
    assert read_page(html_page.render_html(data)).text.count("adds up") == 3
    text = read_page(html_page.render_html(lossy)).text
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
        text = read_page(html_page.render_html(changed)).text
        assert f"{words} in the speed layer: see the check layers_agree" in text
        assert "unaccounted" not in text
        assert "say otherwise" not in text
        assert text.count("adds up") == 2


def test_a_day_that_is_not_over_is_not_accused_of_losing_what_is_not_rebuilt() -> None:
    """Before the rebuild the batch side is empty; that is said as such, not as a loss."""
    data = sample("open")
    flow = data.flow.model_copy(update={"batch": 0, "duplicates": 0, "late": 0})
    text = read_page(html_page.render_html(data.model_copy(update={"flow": flow}))).text
    assert "not rebuilt yet" in text
    assert "unaccounted" not in text
    assert "missing" not in text


def test_certified_day_whose_numbers_disagree_says_so_at_the_top() -> None:
    """A green page never hides a sum that does not add up or a failed check."""
    data = sample()
    odd = data.model_copy(update={"flow": data.flow.model_copy(update={"bronze": data.flow.bronze + 5})})
    verdict = read_page(html_page.render_html(odd)).text.split("Event day")[0]
    assert "say otherwise: the records in bronze do not add up" in verdict
    assert doubts(data) == []
    broken = data.verdict.model_copy(update={"failed": 1})
    assert doubts(data.model_copy(update={"verdict": broken})) == ["1 check failed"]


def test_poison_is_shown_and_harmless() -> None:
    """Markup of a record arrives as text; control and reordering characters become visible."""
    html = page_of("failed")
    text = read_page(html).text
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
    html = html_page.render_html(dirty)
    assert "<script" not in html
    assert "<img" not in html
    assert "\x00" not in html
    assert "\u202e" not in html
    read_page(html)


def conflicts_section(html: str) -> str:
    """What is read in the section of the conflicts; empty if there is none."""
    text = read_page(html).text
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
    assert "2 keys of 2,469,134 in conflict" in read_page(page_of("huge")).text


def test_what_the_contract_forbids_to_show_is_named_without_a_value() -> None:
    """A column with personal data that is dropped is said to differ, and a key part to be there."""
    shown = conflicts_section(page_of("certified"))
    assert (
        shown.count("The copies differ in pilot.name , too; the contract forbids to show these values.") == 1
    )
    assert "carrier = not shown , flight = 1545 2 copies The copies differ in pilot.name ;" in shown


def test_a_day_without_samples_of_conflicts_has_no_section_of_them() -> None:
    """Nothing is said twice: that there is no conflict stands with the sums."""
    without = html_page.render_html(sample().model_copy(update={"conflict_samples": ()}))
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


def test_every_reason_for_quarantine_is_explained() -> None:
    reasons = tuple(QuarantineReason(reason=reason, records=1) for reason in get_args(Reason))
    page = html_page.render_html(sample().model_copy(update={"quarantine": reasons}))
    for sentence in REASONS.values():
        assert sentence in page


def test_empty_day_has_a_sentence_for_every_empty_part() -> None:
    """Nothing is drawn of nothing, and no section is silently blank."""
    page = read_page(html_page.render_html(empty("certified")))
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


@pytest.mark.parametrize("name", ["open", "not_certified"])
def test_a_day_without_a_decision_gets_a_short_page(name: str) -> None:
    """What a rebuild would tell is left out; that there was none is said, and nothing is called lost."""
    data = CASES[name].model_copy(update={"duplicates_by_hour": (), "history": (), "comparison": None})
    flow = data.flow.model_copy(update={"batch": 0, "duplicates": 0, "late": 0})
    text = read_page(html_page.render_html(data.model_copy(update={"flow": flow}))).text
    assert "Readers get it from the speed layer" in text or "readers get it from the speed layer" in text
    for absent in ("Duplicates over the hours", "Lateness", "Verdicts on this day", "missing", "unaccounted"):
        assert absent not in text


def test_history_tells_every_verdict_the_latest_first() -> None:
    """When, which run, why, which versions, and what changed; a repair is called so."""
    text = read_page(page_of("certified")).text
    history = text[text.index(" Verdicts on this day ") : text.index(" Trend over days ")]
    latest, failed, first = (history.index(run) for run in ("batch 18", "nightly-2", "nightly-1"))
    assert latest < failed < first
    assert "late 5 records came late" in history
    assert "3 added, 1 removed, 2 changed" in history[:failed]
    assert history.count("repaired") == 1
    assert history.endswith("805 \u2013")


def test_repairs_are_marked_in_trend_and_listed() -> None:
    """Each day that was repaired, in the table of the trend and with what the repair did to its rows."""
    text = read_page(page_of("certified")).text
    trend = text[text.index(" Trend over days ") :]
    assert "2 repairs of days that were certified before" in trend
    assert trend.count("certified repaired") == 2
    assert "5 records came late nightly-3 3 added, 0 removed, 1 changed" in trend


def test_what_a_rebuild_changed_is_shown_by_key_with_old_and_new_values() -> None:
    """Added, removed and changed rows, with the records that they were made of, and no personal data."""
    text = read_page(page_of("certified")).text
    shown = text[text.index(" What this rebuild changed ") : text.index(" Verdicts on this day ")]
    assert "3 rows added 1 row removed 2 rows changed" in shown
    assert "Rows added 1 of 3, the first by key" in shown
    assert "carrier = UA flight = 1545 flights-1 @ 9120 dest IAH" in shown
    assert "carrier = not shown flight = 1545 flights-1 @ 4712 now flights-1 @ 9120" in shown
    assert "tailnum null → <script>" in shown
    assert "pilot.name not shown" in shown


def test_a_version_that_is_gone_is_said_in_words() -> None:
    """What the ledger still knows is shown; there is no sample, and no failure."""
    gone = Comparison(previous_version=3, batch_version=9, added=1, removed=0, changed=0, gone="It is gone.")
    text = read_page(html_page.render_html(sample().model_copy(update={"comparison": gone}))).text
    shown = text[text.index(" What this rebuild changed ") : text.index(" Verdicts on this day ")]
    assert "1 row added" in shown
    assert shown.endswith("It is gone.")


def test_one_day_of_trend_is_a_table_and_no_picture() -> None:
    """A trend of one point is not drawn; its numbers are there and open."""
    data = sample()
    html = html_page.render_html(data.model_copy(update={"trend": data.trend[-1:]}))
    assert "One day so far" in html
    assert "<details open>" in html


def test_numbers_have_thousands_separators() -> None:
    """Billions are readable; identifiers such as offsets keep their digits together."""
    text = read_page(page_of("huge")).text
    assert f"{CASES['huge'].flow.bronze:,}" in text
    assert str(CASES["huge"].flow.bronze) not in text
    assert "@ 1204881" in text


@pytest.mark.parametrize(("name", "count"), [("spring", 23), ("autumn", 25), ("certified", 24)])
def test_hours_follow_the_clock_of_the_zone(name: str, count: int) -> None:
    """A day has the hours that its zone gives it; a repeated hour is told apart."""
    data = CASES[name]
    assert len(data.duplicates_by_hour) == count
    text = read_page(page_of(name)).text
    assert (f"This day has {count} hours" in text) == (count != 24)
    assert ("01*" in text) == (count == 25)


def test_instants_are_shown_in_the_zone_of_the_day(failed_page: Page) -> None:
    """07:04 UTC is 02:04 in New York."""
    assert "2013-01-06 02:04:05 EST" in failed_page.text


@pytest.mark.parametrize(
    ("part", "whole", "expected"),
    [(0, 0, "\u2013"), (0, 5, "0.0 %"), (1, 10_000_000, "< 0.1 %"), (9_999_999, 10_000_000, "> 99.9 %"),
     (5, 5, "100.0 %"), (51, 863, "5.9 %")],
)  # fmt: skip
def test_share_never_rounds_something_away(part: int, whole: int, expected: str) -> None:
    """One lost record in ten millions is not 0 %."""
    assert percentage(part, whole) == expected
