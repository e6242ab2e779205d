"""Commands of `oncelake` in the process of the tests, with their Spark session."""

import json
import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from click.testing import CliRunner

from pipelines.cli import console, job_runner, nightly
from pipelines.cli.app import oncelake
from pipelines.runtime.processes import stop_signals
from tests.support.lakes import Lake

_LOGGERS = (None, "pipelines", "py4j")


def outcome(name: str, *options: str) -> tuple[int, dict[str, Any]]:
    """Runs `oncelake NAME ...`; returns its exit code and its summary."""
    words = [*name.split(), "--log-format", "json", *options]
    # The session is that of all tests.
    with (
        _signals_and_log(),
        patch.object(job_runner, "stop_session"),
        patch.object(console, "stop_session"),
    ):
        done = CliRunner().invoke(oncelake, words)
    summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return done.exit_code, summary


def night(lake: Lake, *options: str) -> dict[str, Any]:
    """Does what `nightly_batch` with these options does once it has a session; returns its summary."""
    bodies: list[Any] = []
    with patch.object(nightly, "run_job", lambda job, common: bodies.append(job.body)):
        words = ["--pipeline", "flights", *options]
        CliRunner().invoke(nightly.nightly_batch, words, catch_exceptions=False)
    summary: dict[str, Any] = bodies[0](lake.pipeline, "run")
    return summary


@contextmanager
def _signals_and_log() -> Iterator[None]:
    """Leaves handlers of signals, and the log, as they were before a block."""
    signals = {number: signal.getsignal(number) for number in stop_signals()}
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    log = [(logger, logger.level, logger.handlers[:]) for logger in loggers]
    try:
        yield
    finally:
        for number, handler in signals.items():
            signal.signal(number, handler)
        for logger, level, handlers in log:
            logger.setLevel(level)
            logger.handlers[:] = handlers
