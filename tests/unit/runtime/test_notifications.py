"""Hooks are told of the endings they ask for, in bounded time, and change nothing."""

import json
import logging
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from pipelines.config.model import NotifyConfig
from pipelines.runtime.notifications import HOOK_SETTINGS, hooks, notify

SUMMARY = {"job": "nightly_batch", "pipeline": "flights", "status": "failed", "exit_code": 3, "error": "ü"}


@dataclass
class Hook:
    """A server that keeps what it is sent, and answers as it is told."""

    url: str = ""
    status: int = 204
    got: list[tuple[dict[str, str], Any]] = field(default_factory=list)
    may_answer: threading.Event = field(default_factory=threading.Event)


@pytest.fixture
def hook() -> Iterator[Hook]:
    told = Hook()
    told.may_answer.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            told.got.append((dict(self.headers), json.loads(body)))
            told.may_answer.wait(60)
            self.send_response(told.status)
            self.send_header("Location", told.url)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name it has
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    told.url = f"http://127.0.0.1:{server.server_port}/hush-hush"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield told
    told.may_answer.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "pipelines")
    return caplog


def config(**values: Any) -> NotifyConfig:
    return NotifyConfig.model_validate({"timeout": "30 seconds", **values})


def script(folder: Path, text: str) -> list[str]:
    file = folder / "hook.py"
    file.write_text(text)
    return [sys.executable, str(file), "a word; with $(signs)"]


def test_a_webhook_gets_the_summary_with_headers_and_no_secret_is_logged(
    hook: Hook, said: pytest.LogCaptureFixture
) -> None:
    notify(config(webhook=hook.url, headers={"Authorization": "Bearer hush-hush"}), SUMMARY)
    ((headers, body),) = hook.got
    assert body == SUMMARY
    assert (headers["Authorization"], headers["Content-Type"]) == ("Bearer hush-hush", "application/json")
    assert "notify.webhook: notified" in said.text
    assert "hush-hush" not in said.text


@pytest.mark.parametrize("status", [500, 302])
def test_a_webhook_that_refuses_or_sends_elsewhere_is_logged(
    hook: Hook, said: pytest.LogCaptureFixture, status: int
) -> None:
    hook.status = status
    notify(config(webhook=hook.url), SUMMARY)
    assert len(hook.got) == 1
    assert f"notify.webhook: answered with status {status}" in said.text
    assert "hush-hush" not in said.text


def test_hooks_that_take_too_long_are_left(
    hook: Hook, said: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    hook.may_answer.clear()
    command = script(tmp_path, "import signal\nsignal.pause()")
    notify(config(webhook=hook.url, command=command, timeout="100 milliseconds"), SUMMARY)
    assert "notify.webhook: no answer within 0.1 s" in said.text
    assert "notify.command: timed out after 0.1 s and was killed" in said.text


def test_a_webhook_that_nobody_hears_is_logged(said: pytest.LogCaptureFixture) -> None:
    notify(config(webhook="http://127.0.0.1:1/hush-hush"), SUMMARY)
    assert "refused" in said.text
    assert "hush-hush" not in said.text


def test_a_command_gets_the_summary_and_its_words_as_they_are(
    said: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    kept = tmp_path / "kept.json"
    text = f"import json, sys\njson.dump([sys.argv[1], json.load(sys.stdin)], open({str(kept)!r}, 'w'))"
    notify(config(command=script(tmp_path, text)), SUMMARY)
    assert json.loads(kept.read_text()) == ["a word; with $(signs)", SUMMARY]
    assert "notify.command: notified" in said.text


def test_a_command_that_fails_or_does_not_exist_is_logged(
    said: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    notify(config(command=script(tmp_path, "raise SystemExit('no mail today')")), SUMMARY)
    assert "notify.command: exit code 1: no mail today" in said.text
    notify(config(command=[str(tmp_path / "none")]), SUMMARY)
    assert "notify.command: cannot be started: No such file or directory" in said.text


@pytest.mark.parametrize(
    ("status", "code", "when", "is_told"),
    [
        ("failed", 3, None, True),
        ("failed", 4, None, False),
        ("failed", 4, ["source_error"], True),
        ("failed", 1, ["audit_failed", "failed"], True),
        ("failed", 3, ["failed"], False),
        ("failed", 2, ["audit_failed", "source_error", "failed"], False),
        ("stopped", 1, ["failed"], False),
        ("done", 0, ["failed"], False),
    ],
)
def test_a_hook_is_told_of_the_endings_that_it_asks_for(
    hook: Hook, status: str, code: int, when: list[str] | None, is_told: bool
) -> None:
    asked = {"when": when} if when else {}
    notify(config(webhook=hook.url, **asked), {**SUMMARY, "status": status, "exit_code": code})
    assert len(hook.got) == int(is_told)


def test_each_hook_is_named_by_what_sets_it_in_the_order_of_their_calls() -> None:
    assert not [*hooks(NotifyConfig())]
    both = NotifyConfig(webhook=SecretStr("https://hooks/hush"), command=("/opt/tell.sh", "now"))
    assert [(hook.setting, hook.description) for hook in hooks(both)] == [
        ("notify.command", "command /opt/tell.sh"),
        ("notify.webhook", "webhook (address not shown)"),
    ]
    assert tuple(hook.setting for hook in hooks(both)) == HOOK_SETTINGS
