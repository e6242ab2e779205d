"""One run at a time: a lease in a Delta table, taken by an optimistic commit.

Delta is the one thing that every store Oncelake writes to can commit atomically, so the lease needs no
lock service. Who loses the commit, or finds a live lease, says so and leaves.
"""

import os
import socket
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
from pipelines.sinks.delta import read
from pipelines.sinks.tables import ensure_table, shape, small_frame

_SHAPE: Final = (
    "pipeline string, holder string, host string, pid bigint, process_started double, since timestamp,"
    " until timestamp"
)


@contextmanager
def lease(spark: SparkSession, config: PipelineConfig, run_id: str) -> Iterator[None]:
    """Holds the pipeline's lease for as long as the block runs.

    A run that died frees its lease when `batch.lease_duration` is over, or at once when the next run is
    on the same machine and sees that the process is gone.

    Raises:
        InfrastructureError: another run holds the lease. The message names it.
    """
    table = config.ops_table("leases")
    ensure_table(spark, table, shape(_SHAPE), partitions=["pipeline"])
    held = read(spark, table).where(F.col("pipeline") == config.name).first()
    if held is not None and _is_live(held):
        raise _refusal(config, held)
    try:
        _write(spark, config, run_id, config.batch.lease_duration)
    except DeltaConcurrentModificationException:
        winner = read(spark, table).where(F.col("pipeline") == config.name).first()
        raise _refusal(config, winner) from None
    try:
        yield
    finally:
        _write(spark, config, run_id, timedelta())


def _is_live(held: Row) -> bool:
    if held["until"].astimezone(UTC) <= datetime.now(UTC):
        return False
    if held["host"] != socket.gethostname():
        return True
    try:
        return bool(psutil.Process(held["pid"]).create_time() == held["process_started"])
    except psutil.NoSuchProcess:
        return False


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


def _write(spark: SparkSession, config: PipelineConfig, run_id: str, duration: timedelta) -> None:
    now = datetime.now(UTC)
    process = psutil.Process(os.getpid())
    row = {
        "pipeline": config.name,
        "holder": run_id,
        "host": socket.gethostname(),
        "pid": process.pid,
        "process_started": process.create_time(),
        "since": now,
        "until": now + duration,
    }
    (
        small_frame(spark, [row], shape(_SHAPE))
        .write.format("delta")
        .mode("overwrite")
        .option("replaceWhere", f"pipeline = '{config.name}'")
        .save(config.ops_table("leases"))
    )
