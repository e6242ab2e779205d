"""The record of runs: which steps a nightly run took, how long each was, and how it ended."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from typing import Any, Literal

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from pipelines.errors import OncelakeError
from pipelines.ledger.ops_tables import RUNS
from pipelines.spark.failures import first_line
from pipelines.spark.pipeline import Pipeline

_log = logging.getLogger(__name__)

Step = Literal["seal", "build", "audit", "certify"]


class RunRecorder:
    """Record the steps of one run, until `write` appends them to `ops/runs`.

    Attributes:
        days: The days that the run works on; more may be added after the first step.
        warnings: What people should know, e.g. what could not be written down.
    """

    def __init__(self, pipeline: Pipeline, run_id: str, days: list[date]) -> None:
        self.days = days
        self.warnings: list[str] = []
        self._pipeline = pipeline
        self._run_id = run_id
        self._rows: list[dict[str, Any]] = []

    @contextmanager
    def step(self, name: Step) -> Iterator[list[str]]:
        """Record the block as a step, with its outcome and duration.

        Yields:
            A list: the texts that the block appends are kept as the detail of the step.
        """
        began, detail = datetime.now(UTC), list[str]()
        status = "failed"
        try:
            yield detail
            status = "done"
        except OncelakeError as error:
            detail.append(first_line(str(error)))
            raise
        finally:
            self._rows.append(
                {
                    "run_id": self._run_id,
                    "step": name,
                    "status": status,
                    "first_day": self.days[0],
                    "last_day": self.days[-1],
                    "days": len(self.days),
                    "detail": "; ".join(detail),
                    "started_at": began,
                    "ended_at": datetime.now(UTC),
                }
            )

    def write(self) -> None:
        """Append the steps to `ops/runs`, as one commit.

        It comes when all is decided, or when the run has failed: if it cannot be done, `warnings` says so,
        and that changes nothing of how the run ends.
        """
        if not self._rows:
            return
        try:
            RUNS.append(self._pipeline, self._rows)
        except (PySparkException, Py4JError, OncelakeError) as error:
            table = RUNS.path(self._pipeline)
            warning = f"{table}: the steps of run {self._run_id} are not recorded: {first_line(str(error))}"
            _log.warning("%s", warning)
            self.warnings.append(warning)
