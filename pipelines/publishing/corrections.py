"""What has to be published so that readers who have one state of some days come to another."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.contracts.contract import DataContract
from pipelines.records.decode import COORDINATES, EVENT_DATE, payload_hash
from pipelines.records.dedup import right_side_columns, same_event, with_key_columns
from pipelines.sql import name

CORRECTION: Final = "_correction"
"""The column that says why an event is published: null for one that is new, else the kind of correction."""

_ROW, _HASH, _OTHER = "_row", "_hash", "_other"
_KIND: Final = (
    "CASE WHEN _was._row IS NULL THEN 'added' WHEN _is._row IS NULL THEN 'removed'"
    " WHEN _was._least <> _is._least OR _was._greatest <> _is._least THEN 'changed' END"
)


def corrections(published: DataFrame, certified: DataFrame, contract: DataContract) -> DataFrame:
    """Return the events of some days that were published otherwise than they are certified, or not at all.

    An event whose columns are the same is right, whichever of its copies was published.

    Args:
        published: Rows with the contract's columns, the coordinates and `_event_date`, as they were
            published; a key may be there more than once.
        certified: The rows that the same days have now, each key once.
        contract: Names the key.

    Returns:
        The contract's columns, `_event_date`, the coordinates, and `_correction`: `added`, `changed`, both
        with the certified row, or `removed`, with a row that was published.
    """
    keys = [*contract.key_names, EVENT_DATE]
    columns = [*contract.columns, *COORDINATES]
    was, now = (_states(rows, contract, columns) for rows in (published, certified))
    both = was.withColumnRenamed("_state", "_was").join(now.withColumnRenamed("_state", "_is"), keys, "full")
    changes = both.selectExpr(
        EVENT_DATE, f"coalesce(_is._row, _was._row) AS {_ROW}", f"{_KIND} AS {CORRECTION}"
    )
    return changes.where(f"{CORRECTION} IS NOT NULL").select(f"{_ROW}.*", EVENT_DATE, CORRECTION)


def perhaps_published(
    begun: DataFrame, published: DataFrame, certified: DataFrame, contract: DataContract
) -> DataFrame:
    """Return what `corrections` is to take for published of days of which a run may have sent any row.

    Args:
        begun: The rows that the run was to send.
        published: What was published of these days for sure.
        certified: The rows that the days have now.
        contract: Names the key.

    Returns:
        The rows of the run, without those of events that have to be added in any case.
    """
    keys = [*contract.key_names, EVENT_DATE]
    was, now = (with_key_columns(rows, contract).select(*keys) for rows in (published, certified))
    added = now.join(was, keys, "left_anti")
    return with_key_columns(begun, contract).join(added, keys, "left_anti").select(*begun.columns)


def replace_removed(
    changes: DataFrame, certified: DataFrame, others: DataFrame, contract: DataContract, horizon: int
) -> DataFrame:
    """Put, in place of events that were removed from a day, those that stand for them on another.

    Copies of an event may have different days. One that is no longer on this day may be on a
    neighbour: readers who keep one row for each key would lose it if it were retracted.

    Args:
        changes: As `corrections` gives them.
        certified: As `corrections` gets them.
        others: The rows of all days within the horizon, in the same shape, as they are now.
        contract: Names the key.
        horizon: Over how many neighbouring days, each way, copies of a key are one event.
    """
    stay = changes.where(f"{CORRECTION} <> 'removed'")
    gone = with_key_columns(changes.where(f"{CORRECTION} = 'removed'"), contract)
    columns = [*contract.columns, *COORDINATES]
    all_rows = others.unionByName(certified)
    row = F.struct(*(F.col(name(column)) for column in columns), EVENT_DATE).alias(_OTHER)
    standing = all_rows.select(*right_side_columns(contract), row)
    met = gone.join(standing, same_event(contract, horizon), "left")
    removed = met.where(f"{_OTHER} IS NULL").select(*changes.columns)
    replaced = met.where(f"{_OTHER} IS NOT NULL").select(f"{_OTHER}.*", F.lit("changed").alias(CORRECTION))
    # Two days may have lost it, and the day that has it now may have got it just now.
    replaced = replaced.dropDuplicates([*COORDINATES])
    stay = stay.join(replaced.select(*COORDINATES), [*COORDINATES], "left_anti").select(*changes.columns)
    return stay.unionByName(removed).unionByName(replaced)


def _states(rows: DataFrame, contract: DataContract, columns: list[str]) -> DataFrame:
    """Return a row for each key and day: the first copy, and the least and greatest hash of all copies."""
    row = F.struct(*(F.col(name(column)) for column in columns))
    keyed = with_key_columns(rows, contract).select(
        *contract.key_names, EVENT_DATE, row.alias(_ROW), payload_hash(contract).alias(_HASH)
    )
    first = F.min_by(_ROW, F.struct(*(f"{_ROW}.{part}" for part in COORDINATES))).alias(_ROW)
    least, greatest = F.min(_HASH).alias("_least"), F.max(_HASH).alias("_greatest")
    state = keyed.groupBy(*contract.key_names, EVENT_DATE).agg(first, least, greatest)
    return state.select(
        *contract.key_names, EVENT_DATE, F.struct(_ROW, "_least", "_greatest").alias("_state")
    )
