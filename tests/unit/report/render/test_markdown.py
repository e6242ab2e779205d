"""The Markdown says what matters in a few lines, and nothing in it can format, link or call anybody."""

import re

import pytest
from markdown_it import MarkdownIt

from pipelines.report.model.report import ReportCheck, ReportData
from pipelines.report.render.markdown import render_markdown
from tests.support.reports import POISON, empty, sample

EVIL = "`` @everyone | [x](https://example.org) <b>*bold*</b> #1\n# head"


def html_of(data: ReportData) -> str:
    return str(MarkdownIt("commonmark").enable("table").render(render_markdown(data)))


def test_it_begins_with_the_verdict_and_shows_what_a_reader_has_to_act_on() -> None:
    """Failed and warned checks, what the rebuild changed, the history; not every check that passed."""
    text = render_markdown(sample("failed"))
    assert text.startswith("### flights: 2013-01-05 is NOT certified: 2 of 7 checks failed\n\n863 records of")
    assert "| failed | `unique_keys` | `no key more than once` | `2 keys stand more than once` |" in text
    assert "counts_add_up" not in text
    assert "This rebuild changed the day: 3 rows added, 1 removed, 2 changed" in text
    assert "| 2013-01-07 07:00 | failed | `late` | 14 | 806 | 3 | 1 | 0 | 0 |" in text
    assert "| 2013-01-01 (repaired) | certified |" in text
    assert "(not shown)" in text
    assert text.count("| adds up |") == 3


def test_a_sum_that_does_not_add_up_stands_out() -> None:
    data = sample()
    odd = data.model_copy(update={"flow": data.flow.model_copy(update={"bronze": data.flow.bronze + 5})})
    assert "**The numbers do not confirm this: the records in bronze do not add up.**" in render_markdown(odd)
    assert "| **5 missing** |" in render_markdown(odd)


@pytest.mark.parametrize("text", [POISON, EVIL, "", "`", "```", " ` ", "|"])
def test_a_text_from_data_stays_one_cell_of_code(text: str) -> None:
    """Whatever stands in a check, a reason, a run or a value."""
    check = ReportCheck(
        name=text, kind="integrity", status="failed", observed=text, expected=text, detail=text
    )
    data = sample().model_copy(update={"checks": (check,), "version": text})
    html = html_of(data)
    (table,) = (t for t in re.findall(r"<table>.*?</table>", html, re.DOTALL) if "<th>Expected</th>" in t)
    assert len(re.findall(r"<td><code>[^<]*</code></td>", table)) == table.count("<td>") - 1 == 3
    outside = re.sub(r"<code>.*?</code>", "", html, flags=re.DOTALL)
    for live in ("<a ", "<b>", "<em>", "<script", "<img", "@", "example.org"):
        assert live not in outside


def test_an_empty_day_is_a_few_lines() -> None:
    text = render_markdown(empty("not_certified"))
    assert "no audit of it has passed" in text
    assert len(text.splitlines()) < 12
