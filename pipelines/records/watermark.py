"""The watermark of the speed layer: what moves it, and how far it can have come.

An event is late if its event time is not after the watermark. What moves the watermark is not the event
time alone, which a producer may date ahead: it is `clock`, which never runs ahead of the time at which the
record was sent or read.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pipelines.contracts.contract import DataContract
from pipelines.durations import format_interval
from pipelines.records.decode import BAD
from pipelines.records.send_time import SENT_AT
from pipelines.sql import instant, name

ALWAYS: Final = datetime(1970, 1, 1, tzinfo=UTC)
NOT_YET: Final = datetime(9999, 1, 1, tzinfo=UTC)
HELD_BACK: Final = "_held_back"
"""Whether a record comes before one of an earlier ingestion, see `pipelines.delta.stream_position`."""

_CLOCK: Final = "_clock"
# `EventTimeWatermark.delayKey` of Spark: marks the column that operators compare with the watermark.
_DELAY: Final = "spark.watermarkDelayMs"


def clock(contract: DataContract) -> str:
    """Return SQL for the time to which a valid record moves the watermark clock, over columns of `decode`."""
    return f"least({name(contract.event_time)}, {SENT_AT})"


def with_watermark(routes: DataFrame, contract: DataContract, delay: timedelta) -> DataFrame:
    """Return the stream with a watermark that `clock` moves and that event times are compared with.

    Spark takes one column for both. Its plan needs them apart: the watermark is made from one column, which
    is then dropped, and another one is marked as that which operators have to look at.

    Args:
        routes: A stream made by `decode.routed`. Its broken records move no watermark, nor do those with
            `_held_back`, if it has that column.
        contract: Names the event time.
        delay: How far the watermark stays behind the clock.

    Returns:
        The same rows and columns, without `_held_back`.
    """
    moves = f"{BAD} IS NULL" + (f" AND NOT {HELD_BACK}" if HELD_BACK in routes.columns else "")
    clocked = routes.withColumn(_CLOCK, F.expr(f"CASE WHEN {moves} THEN {clock(contract)} END"))
    moved = clocked.withWatermark(_CLOCK, format_interval(delay)).drop(_CLOCK, HELD_BACK)
    return moved.withMetadata(contract.event_time, {_DELAY: delay // timedelta(milliseconds=1)})


def moved_by(since: datetime, ingested: str, newest: str, clocked: str) -> str:
    """Return SQL for what moved the watermark at an ingestion.

    Args:
        since: From which ingestion on the clock moves it; before, the event time did, however far ahead.
        ingested: SQL for the ingestion.
        newest: SQL for the event time.
        clocked: SQL for the clock.
    """
    return f"CASE WHEN {ingested} < {instant(since)} THEN {newest} ELSE {clocked} END"


def watermarks(newest: DataFrame, delay: timedelta) -> DataFrame:
    """Return the latest that the speed layer's watermark can have been when it got what an ingestion brought.

    Args:
        newest: `_ingested_at, _newest`: the newest of what `moved_by` gives, for each micro-batch of ingest.
        delay: How far the watermark stays behind it.

    Returns:
        `_ingested_at timestamp, _watermark timestamp`.
    """
    so_far = Window.orderBy("_ingested_at").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    behind = F.max("_newest").over(so_far) - F.expr(f"INTERVAL {format_interval(delay)}")
    return newest.select("_ingested_at", behind.alias("_watermark"))
