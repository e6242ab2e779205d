"""Data Docs show each text from the data and from suites as it is: escaped once, and never as HTML."""

import json
import re
from datetime import UTC, date, datetime
from typing import Any, Final

import pytest

from pipelines.report.render.data_docs import Audited, write_data_docs
from tests.support.pages import Page

HOSTILE: Final = """<script>alert(1)</script><img src=x onerror=alert(2)> & "q" 'a' &lt; a<b"""
WELL: Final = {"raised_exception": False, "exception_traceback": "not kept", "exception_message": None}
COUNTS: Final = {"element_count": 3, "unexpected_count": 2, "unexpected_percent": 66.6}
KL: Final = "expect_column_kl_divergence_to_be_less_than"


class Texts:
    """Hostile texts, each with a number of its own."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def __call__(self) -> str:
        self.made.append(f"t{len(self.made)}. {HOSTILE}")
        return self.made[-1]


def outcome(kind: str, result: dict[str, Any], config: dict[str, Any], **more: Any) -> str:
    """What an audit stores of an expectation that does not hold."""
    stored = {
        "suite": "flights.rows",
        "success": False,
        "expectation_config": {"type": kind, "meta": {}, "severity": "critical", **config},
        "result": result,
        "exception_info": WELL,
        "meta": {},
    }
    return json.dumps(stored | more)


def outcomes(text: Texts) -> list[str]:
    """Outcomes with a hostile text wherever data, a suite or an exception can have one."""
    in_set, query = "expect_column_values_to_be_in_set", "unexpected_rows_expectation"
    counted = {"partial_unexpected_counts": [{"value": text(), "count": 2}], "partial_unexpected_list": ["x"]}
    raised = {"raised_exception": True, "exception_traceback": "not kept", "exception_message": text()}
    few, many = [text(), text()], [text() for _ in range(70)]
    return [
        outcome(in_set, COUNTS | counted, {"kwargs": {"column": text(), "value_set": [text()]}}),
        outcome(
            in_set,
            COUNTS | {"partial_unexpected_list": [text()]},
            {"kwargs": {"column": "dest", "value_set": []}},
        ),
        outcome(in_set, {}, {"kwargs": {"column": "dest", "value_set": []}}, exception_info=raised),
        outcome(
            "expect_column_max_to_be_between", {"observed_value": text()}, {"kwargs": {"column": "dest"}}
        ),
        outcome(
            "expect_column_values_to_match_regex", COUNTS, {"kwargs": {"column": "dest", "regex": text()}}
        ),
        outcome(in_set, {}, {"kwargs": {"column": "dest", "value_set": []}, "description": text()}),
        outcome(
            query,
            {"observed_value": 1},
            {"kwargs": {"unexpected_rows_query": f"{text()} {{batch}}"}},
        ),
        outcome(
            query,
            {"observed_value": 1},
            {"kwargs": {"unexpected_rows_query": "SELECT 1"}, "description": text()},
        ),
        *(
            outcome(
                KL,
                {"observed_value": 0.5, "details": {"observed_partition": parts}},
                {"kwargs": {"column": "dest", "partition_object": parts, "threshold": 0.1}},
            )
            for values in (few, many)
            for parts in [{"values": values, "weights": [1 / len(values)] * len(values)}]
        ),
    ]


@pytest.fixture(scope="module")
def texts() -> Texts:
    return Texts()


@pytest.fixture(scope="module")
def pages(texts: Texts, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The pages, by the folder of each kind."""
    out = tmp_path_factory.mktemp("docs")
    audited = Audited("flights", date(2013, 1, 1), "run", datetime(2013, 1, 2, tzinfo=UTC), outcomes(texts))
    site = write_data_docs(audited, out).parent
    found = {path.relative_to(site).parts[0]: path.read_text() for path in sorted(site.rglob("*.html"))}
    assert {*found} == {"index.html", "expectations", "validations"}
    return found


def test_each_text_is_shown_as_it_is(texts: Texts, pages: dict[str, str]) -> None:
    shown = Page(pages["validations"]).text
    assert [text for text in texts.made if text not in shown] == []
    # Escaped twice, a page would show the escapes. One is in the texts.
    assert set(re.findall(r"&\w+;", shown)) == {"&lt;"}
    assert shown.count("&lt;") == shown.count(HOSTILE)
    suite = Page(pages["expectations"]).text
    assert suite.count("&lt;") == suite.count(HOSTILE) > 0


@pytest.mark.parametrize("kind", ["index.html", "expectations", "validations"])
def test_no_text_becomes_html_and_no_page_runs_a_script(pages: dict[str, str], kind: str) -> None:
    elements = Page(pages[kind]).elements
    assert not {"script", "img"} & {tag for tag, _ in elements}
    assert not [name for _, attributes in elements for name in attributes if name.startswith("on")]
