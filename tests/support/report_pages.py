"""Reports of all sorts, and their pages, each rendered and read once for all tests."""

from datetime import date
from functools import cache

from pipelines.report.render import html_page
from tests.support.pages import Page
from tests.support.reports import empty, huge, sample

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
    return html_page.render_html(CASES[name])


@cache
def read_page(html: str) -> Page:
    """A page, read once for all tests."""
    return Page(html)
