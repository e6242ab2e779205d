"""One row for each dedup key: bounded in a stream, exact in a batch."""

from datetime import timedelta
from functools import reduce
from operator import and_
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from pipelines.contract import DataContract
from pipelines.decode import BAD, COORDINATES, EVENT_DATE
from pipelines.watermark import with_watermark

KAFKA_ORDER: Final = ("_kafka_timestamp", *COORDINATES)

_APART: Final = "_apart"
OTHER_DAY: Final = "_other_day"


def with_key(rows: DataFrame, contract: DataContract) -> DataFrame:
    """The rows, with a column of its own for each part of the key that lies in an object.

    Args:
        rows: rows with the contract's columns.
        contract: names the key.

    Returns:
        The same rows and the columns of `contract.key_names`.
    """
    parts = zip(contract.key_names, contract.key, strict=True)
    return rows.withColumns({name: F.col(path) for name, path in parts if name not in rows.columns})


def without_key(rows: DataFrame, contract: DataContract) -> DataFrame:
    """What `with_key` added is taken away."""
    return rows.drop(*(name for name in contract.key_names if name not in contract.columns))


def first_within_watermark(routes: DataFrame, contract: DataContract, delay: timedelta) -> DataFrame:
    """The first copy of each key that the stream sees, for as long as the watermark keeps its state.

    Events whose event time is not after the watermark are dropped by Spark and counted in
    `numRowsDroppedByWatermark`; they stay in bronze, and the nightly rebuild puts them into their day. A key
    is remembered until the watermark is past its event time by the delay. A broken record has no event time,
    so it neither moves the watermark nor is late, and it is a copy of nothing but itself.

    Args:
        routes: a stream made by `decode.routed`.
        contract: names the key and the event time.
        delay: how far the watermark stays behind the clock that moves it, see `pipelines.watermark`.

    Returns:
        The same columns, fewer rows.
    """
    itself = F.concat_ws("/", *COORDINATES, "_ingested_at")
    apart = with_key(routes, contract).withColumn(_APART, F.when(F.col(BAD).isNotNull(), itself))
    watermarked = with_watermark(apart, contract, delay)
    first = watermarked.dropDuplicatesWithinWatermark([*contract.key_names, _APART])
    return without_key(first, contract).drop(_APART)


def winners(events: DataFrame, contract: DataContract, horizon: int) -> DataFrame:
    """The one copy of each key that the batch layer keeps, by the contract's policy.

    The choice depends on the records alone: neither on their order in `events` nor on parallelism. For a
    day it depends on the copies within the horizon, so a range of days gives what its days give alone.

    Args:
        events: a bounded frame of valid events with the columns of `KAFKA_ORDER` and `_event_date`.
        contract: names the key and the policy.
        horizon: over how many neighbouring days, each way, copies of a key are one event.

    Returns:
        The same columns, one row for each key and horizon.
    """
    order = F.struct(*preference(contract))
    best_first = order.asc() if takes_least(contract) else order.desc()
    in_order = Window.partitionBy(*contract.key_names, "_event_date").orderBy(best_first)
    ranked = with_key(events, contract).withColumn("_rank", F.row_number().over(in_order))
    first = ranked.where("_rank = 1").drop("_rank")
    if contract.event_time not in contract.key:
        best = F.min(order) if takes_least(contract) else F.max(order)
        chosen = best.over(neighbours(contract, horizon))
        first = first.withColumn("_best", chosen).where(F.col("_best").eqNullSafe(order)).drop("_best")
    return first.select(*events.columns)


def preference(contract: DataContract) -> list[str]:
    """The columns by which copies of a key are compared."""
    sequence = [contract.policy.sequence] if contract.policy.sequence else []
    return [*sequence, *KAFKA_ORDER]


def takes_least(contract: DataContract) -> bool:
    """Whether the copy wins that is the least by the columns of `preference`; else the greatest does."""
    return contract.policy.winner == "first"


def other_names(contract: DataContract) -> list[Column]:
    """Key and event day of a layer by the names that `same_event` compares with."""
    parts = zip(contract.key_names, contract.key, strict=True)
    day = F.col(EVENT_DATE).alias(OTHER_DAY)
    return [*(F.col(path).alias(f"_other_{name}") for name, path in parts), day]


def same_event(contract: DataContract, horizon: int) -> Column:
    """Whether two rows are one event: equal keys, and days within the horizon of each other.

    One of them has its key as `with_key` gives it, the other as `other_names` does.

    Args:
        contract: names the key.
        horizon: over how many neighbouring days, each way, copies of a key are one event.
    """
    same = (F.col(name) == F.col(f"_other_{name}") for name in contract.key_names)
    near = F.abs(F.datediff(EVENT_DATE, OTHER_DAY)) <= F.lit(horizon)
    return reduce(and_, [*same, near])


def neighbours(contract: DataContract, horizon: int) -> WindowSpec:
    """A window over rows, as `with_key` gives them, of a key and of days within the horizon."""
    by_day = Window.partitionBy(*contract.key_names).orderBy(F.unix_date("_event_date"))
    return by_day.rangeBetween(-horizon, horizon)
