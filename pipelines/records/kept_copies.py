"""The copies of each key that a rebuild keeps, found in one pass.

`pipelines.records.dedup.winners_on_known_days` says the same in Spark's own terms. The audit asks that, so
that a fault of either is seen.
"""

from collections.abc import Sequence
from datetime import date
from typing import Any, Final

from pyspark.sql import DataFrame

from pipelines.contracts.contract import DataContract
from pipelines.records.decode import EVENT_DATE
from pipelines.records.dedup import in_key_order, order_columns, winner_is_minimum

_ZERO: Final = date(1970, 1, 1).toordinal()


def kept_copies(
    events: DataFrame, contract: DataContract, horizon: int, known_days: Sequence[date]
) -> DataFrame:
    """Return the copies that the batch layer keeps, and those of which further days decide whether it does.

    Args:
        events: Valid events with their key, all copies of a key in one partition, see
            `pipelines.records.dedup.clustered`. With adaptive execution Spark shuffles them now.
        contract: Names the key and the policy.
        horizon: Over how many neighbouring days, each way, copies of a key are one event.
        known_days: The days of which `events` holds all records that there are.

    Returns:
        The same columns; the rows of each partition are sorted by key and day.
    """
    key, order, least_wins = contract.key_names, order_columns(contract), winner_is_minimum(contract)
    in_order = in_key_order(events, contract)
    known = [day.toordinal() - _ZERO for day in known_days]
    jvm: Any = events.sparkSession.sparkContext._jvm
    terms = jvm.oncelake.dedup.Terms([*key], EVENT_DATE, order, least_wins, horizon, known)
    return DataFrame(jvm.oncelake.dedup.KeptCopies.of(in_order._jdf, terms), events.sparkSession)
