"""What a rebuild changed of days that readers had before."""

from dataclasses import dataclass
from datetime import date

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.contract import DataContract
from pipelines.decode import COORDINATES, EVENT_DATE, payload_hash
from pipelines.dedup import with_key
from pipelines.sinks.delta import small_rows


@dataclass(frozen=True)
class Changes:
    """How two versions of a day differ, in keys: only in the new one, only in the old one, in both but other.

    Attributes:
        added: keys that only the new version has.
        removed: keys that only the old version has.
        changed: keys that both have, from another record or with other content.
    """

    added: int = 0
    removed: int = 0
    changed: int = 0


def changes(before: DataFrame, after: DataFrame, contract: DataContract) -> dict[date, Changes]:
    """Compares two versions of some days, key by key.

    Args:
        before: rows of the batch layer at one version, with all the contract's columns.
        after: the same days at another.
        contract: names the key.

    Returns:
        The days on which something differs.
    """
    old, new = (_marked(rows, contract, name) for rows, name in ((before, "_old"), (after, "_new")))
    both = old.join(new, [*contract.key_names, EVENT_DATE], "full_outer")
    counts = both.groupBy(EVENT_DATE).agg(
        F.count_if(F.col("_old").isNull()).alias("added"),
        F.count_if(F.col("_new").isNull()).alias("removed"),
        F.count_if(F.col("_old") != F.col("_new")).alias("changed"),
    )
    differ = counts.where("added + removed + changed > 0")
    return {row.pop(EVENT_DATE): Changes(**row) for row in small_rows(differ)}


def _marked(rows: DataFrame, contract: DataContract, name: str) -> DataFrame:
    content = F.struct(*COORDINATES, payload_hash(contract))
    return with_key(rows, contract).select(*contract.key_names, EVENT_DATE, content.alias(name))
