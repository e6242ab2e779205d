"""One row for each dedup key: bounded in a stream, exact in a batch."""

from collections.abc import Sequence
from datetime import date, timedelta
from functools import reduce
from operator import and_
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from pipelines.contracts.contract import DataContract
from pipelines.records.decode import BAD, COORDINATES, EVENT_DATE
from pipelines.records.watermark import with_watermark
from pipelines.sql import literal, name

KAFKA_ORDER: Final = ("_kafka_timestamp", *COORDINATES)

_RECORD_ID: Final = "_apart"
_SINGLE_DAY: Final = "_lone"
OTHER_DAY: Final = "_other_day"
UNDECIDED: Final = "_undecided"

_ROWS_OF_A_PARTITION: Final = 250_000
_MOST_PARTITIONS: Final = 10_000


def with_key_columns(rows: DataFrame, contract: DataContract) -> DataFrame:
    """Return the rows, with a column of its own for each part of the key that lies in an object.

    Args:
        rows: Rows with the contract's columns.
        contract: Names the key.

    Returns:
        The same rows and the columns of `contract.key_names`.
    """
    parts = zip(contract.key_names, contract.key, strict=True)
    return rows.withColumns({part: F.col(path) for part, path in parts if part not in rows.columns})


def without_key_columns(rows: DataFrame, contract: DataContract) -> DataFrame:
    """Return the rows without the columns that `with_key_columns` added."""
    return rows.drop(*(part for part in contract.key_names if part not in contract.columns))


def clustered(rows: DataFrame, contract: DataContract, records: int) -> DataFrame:
    """Return the rows with their key, all copies of a key in one partition.

    Whatever looks at copies of a key then needs no further shuffle. There are as many partitions as the rows
    need to be sorted in memory: for few rows, one.

    Args:
        rows: Rows with the contract's columns.
        contract: Names the key.
        records: How many rows there are, about.

    Returns:
        The same rows and the columns of `contract.key_names`.
    """
    partitions = min(max(-(-records // _ROWS_OF_A_PARTITION), 1), _MOST_PARTITIONS)
    return with_key_columns(rows, contract).repartition(partitions, *contract.key_names)


def first_within_watermark(routes: DataFrame, contract: DataContract, delay: timedelta) -> DataFrame:
    """Return the first copy of each key that the stream sees, for as long as the watermark keeps its state.

    Events whose event time is not after the watermark are dropped by Spark and counted in
    `numRowsDroppedByWatermark`; they stay in bronze, and the nightly rebuild puts them into their day. A key
    is remembered until the watermark is past its event time by the delay. A broken record has no event time,
    so it neither moves the watermark nor is late, and it is a copy of nothing but itself.

    Args:
        routes: A stream made by `decode.routed`.
        contract: Names the key and the event time.
        delay: How far the watermark stays behind the clock that moves it, see `pipelines.records.watermark`.

    Returns:
        The same columns, fewer rows.
    """
    itself = F.concat_ws("/", *COORDINATES, "_ingested_at")
    apart = with_key_columns(routes, contract).withColumn(_RECORD_ID, F.when(F.col(BAD).isNotNull(), itself))
    watermarked = with_watermark(apart, contract, delay)
    first = watermarked.dropDuplicatesWithinWatermark([*contract.key_names, _RECORD_ID])
    return without_key_columns(first, contract).drop(_RECORD_ID)


def winners(events: DataFrame, contract: DataContract, horizon: int) -> DataFrame:
    """Return the copies of each key that the batch layer keeps, by the contract's policy.

    Keep the best copy of a key, then the best of those beyond the horizon of all that are kept, and so on
    (greedy). So no two kept copies lie within the horizon of each other, and each copy has one that is kept
    within the horizon of itself. The choice depends on the records alone: neither on their order in `events`
    nor on parallelism.

    Args:
        events: A bounded frame of valid events with the columns of `KAFKA_ORDER` and `_event_date`.
        contract: Names the key and the policy.
        horizon: Over how many neighbouring days, each way, copies of a key are one event.

    Returns:
        The same columns, one row for each event.
    """
    return winners_on_known_days(events, contract, horizon, None).drop(UNDECIDED)


def winners_on_known_days(
    events: DataFrame, contract: DataContract, horizon: int, known_days: Sequence[date] | None
) -> DataFrame:
    """Return the winners, as far as some days decide on them.

    Whether a copy is kept depends on the better copies within its horizon, and on theirs. What is decided
    here is what all days together decide, so a range of days gives what its days give alone.

    Args:
        events: Valid events, as `winners` takes them.
        contract: Names the key and the policy.
        horizon: Over how many neighbouring days, each way, copies of a key are one event.
        known_days: The days of which `events` holds all records that there are; None if it holds all records.

    Returns:
        The columns of `events` and `_undecided boolean`, true for a copy that may be kept: that hangs on
        records of days that are not known.
    """
    order = F.struct(*order_columns(contract))
    best_first = order.asc() if winner_is_minimum(contract) else order.desc()
    in_order = Window.partitionBy(*contract.key_names, EVENT_DATE).orderBy(best_first)
    ranked = with_key_columns(events, contract).withColumn("_rank", F.row_number().over(in_order))
    first = ranked.where("_rank = 1").drop("_rank")
    if contract.event_time in contract.key:
        return first.select(*events.columns, F.lit(False).alias(UNDECIDED))
    edge = _on_the_edge(horizon, known_days)
    by_key = Window.partitionBy(*contract.key_names)
    by_day = by_key.orderBy(EVENT_DATE)
    copy = F.struct(order.alias("order"), F.unix_date(EVENT_DATE).alias("day"), edge.alias("edge"))
    # Most keys have copies on one day alone, for which nothing has to be collected.
    lone = F.lag(EVENT_DATE).over(by_day).isNull() & F.lead(EVENT_DATE).over(by_day).isNull()
    chosen = F.when(~F.col(_SINGLE_DAY), F.expr(kept_copies_sql("_copies", contract, horizon)))
    judged = (
        first.withColumn(_SINGLE_DAY, lone)
        .withColumn("_copies", F.collect_list(F.when(~F.col(_SINGLE_DAY), copy)).over(by_key))
        .withColumn("_chosen", chosen)
    )
    winner, undecided = (
        f"exists(_chosen.{part}, _c -> _c.day = unix_date({EVENT_DATE}))" for part in ("kept", "undecided")
    )
    is_undecided = F.when(F.col(_SINGLE_DAY), edge).otherwise(F.expr(undecided))
    return judged.where(f"{_SINGLE_DAY} OR {winner} OR {undecided}").select(
        *map(name, events.columns), is_undecided.alias(UNDECIDED)
    )


def kept_copies_sql(copies: str, contract: DataContract, horizon: int) -> str:
    """Return SQL for the copies of a key that are kept.

    `oncelake.dedup.Choice` has the same rule in Java, for the rebuild. Change both; `test_kept_copies.py`
    compares them.

    Args:
        copies: SQL for an array of structs that begin with what `order_columns` names, and have `day int` (as
            `unix_date` counts) and `edge boolean`: whether days within the horizon of it are not known.
        contract: Says which copy is the best.
        horizon: Over how many neighbouring days, each way, copies of a key are one event.

    Returns:
        SQL for a struct of two arrays of such structs, the best first: `kept`, and `undecided`: those
        that may be kept.
    """
    ordered = f"sort_array({copies}, {literal(winner_is_minimum(contract))})"
    near = "_k -> abs(_k.day - _c.day) <= " + str(horizon)
    nothing = f"filter({copies}, _c -> false)"
    step = (
        f"CASE WHEN exists(_s.kept, {near}) THEN _s"
        f" WHEN _c.edge OR exists(_s.undecided, {near})"
        f" THEN named_struct('kept', _s.kept, 'undecided', concat(_s.undecided, array(_c)))"
        f" ELSE named_struct('kept', concat(_s.kept, array(_c)), 'undecided', _s.undecided) END"
    )
    zero = f"named_struct('kept', {nothing}, 'undecided', {nothing})"
    return f"aggregate({ordered}, {zero}, (_s, _c) -> {step})"


def _on_the_edge(horizon: int, known_days: Sequence[date] | None) -> Column:
    if known_days is None:
        return F.lit(False)
    days = {day.toordinal() for day in known_days}
    around = range(-horizon, horizon + 1)
    within = [day for day in known_days if all(day.toordinal() + n in days for n in around)]
    return ~F.coalesce(F.col(EVENT_DATE).isin(within), F.lit(False))


def order_columns(contract: DataContract) -> list[str]:
    """Return the columns by which copies of a key are compared."""
    sequence = [contract.policy.sequence] if contract.policy.sequence else []
    return [*sequence, *KAFKA_ORDER]


def winner_is_minimum(contract: DataContract) -> bool:
    """Return whether the copy wins that is the least by the columns of `order_columns`.

    Else the greatest does.
    """
    # Each policy is named, so that a further one cannot win by another's rule.
    match contract.policy.winner:
        case "first":
            return True
        case "last" | "highest":
            return False


def right_side_columns(contract: DataContract) -> list[Column]:
    """Return the columns of a layer's key and event day, by the names that `same_event` compares with."""
    parts = zip(contract.key_names, contract.key, strict=True)
    day = F.col(EVENT_DATE).alias(OTHER_DAY)
    return [*(F.col(path).alias(f"_other_{part}") for part, path in parts), day]


def same_event(contract: DataContract, horizon: int) -> Column:
    """Return whether two rows are one event: equal keys, and days within the horizon of each other.

    One of them has its key as `with_key_columns` gives it, the other as `right_side_columns` does.

    Args:
        contract: Names the key.
        horizon: Over how many neighbouring days, each way, copies of a key are one event.
    """
    same = (F.col(part) == F.col(f"_other_{part}") for part in contract.key_names)
    near = F.abs(F.datediff(EVENT_DATE, OTHER_DAY)) <= F.lit(horizon)
    return reduce(and_, [*same, near])


def neighbours(contract: DataContract, horizon: int) -> WindowSpec:
    """Return a window over rows, as `with_key_columns` gives them, of a key and days within the horizon."""
    by_day = Window.partitionBy(*contract.key_names).orderBy(F.unix_date("_event_date"))
    return by_day.rangeBetween(-horizon, horizon)
