"""One run at a time: a lease in a Delta table, taken by an optimistic commit.

Delta is the one thing that every store Oncelake writes to can commit atomically, so the lease needs no
lock service. Who loses the commit, or finds a live lease, says so and leaves.
"""

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

import psutil
from delta.exceptions import DeltaConcurrentModificationException
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from pipelines.config import PipelineConfig
from pipelines.errors import InfrastructureError
from pipelines.ops.failures import first_line
from pipelines.sinks.delta import read, replace_rows
from pipelines.sinks.tables import ensure_table, shape, small_frame
from pipelines.sql_text import literal

LEASES: Final = (
    "pipeline string, holder string, host string, pid bigint, process_started double, since timestamp,"
    " until timestamp"
)

_log = logging.getLogger(__name__)


class Lease:
    """A pipeline's lease while it is held; it prolongs itself until it is given back."""

    def __init__(self, spark: SparkSession, config: PipelineConfig, run_id: str) -> None:
        self._spark, self._config, self._run_id = spark, config, run_id
        self._given_back = threading.Event()
        self._prolonging = threading.Thread(target=self._prolong, name="lease", daemon=True)
        self._write(config.batch.lease_duration)
        # Of two that found the lease free one after the other, the later has overwritten the earlier.
        self.require()
        self._prolonging.start()

    def require(self) -> None:
        """Makes sure that the lease is still this run's; to be called before anything that others rely on.

        Raises:
            InfrastructureError: another run has taken the lease over.
        """
        held = _held(self._spark, self._config)
        if held is None or held["holder"] != self._run_id:
            raise InfrastructureError(
                f"{self._config.name}: this run lost its lease to {held['holder'] if held else 'nobody'},"
                " so it certifies nothing; raise batch.lease_duration if the lake is out of reach for long"
            )

    def give_back(self) -> None:
        """Frees the lease, if it is still this run's."""
        self._given_back.set()
        self._prolonging.join()
        held = _held(self._spark, self._config)
        if held is not None and held["holder"] == self._run_id:
            self._write(timedelta())

    def _prolong(self) -> None:
        every = self._config.batch.lease_duration.total_seconds() / 3
        while not self._given_back.wait(every):
            try:
                self.require()
                self._write(self._config.batch.lease_duration)
            except Exception as error:  # noqa: BLE001 - whatever it is, the next try may do better
                _log.warning("the lease was not prolonged: %s", first_line(str(error)))

    def _write(self, duration: timedelta) -> None:
        now = datetime.now(UTC)
        process = psutil.Process()
        row = {
            "pipeline": self._config.name,
            "holder": self._run_id,
            "host": socket.gethostname(),
            "pid": process.pid,
            "process_started": started(process),
            "since": now,
            "until": now + duration,
        }
        held = small_frame(self._spark, [row], shape(LEASES))
        of_pipeline = f"pipeline = {literal(self._config.name)}"
        replace_rows(held, self._config.ops_table("leases"), of_pipeline)


@contextmanager
def lease(spark: SparkSession, config: PipelineConfig, run_id: str) -> Iterator[Lease]:
    """Holds the pipeline's lease for as long as the block runs.

    A run that died frees its lease when `batch.lease_duration` is over, or at once when the next run is
    on the same machine and sees that the process is gone.

    Raises:
        InfrastructureError: another run holds the lease. The message names it.
    """
    ensure_table(spark, config.ops_table("leases"), shape(LEASES), partitions=["pipeline"])
    held = _held(spark, config)
    if held is not None and _is_live(held):
        raise _refusal(config, held)
    try:
        taken = Lease(spark, config, run_id)
    except DeltaConcurrentModificationException:
        raise _refusal(config, _held(spark, config)) from None
    try:
        yield taken
    finally:
        taken.give_back()


def _held(spark: SparkSession, config: PipelineConfig) -> Row | None:
    return read(spark, config.ops_table("leases")).where(F.col("pipeline") == config.name).first()


def _is_live(held: Row) -> bool:
    if held["until"].astimezone(UTC) <= datetime.now(UTC):
        return False
    if held["host"] != socket.gethostname():
        return True
    try:
        return bool(abs(started(psutil.Process(held["pid"])) - held["process_started"]) < 1)
    except psutil.NoSuchProcess:
        return False


def started(process: psutil.Process) -> float:
    """Seconds from the machine's start to the process's: setting the clock changes nothing about it."""
    return float(process.create_time() - psutil.boot_time())


def _refusal(config: PipelineConfig, held: Row | None) -> InfrastructureError:
    who = "another run" if held is None else f"run {held['holder']} on {held['host']} (pid {held['pid']})"
    until = (
        ""
        if held is None
        else f" It holds the lease until {held['until'].astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC at most."
    )
    return InfrastructureError(
        f"{config.name}: {who} is rebuilding this pipeline now; this run has changed nothing.{until}"
        " Start again when it has ended"
    )
