"""`oncelake console`: pages over all pipelines of a lake, live or as files."""

import json
import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import Any, Final, NoReturn
from urllib.parse import quote
from wsgiref.simple_server import WSGIServer

import click

from pipelines.cli.job_runner import JobFailed, StopRequest, outcome_of, print_summary, set_up_logging
from pipelines.cli.options import LogFormat, log_options, once, place_options
from pipelines.cli.parameter_types import SECONDS, Folder
from pipelines.console.pages import FOLDER, INDEX, Site, page_name, render_overview, render_pipeline
from pipelines.console.site import Desk, host_name
from pipelines.console.view import LakeView, reading_failures
from pipelines.errors import ConfigError, InfrastructureError
from pipelines.runtime.atomic_files import write_files
from pipelines.runtime.http_server import threading_server
from pipelines.spark.session import spark_session, stop_session
from pipelines.steps.console import CollectionLimits, Collector, ConfiguredPipeline, describe_all
from pipelines.steps.loading import Places

_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
# What is read needs no executors of a cluster.
_LOCAL: Final = "spark.master=local[*]"
_OLD_AFTER_S: Final = 300.0
_OLD_AFTER_TIMES: Final = 5
_NEWS_EVERY_S: Final = 1.0
# That there is no answer is told without news, too.
_VIEW_EVERY_S: Final = 10.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ConsoleOptions:
    """What the user said of the console.

    Attributes:
        host: The address to listen on.
        port: The port; 0 for any that is free.
        allowed: Further names by which it may be asked.
        every: Seconds from one collection to the next.
        time_limit: For how many seconds an answer about a pipeline is waited for.
        reports: The folder of reports.
        out: The folder to write pages to; None to serve them.
    """

    host: str
    port: int
    allowed: tuple[str, ...]
    every: float
    time_limit: float
    reports: Path
    out: Path | None


@click.command()
@place_options
@log_options
@once("--host", default="127.0.0.1", metavar="ADDRESS", help="The address to listen on.")
@once("--port", type=click.IntRange(0, 65_535), default=0, help="The port; 0 takes a free one.")
@click.option(
    "--allow-host",
    "allowed",
    multiple=True,
    metavar="NAME",
    help="Accept requests with this Host header, e.g. the name of a proxy. Repeatable.",
)
@once("--every", type=SECONDS, default=30.0, help="Seconds between collections.")
@once(
    "--time-limit",
    type=SECONDS,
    default=60.0,
    help="Seconds to wait for an answer about one pipeline.",
)
@once(
    "--reports",
    type=Folder(),
    default=Path("reports"),
    help="The folder of reports, to which days link.",
)
@once(
    "--out",
    type=Folder(),
    help="Write the pages to this folder, and end; without it they are served until Ctrl-C.",
)
def console(env: str, log_format: LogFormat, verbose: bool, **options: Any) -> None:
    """Serve a live page of all pipelines. Read only."""
    set_up_logging(log_format)
    places = Places(
        env=env,
        conf_dir=options.pop("conf_dir"),
        contracts_dir=options.pop("contracts_dir"),
        settings=(_LOCAL, *options.pop("settings")),
    )
    asked = ConsoleOptions(**options)

    def body(stop: StopRequest) -> dict[str, Any]:
        return _run(asked, describe_all(**places), stop, log_format, verbose=verbose)

    _end_with_summary({"job": "console", "env": env}, body, log_format)


def _end_with_summary(
    summary: dict[str, Any], body: Callable[[StopRequest], dict[str, Any]], log_format: LogFormat
) -> NoReturn:
    stop, began = StopRequest(), time.monotonic()
    summary["started_at"] = datetime.now(UTC).isoformat(timespec="seconds")
    outcome = outcome_of(summary["job"], lambda: body(stop), stop, log_format)
    summary |= outcome or {"status": "stopped", "exit_code": 0}
    stop_session()
    summary["duration_s"] = round(time.monotonic() - began, 3)
    print_summary({**summary, "pipeline": "--all"} if log_format == "text" else summary, log_format)
    sys.exit(summary["exit_code"])


def _run(
    options: ConsoleOptions,
    described: list[ConfiguredPipeline],
    stop: StopRequest,
    log_format: LogFormat,
    *,
    verbose: bool,
) -> dict[str, Any]:
    views: list[LakeView] = []
    server = _serve(options, views, log_format) if options.out is None else None
    config, _ = next(each.loaded for each in described if each.loaded)
    spark = spark_session(config, "console", verbose=verbose)
    # Spark has put a handler of its own in place.
    stop.listen()
    limits = CollectionLimits(max(_OLD_AFTER_TIMES * options.every, _OLD_AFTER_S), options.time_limit)
    collector = Collector(spark, described, options.reports, limits)
    if options.out is not None:
        collector.gather()
        while not collector.is_done():
            collector.wait_for_news(_NEWS_EVERY_S)
        return _export(collector.view(), options.out, options.reports)
    try:
        _collect_on(collector, options.every, views)
    finally:
        if server:
            server.shutdown()
            server.server_close()


def _collect_on(collector: Collector, every: float, views: list[LakeView]) -> NoReturn:
    """Collect again and again, until the process is told to stop."""
    while True:
        due = time.monotonic() + every
        collector.gather()
        while True:
            views[:] = [collector.view()]
            left = due - time.monotonic()
            if left <= 0:
                break
            time.sleep(min(left, _NEWS_EVERY_S))
            collector.wait_for_news(min(max(due - time.monotonic(), 0.0), _VIEW_EVERY_S))


def _serve(options: ConsoleOptions, views: list[LakeView], log_format: LogFormat) -> WSGIServer:
    host = options.host
    hosts = frozenset(map(host_name, (*_LOOPBACK, host, *options.allowed)))
    desk = Desk(lambda: views[0] if views else None, options.every, options.reports, hosts)
    try:
        server = threading_server(host, options.port, desk.answer)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"--host, --port: cannot bind to {host}:{options.port}: {error}; name another port, or"
            " leave it out"
        ) from None
    if host not in _LOOPBACK:
        _log.warning("%s: everyone who reaches this address sees the console; there is no password", host)
    Thread(target=server.serve_forever, name="console", daemon=True).start()
    address = f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}/"
    print(json.dumps({"address": address}) if log_format == "json" else f"console: {address}", flush=True)
    return server


def _export(view: LakeView, out: Path, reports: Path) -> dict[str, Any]:
    """Write the pages into a folder, each complete or not at all.

    Raises:
        JobFailed: No pipeline could be read, or a lake could not; the pages say so, too.
    """
    # Backslashes are for paths of another system.
    site = Site(None, is_live=False, reports=quote(Path(os.path.relpath(reports, out)).as_posix()))
    now = view.at
    pages = {page_name(each.name): render_pipeline(view, each, now, site) for each in view.pipelines}
    write_files(out / FOLDER, pages, "pages of the console")
    (index,) = write_files(out, {INDEX: render_overview(view, now, site)}, "page of the console")
    done = {
        "index": str(index),
        "counts": {"pipelines": len(view.pipelines)},
        "lines": [f"index    {index}"],
    }
    if failures := list(reading_failures(view)):
        words = "\n".join([f"{index}: the pages are written, and lack what could not be read:", *failures])
        raise JobFailed(InfrastructureError(words), done)
    return done
