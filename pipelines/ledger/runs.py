"""The record of runs: which steps a nightly run took, how long each was, and how it ended."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from typing import Any, Literal

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipelines.config.model import PipelineConfig
from pipelines.delta.io import append
from pipelines.delta.tables import small_frame
from pipelines.errors import OncelakeError
from pipelines.ledger.catalog import RUNS
from pipelines.spark.failures import first_line

_log = logging.getLogger(__name__)

Step = Literal["seal", "build", "audit", "certify"]


class RunRecorder:
    """Record the steps of one run, until `write` appends them to `ops/runs`.

    Attributes:
        days: the days that the run works on; more may be added after the first step.
        warnings: what could not be written down, as text.
    """

    def __init__(self, config: PipelineConfig, run_id: str, days: list[date]) -> None:
        self.days = days
        self.warnings: list[str] = []
        self._config = config
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
                    "pipeline": self._config.name,
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

    def write(self, spark: SparkSession) -> None:
        """Append the steps to `ops/runs`, as one commit.

        It comes when all is decided, or when the run has failed: if it cannot be done, `warnings` says so,
        and that changes nothing of how the run ends.
        """
        table = self._config.ops_table("runs")
        if not self._rows:
            return
        try:
            RUNS.ensure(spark, table)
            append(small_frame(spark, self._rows, RUNS.schema), table)
        except (PySparkException, Py4JError, OncelakeError) as error:
            warning = f"{table}: the steps of run {self._run_id} are not recorded: {first_line(str(error))}"
            _log.warning("%s", warning)
            self.warnings.append(warning)
