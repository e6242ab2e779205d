"""What a rebuild changed of days that readers had before."""

from dataclasses import dataclass
from datetime import date
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.contracts.contract import DataContract
from pipelines.delta.io import small_rows
from pipelines.records.decode import COORDINATES, EVENT_DATE, payload_hash
from pipelines.records.dedup import OTHER_DAY, right_side_columns, same_event, with_key_columns
from pipelines.sql import name

CHANGE: Final = "_change"
_WHICH: Final = (
    "CASE WHEN _before IS NULL THEN 'added' WHEN _after IS NULL THEN 'removed'"
    " WHEN _before <> _after THEN 'changed' END"
)


@dataclass(frozen=True)
class Changes:
    """How many keys differ between two versions of a day.

    Attributes:
        added: Keys that only the new version has.
        removed: Keys that only the old version has.
        changed: Keys that both have, from another record or with other content.
    """

    added: int = 0
    removed: int = 0
    changed: int = 0


def changes_by_day(before: DataFrame, after: DataFrame, contract: DataContract) -> dict[date, Changes]:
    """Compare two versions of some days, key by key.

    Args:
        before: Rows of the batch layer at one version, with all the contract's columns.
        after: The same days at another.
        contract: Names the key.

    Returns:
        The days on which something differs.
    """
    counts = (
        differing(before, after, contract)
        .groupBy(EVENT_DATE)
        .agg(
            *(F.count_if(F.col(CHANGE) == change).alias(change) for change in ("added", "removed", "changed"))
        )
    )
    return {row.pop(EVENT_DATE): Changes(**row) for row in small_rows(counts)}


def differing(before: DataFrame, after: DataFrame, contract: DataContract) -> DataFrame:
    """Return the keys in which two versions of some days differ, with `_event_date` and how: `_change`.

    Args:
        before: Rows of the batch layer at one version, with all the contract's columns.
        after: The same days at another.
        contract: Names the key.
    """
    old, new = (_marked(rows, contract, side) for rows, side in ((before, "_before"), (after, "_after")))
    both = old.join(new, [*contract.key_names, EVENT_DATE], "full_outer")
    columns = map(name, [*contract.key_names, EVENT_DATE])
    return both.selectExpr(*columns, f"{_WHICH} AS {CHANGE}").where(f"{CHANGE} IS NOT NULL")


def moved_days(
    before: DataFrame, after: DataFrame, contract: DataContract, horizon: int
) -> set[tuple[date, date]]:
    """Return the pairs of days between which events move: the day in the old version, then in the new.

    Args:
        before: Rows of the batch layer at one version, with all the contract's columns.
        after: The same days at another.
        contract: Names the key.
        horizon: Over how many neighbouring days, each way, copies of a key are one event.
    """
    return _days_of_one_event(before, with_key_columns(after, contract), contract, horizon)


def days_with_added_rows(
    before: DataFrame, after: DataFrame, copies: DataFrame, contract: DataContract, horizon: int
) -> set[tuple[date, date]]:
    """Return the days to which events are added, each with the days that have further copies of these.

    If such a day gets its rows of before, the copies on the other days have no row.

    Args:
        before: Rows of the batch layer at one version, with all the contract's columns.
        after: The same days at another.
        copies: Valid records, with the key as `with_key_columns` gives it, and `_event_date`.
        contract: Names the key.
        horizon: Over how many neighbouring days, each way, copies of a key are one event.
    """
    key_and_day = [*contract.key_names, EVENT_DATE]
    old, new = (with_key_columns(rows, contract) for rows in (before, after))
    added = new.join(old.select(*key_and_day), key_and_day, "left_anti")
    return _days_of_one_event(added, copies, contract, horizon)


def _days_of_one_event(
    rows: DataFrame, others: DataFrame, contract: DataContract, horizon: int
) -> set[tuple[date, date]]:
    """Return the pairs of different days that have rows of one event: first the day of `rows`."""
    right = rows.select(*right_side_columns(contract))
    left = others.select(*contract.key_names, EVENT_DATE)
    both = left.join(right, same_event(contract, horizon)).where(F.col(EVENT_DATE) != F.col(OTHER_DAY))
    return {
        (row[OTHER_DAY], row[EVENT_DATE]) for row in small_rows(both.select(OTHER_DAY, EVENT_DATE).distinct())
    }


def _marked(rows: DataFrame, contract: DataContract, side: str) -> DataFrame:
    content = F.struct(*COORDINATES, payload_hash(contract))
    return with_key_columns(rows, contract).select(*contract.key_names, EVENT_DATE, content.alias(side))
