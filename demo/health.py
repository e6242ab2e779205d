"""The end of a demo, as an operator would look at it: lag, doctor and the console, in one Spark session."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, Thread
from typing import Final

from pipelines.cli.doctor import summary_of as doctor_summary
from pipelines.cli.lag import summary_of as lag_summary
from pipelines.console.site import Desk
from pipelines.console.view import LakeView
from pipelines.runtime.http_server import threading_server
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.console import CollectionLimits, Collector, ConfiguredPipeline
from pipelines.steps.doctor import ChecksFailed, diagnose
from pipelines.steps.lag import lag

_HOST: Final = "127.0.0.1"
_EVERY_S: Final = 5.0
_LIMITS: Final = CollectionLimits(old_after_s=600.0, answer_s=60.0)


@dataclass(frozen=True)
class Health:
    """What the two commands say.

    Attributes:
        lag: The lines of `oncelake lag`.
        doctor: The lines of `oncelake doctor`.
    """

    lag: list[str]
    doctor: list[str]


class _Looked:
    """Collects for the console only when somebody looks, so that the demo pays nothing for it."""

    def __init__(self, collector: Collector) -> None:
        self._collector, self._lock, self._asked = collector, Lock(), -math.inf

    def view(self) -> LakeView:
        """Return what is known, and have it read again if that was long ago."""
        with self._lock:
            if time.monotonic() - self._asked > _EVERY_S and self._collector.is_done():
                self._collector.gather()
                self._asked = time.monotonic()
        return self._collector.view()


@contextmanager
def live_console(pipeline: Pipeline, reports: Path) -> Iterator[str]:
    """Serve the pages of `oncelake console` for the length of a block.

    Args:
        pipeline: What they show; the console reads by its session.
        reports: The folder of reports.

    Yields:
        The address.
    """
    described = ConfiguredPipeline(pipeline.name, (pipeline.config, pipeline.contract))
    collector = Collector(pipeline.spark, [described], reports, _LIMITS)
    desk = Desk(_Looked(collector).view, _EVERY_S, reports, frozenset({_HOST}))
    server = threading_server(_HOST, 0, desk.answer)
    Thread(target=server.serve_forever, name="console", daemon=True).start()
    try:
        yield f"http://{_HOST}:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        # The session ends next, and with it what is being read.
        while not collector.is_done():
            collector.wait_for_news(1.0)


def examine(pipeline: Pipeline) -> Health:
    """Ask what `oncelake lag` and `oncelake doctor --fail-on warning` would say."""
    told = lag_summary(lag(pipeline))
    try:
        checkup = diagnose(pipeline.config, lambda: pipeline, "warning")
    except ChecksFailed as unsound:
        checkup = unsound.checkup
    return Health(told["lines"], doctor_summary(checkup)["lines"])
