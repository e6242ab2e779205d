"""Answers requests for the console's pages from the last view; it never asks Spark, Kafka or the lake."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import quote
from wsgiref.types import StartResponse, WSGIEnvironment

from pipelines.console.pages import (
    FOLDER,
    INDEX,
    SCRIPT,
    Site,
    page_name,
    render_overview,
    render_pipeline,
    script,
)
from pipelines.console.view import LakeView

REPORTS: Final = "reports"
"""The path below which the reports are."""

_HTML: Final = "text/html; charset=utf-8"
_TEXT: Final = "text/plain; charset=utf-8"
_BRACKETED: Final = re.compile(r"\[([^\[\]]*)\](?::\d*)?")
# The first figures are waited for.
_FIRST_EVERY_S: Final = 5.0
# Reports bring a policy of their own; this one holds for whatever else lies in their folder.
_REPORT_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
)
_HEADERS: Final = (
    ("Cache-Control", "no-store"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
)


@dataclass(frozen=True)
class _Response:
    status: HTTPStatus
    body: str | bytes
    kind: str = _TEXT
    policy: str = "default-src 'none'"
    more: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Desk:
    """What pages are answered from.

    Attributes:
        view: Returns the last view; None before the first collection is done.
        every_s: After how many seconds pages ask again.
        reports: The folder of reports.
        hosts: The names by which the server may be asked, as `host_name` gives them.
    """

    view: Callable[[], LakeView | None]
    every_s: float
    reports: Path
    hosts: frozenset[str]

    def answer(self, environ: WSGIEnvironment, respond: StartResponse) -> Iterable[bytes]:
        """Answer a request, as WSGI has it: GET and HEAD alone."""
        method = str(environ.get("REQUEST_METHOD", ""))
        response = self._respond(method, environ)
        body = response.body.encode() if isinstance(response.body, str) else response.body
        headers = [
            ("Content-Type", response.kind),
            ("Content-Length", str(len(body))),
            ("Content-Security-Policy", f"{response.policy}; frame-ancestors 'none'"),
            *_HEADERS,
            *response.more,
        ]
        respond(f"{response.status.value} {response.status.phrase}", headers)
        return [] if method == "HEAD" else [body]

    def _respond(self, method: str, environ: WSGIEnvironment) -> _Response:
        # A page of another site can have its name lead here, but not change the name that the browser sends.
        if host_name(str(environ.get("HTTP_HOST", ""))) not in self.hosts:
            words = "not a name of this console; start it with --allow-host NAME to be asked by another\n"
            return _Response(HTTPStatus.MISDIRECTED_REQUEST, words)
        if method not in ("GET", "HEAD"):
            return _Response(
                HTTPStatus.METHOD_NOT_ALLOWED, "this console only reads\n", more=(("Allow", "GET, HEAD"),)
            )
        path = str(environ.get("PATH_INFO", "")).encode("latin-1", "replace").decode("utf-8", "replace")
        is_still = environ.get("QUERY_STRING") == "refresh=off"
        found = self._page(path.removeprefix("/"), is_still=is_still)
        return found or _Response(HTTPStatus.NOT_FOUND, "no such page; all pipelines are at /\n")

    def _page(self, path: str, *, is_still: bool) -> _Response | None:
        if path == SCRIPT:
            return _Response(HTTPStatus.OK, script(), "text/javascript; charset=utf-8")
        folder, _, name = path.partition("/")
        if folder == REPORTS:
            return self._report(name)
        view, now = self.view(), datetime.now(UTC)
        every_s = self.every_s if view else min(self.every_s, _FIRST_EVERY_S)
        site = Site(None if is_still else every_s, is_live=True, reports=REPORTS)
        if path in ("", INDEX):
            return _Response(HTTPStatus.OK, render_overview(view, now, site), _HTML, site.policy)
        # The path has arrived unquoted.
        asked = quote(name, safe="")
        pipelines = view.pipelines if view and folder == FOLDER else ()
        pipeline = next((each for each in pipelines if page_name(each.name) == asked), None)
        if view is None or pipeline is None:
            return None
        return _Response(HTTPStatus.OK, render_pipeline(view, pipeline, now, site), _HTML, site.policy)

    def _report(self, name: str) -> _Response | None:
        """Return a page of the folder of reports; None if there is none, or if it lies elsewhere."""
        try:
            folder = self.reports.resolve()
            file = (folder / name).resolve()
            if not file.is_relative_to(folder) or file.suffix != ".html":
                return None
            return _Response(HTTPStatus.OK, file.read_bytes(), _HTML, _REPORT_POLICY)
        except (OSError, ValueError):
            return None


def host_name(header: str) -> str:
    """Return the name in a `Host` header, without its port, in lower case; of an IPv6 address no brackets."""
    text = header.strip().lower()
    if bracketed := _BRACKETED.fullmatch(text):
        return bracketed[1]
    # An address as people name it.
    return text if text.count(":") > 1 else re.sub(r":\d*$", "", text)
