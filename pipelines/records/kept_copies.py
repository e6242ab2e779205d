"""The copies of each key that a rebuild keeps, found in one pass by Java (`oncelake.dedup`).

`pipelines.records.dedup.winners_on_known_days` states the same rule in Spark's terms. Only the rebuild uses
this module. The audit (`pipelines.audit.recount`) chooses by other code, so that a fault of either is seen.
"""

from collections.abc import Sequence
from datetime import date
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.contracts.contract import DataContract
from pipelines.records.decode import EVENT_DATE
from pipelines.records.dedup import order_columns, winner_is_minimum

_ZERO: Final = date(1970, 1, 1).toordinal()


def kept_copies(
    events: DataFrame, contract: DataContract, horizon: int, known_days: Sequence[date]
) -> DataFrame:
    """Return the copies that the batch layer keeps, and the undecided ones, which it may keep.

    Args:
        events: Valid events with their key, all copies of a key in one partition, see
            `pipelines.records.dedup.clustered`. With adaptive execution, this call already runs the shuffle.
        contract: Names the key and the policy.
        horizon: Over how many neighbouring days, each way, copies of a key are one event.
        known_days: The days of which `events` holds all records that there are.

    Returns:
        The same columns; the rows of each partition are sorted by key and day.
    """
    key, order, least_wins = contract.key_names, order_columns(contract), winner_is_minimum(contract)
    in_order = _in_key_order(events, contract)
    known = [day.toordinal() - _ZERO for day in known_days]
    jvm: Any = events.sparkSession.sparkContext._jvm
    terms = jvm.oncelake.dedup.Terms([*key], EVENT_DATE, order, least_wins, horizon, known)
    return DataFrame(jvm.oncelake.dedup.KeptCopies.of(in_order._jdf, terms), events.sparkSession)


def _in_key_order(rows: DataFrame, contract: DataContract) -> DataFrame:
    """Sort the rows of each partition by key, day, and the best copy first, as `KeptCopies` requires."""
    order = map(F.col, order_columns(contract))
    best_first = (column.asc() if winner_is_minimum(contract) else column.desc() for column in order)
    return rows.sortWithinPartitions(*contract.key_names, EVENT_DATE, *best_first)
