"""The console answers its own pages, to its own names, by GET and HEAD alone, from the last view."""

import http.client
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread

import pytest

from pipelines.console.site import Desk, host_name
from pipelines.console.view import LakeView
from pipelines.runtime.http_server import threading_server
from tests.support.consoles import lake_view, pipeline, troubled
from tests.support.pages import Page


class Asked:
    """A server over made-up views, and who asks it."""

    def __init__(self, reports: Path) -> None:
        self.view: LakeView | None = lake_view(pipeline(), replace(troubled(), name="a b&c"))
        desk = Desk(lambda: self.view, 30.0, reports, frozenset({"127.0.0.1", "localhost", "lake.example"}))
        self.server = threading_server("127.0.0.1", 0, desk.answer)
        self.thread = Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def ask(self, path: str, method: str = "GET", host: str | None = None) -> tuple[int, dict[str, str], str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.server_port, timeout=30)
        connection.putrequest(method, path, skip_host=host is not None)
        if host:
            connection.putheader("Host", host)
        connection.endheaders()
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, dict(answer.getheaders()), text


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    folder = tmp_path / "reports"
    (folder / "data_docs" / "flights-2026-03-13").mkdir(parents=True)
    (folder / "flights-2026-03-13.html").write_text("<p>the report", encoding="utf-8")
    (folder / "flights-2026-03-13.json").write_text("{}", encoding="utf-8")
    (folder / "data_docs" / "flights-2026-03-13" / "index.html").write_text("<p>docs", encoding="utf-8")
    (tmp_path / "secret.html").write_text("secret", encoding="utf-8")
    (folder / "link.html").symlink_to(tmp_path / "secret.html")
    given = Asked(folder)
    yield given
    given.server.shutdown()
    given.server.server_close()
    given.thread.join(10)


def test_pages_are_there_under_the_addresses_that_they_link_to(asked: Asked) -> None:
    for path, words in (
        ("/", "2 pipelines"),
        ("/index.html", "2 pipelines"),
        ("/pipelines/flights.html", '<h1 id="top">flights'),
        ("/pipelines/a%20b%26c.html", "a b&amp;c"),
        ("/reports/flights-2026-03-13.html", "the report"),
        ("/reports/data_docs/flights-2026-03-13/index.html", "docs"),
    ):
        status, headers, text = asked.ask(path)
        assert (status, words in text) == (200, True), path
        assert headers["Content-Type"] == "text/html; charset=utf-8"
    status, headers, text = asked.ask("/console.js")
    assert (status, headers["Content-Type"]) == (200, "text/javascript; charset=utf-8")
    assert "use strict" in text


@pytest.mark.parametrize(
    "path",
    [
        "/pipelines/other.html",
        "/pipelines/flights",
        "/pipelines/",
        "/reports/",
        "/reports/flights-2026-03-13.json",
        "/reports/../secret.html",
        "/reports/%2e%2e/secret.html",
        "/reports//etc/passwd",
        "/reports/link.html",
        "/reports/%00.html",
        "/reports/none.html",
        "/secret.html",
        "/%ff",
    ],
)
def test_anything_else_is_not_found(asked: Asked, path: str) -> None:
    status, headers, text = asked.ask(path)
    assert status == 404
    assert headers["Content-Type"].startswith("text/plain")
    assert "secret" not in text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "<b>"])
def test_nothing_but_reading_is_allowed(asked: Asked, method: str) -> None:
    status, headers, text = asked.ask("/", method)
    assert (status, headers["Allow"], text) == (405, "GET, HEAD", "this console only reads\n")


def test_head_has_the_headers_of_get_and_no_body(asked: Asked) -> None:
    _, expected, text = asked.ask("/console.js")
    status, headers, nothing = asked.ask("/console.js", "HEAD")
    assert (status, nothing) == (200, "")
    assert headers["Content-Length"] == expected["Content-Length"] == str(len(text.encode()))


@pytest.mark.parametrize(
    ("host", "is_known"),
    [
        ("localhost", True),
        ("LOCALHOST:8080", True),
        ("127.0.0.1:1", True),
        ("lake.example", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("lake.example@evil.example", False),
        ("[::1]:80", False),
    ],
)
def test_who_asks_by_another_name_gets_nothing(asked: Asked, host: str, *, is_known: bool) -> None:
    """A page of another site may have its own name lead to this address (DNS rebinding)."""
    for path in ("/", "/pipelines/flights.html", "/reports/flights-2026-03-13.html", "/none"):
        status, _, text = asked.ask(path, host=host)
        assert (status == 421) == (not is_known)
        assert is_known or "flights" not in text


def test_every_answer_has_a_policy_and_is_kept_by_nobody(asked: Asked) -> None:
    for path in ("/", "/pipelines/flights.html", "/reports/flights-2026-03-13.html", "/none", "/console.js"):
        _, headers, _ = asked.ask(path)
        assert headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert headers["Content-Security-Policy"].endswith("frame-ancestors 'none'")
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
    _, headers, _ = asked.ask("/")
    assert "script-src 'self'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]


def test_before_the_first_collection_a_page_says_so_and_renews_itself(asked: Asked) -> None:
    asked.view = None
    status, _, text = asked.ask("/")
    assert (status, "The first collection is running" in text, "console.js" in text) == (200, True, True)
    # Who waits for the first figures need not wait for as long as for the next ones.
    assert 'data-every="5.0"' in text
    assert asked.ask("/pipelines/flights.html")[0] == 404


def test_a_view_that_nobody_renews_grows_old_on_the_page(asked: Asked) -> None:
    assert asked.view
    asked.view = replace(asked.view, at=datetime.now(UTC))
    assert "These figures are old" not in asked.ask("/")[2]
    asked.view = replace(asked.view, at=datetime.now(UTC) - timedelta(hours=1))
    assert "These figures are old: nothing was collected for" in asked.ask("/")[2]


def test_a_page_that_is_asked_not_to_renew_itself_does_not(asked: Asked) -> None:
    assert "console.js" in asked.ask("/")[2]
    still = asked.ask("/?refresh=off")[2]
    assert "console.js" not in still
    assert 'http-equiv="refresh"' not in still
    assert " ago" not in Page(still).text


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("localhost:8080", "localhost"),
        ("LAKE.example", "lake.example"),
        ("127.0.0.1:", "127.0.0.1"),
        ("[::1]:8080", "::1"),
        ("[::1]", "::1"),
        ("::1", "::1"),
        ("[fe80::A]:80", "fe80::a"),
        ("[::1]x", "[::1]x"),
        ("", ""),
    ],
)
def test_a_host_is_known_by_its_name_without_port_and_brackets(header: str, name: str) -> None:
    assert host_name(header) == name
