"""Tells people what needs them, such as a run that ended badly, by hooks: a command, a webhook.

A hook has a bounded time, and what becomes of it changes nothing about the run.
"""

import json
import logging
import os
import signal
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from http.client import HTTPException, HTTPMessage
from tempfile import TemporaryFile
from threading import Thread
from typing import IO, Any, Final, NamedTuple
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from pydantic import SecretStr

from pipelines.config.model import Ending, NotifyConfig
from pipelines.errors import AuditFailed, OncelakeError, SourceError

_ENDINGS: Final[dict[int, Ending]] = {
    AuditFailed.exit_code: "audit_failed",
    SourceError.exit_code: "source_error",
    OncelakeError.exit_code: "failed",
}
_SHOWN: Final = 500

_log = logging.getLogger(__name__)


class Hook(NamedTuple):
    """A way to tell people.

    Attributes:
        setting: What sets it.
        description: What it does, for the plan.
        send: Takes a body and a number of seconds, and returns what went wrong, if anything did.
    """

    setting: str
    description: str
    send: Callable[[bytes, float], str | None]


def notify(config: NotifyConfig, summary: dict[str, Any]) -> None:
    """Give the summary of a failed run, as JSON, to the hooks that are set, and log a hook that fails.

    Args:
        config: The hooks, and after which failures they are called.
        summary: Of the run, with `status` and `exit_code`.
    """
    if summary["status"] == "failed" and _ENDINGS.get(summary["exit_code"]) in config.when:
        alert(config, summary)


def alert(
    config: NotifyConfig, summary: Mapping[str, Any], only: Collection[str] | None = None
) -> tuple[str, ...]:
    """Give a summary, as JSON, to the hooks that are set, whatever it is about, and log a hook that fails.

    Args:
        config: The hooks; after which failures of a run they are called has no meaning here.
        summary: What people are to know.
        only: The settings of the hooks that are called; None for all.

    Returns:
        The settings of the hooks that failed.
    """
    body = json.dumps(summary, default=str).encode()
    seconds = config.timeout / timedelta(seconds=1)
    failed = list[str]()
    for hook in hooks(config):
        if only is not None and hook.setting not in only:
            continue
        if trouble := hook.send(body, seconds):
            _log.error(
                "%s: %s; it has notified nobody. The outcome of the run is unchanged", hook.setting, trouble
            )
            failed.append(hook.setting)
        else:
            _log.info("%s: notified", hook.setting)
    return tuple(failed)


def hooks(config: NotifyConfig) -> Iterator[Hook]:
    """Yield the hooks that are set, in the order in which they are called."""
    for setting, hook_of in _HOOKS.items():
        if found := hook_of(config):
            yield Hook(setting, *found)


_Found = tuple[str, Callable[[bytes, float], str | None]] | None


def _command(config: NotifyConfig) -> _Found:
    if config.command is None:
        return None
    return f"command {config.command[0]}", partial(_run, config.command)


def _webhook(config: NotifyConfig) -> _Found:
    if config.webhook is None:
        return None
    return "webhook (address not shown)", partial(_post, config, config.webhook)


_HOOKS: Final[Mapping[str, Callable[[NotifyConfig], _Found]]] = {
    "notify.command": _command,
    "notify.webhook": _webhook,
}
HOOK_SETTINGS: Final = tuple(_HOOKS)
"""What sets the hooks, for messages."""


def _run(command: tuple[str, ...], body: bytes, seconds: float) -> str | None:
    """Return what went wrong with the command, if anything did."""
    # Files, not pipes: a process that the command leaves behind would keep a pipe open.
    with TemporaryFile() as stdin, TemporaryFile() as output:
        stdin.write(body)
        stdin.seek(0)
        try:
            process = subprocess.Popen(
                command, stdin=stdin, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        except OSError as error:
            return f"cannot be started: {error.strerror}: {command[0]}"
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return f"timed out after {seconds:g} s and was killed"
        if code == 0:
            return None
        output.seek(0)
        return f"exit code {code}: {output.read().decode(errors='replace').strip()[-_SHOWN:]}"


def _post(config: NotifyConfig, url: SecretStr, body: bytes, seconds: float) -> str | None:
    """Return what went wrong with the webhook, if anything did."""
    headers = {"Content-Type": "application/json", "User-Agent": "oncelake"}
    headers |= {name: value.get_secret_value() for name, value in config.headers.items()}
    # The configuration takes http and https alone.
    request = Request(url.get_secret_value(), data=body, headers=headers, method="POST")  # noqa: S310
    outcome: list[str | None] = []
    # The timeout of a connection is one for each step of it, and finding the host has none at all.
    thread = Thread(target=lambda: outcome.append(_send(request, seconds)), daemon=True)
    thread.start()
    thread.join(seconds)
    return outcome[0] if outcome else _silent(seconds)


def _send(request: Request, seconds: float) -> str | None:
    try:
        with build_opener(_NoRedirect).open(request, timeout=seconds):
            return None
    except HTTPError as error:
        error.close()
        return f"answered with status {error.code}"
    except TimeoutError:
        return _silent(seconds)
    # A host such as `a..b` cannot be written as a name (`UnicodeError`).
    except (OSError, HTTPException, UnicodeError) as error:
        return f"{type(error).__name__}: {error}"


def _silent(seconds: float) -> str:
    return f"no answer within {seconds:g} s"


class _NoRedirect(HTTPRedirectHandler):
    """Following would turn the POST into a GET, and show the headers to another host."""

    def redirect_request(  # noqa: PLR0913, PLR0917 - as urllib calls it
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        return None
