"""Select rows of the quarantine, and record what became of them.

A replay or a discard changes `_status` and keeps the row; only `forget` and the retention of `maintain`
delete rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import and_
from typing import Final

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.delta.conflicts import retry_conflicts
from pipelines.delta.io import read
from pipelines.delta.record_tables import require_table
from pipelines.records.decode import COORDINATES, ERROR
from pipelines.records.decoder import ERROR_PARTS
from pipelines.spark.pipeline import Pipeline

# A record with the status `open` is unresolved.
STATUSES: Final = ("open", "replayed", "discarded")


@dataclass(frozen=True)
class Selection:
    """Which records of the quarantine to work on; what is left empty does not narrow it.

    Attributes:
        status: one of `STATUSES`, or None for any.
        reasons: reason codes.
        since: sent (by Kafka's timestamp) at this moment or later.
        until: sent before this moment.
        partitions: Kafka partitions.
        contract_versions: versions of the contract that refused them.
    """

    status: str | None = "open"
    reasons: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    partitions: tuple[int, ...] = ()
    contract_versions: tuple[str, ...] = ()

    def condition(self) -> Column:
        """Return whether a row of the quarantine is selected."""
        parts = [F.lit(True)]
        if self.status:
            parts.append(F.col("_status") == self.status)
        for column, values in (
            ("_reason", self.reasons),
            ("_partition", self.partitions),
            ("_contract_version", self.contract_versions),
        ):
            if values:
                parts.append(F.col(column).isin(*values))
        if self.since:
            parts.append(F.col("_kafka_timestamp") >= F.lit(self.since))
        if self.until:
            parts.append(F.col("_kafka_timestamp") < F.lit(self.until))
        return reduce(and_, parts)


def picked(pipeline: Pipeline, selection: Selection, at: int | None = None) -> DataFrame:
    """Return the selected rows, of the table as it is or of an earlier version.

    Raises:
        SourceError: there is no quarantine yet.
    """
    return read(pipeline.spark, require_table(pipeline, "quarantine"), at).where(selection.condition())


def tried(status: str) -> dict[str, str | Column]:
    """Return the changes of a row that was tried once more and has a status now, for `update_unresolved`."""
    return {
        "_status": F.lit(status),
        "_attempts": F.col("q._attempts") + 1,
        "_tried_at": F.current_timestamp(),
    }


def update_unresolved(pipeline: Pipeline, chosen: DataFrame, changes: Mapping[str, str | Column]) -> None:
    """Change columns of the unresolved rows whose coordinates are among `chosen`.

    Raises:
        InfrastructureError: others changed the same rows at each try.
    """
    update_rows(pipeline, chosen, "open", changes)


def mark_broken(pipeline: Pipeline, records: DataFrame, status: str = "open") -> None:
    """Give rows the reason for which the contract refuses their records now; they are unresolved then.

    Args:
        pipeline: The pipeline.
        records: the records, as `decode` gives them.
        status: the status of the rows that are changed.

    Raises:
        InfrastructureError: others changed the same rows at each try.
    """
    error = {f"_{part}": F.col(f"{ERROR}.{part}") for part in ERROR_PARTS}
    errors = records.select(*COORDINATES, *(value.alias(f"_new{name}") for name, value in error.items()))
    changes: dict[str, str | Column] = {name: F.col(f"o._new{name}") for name in error}
    changes["_contract_version"] = F.lit(pipeline.contract.version)
    update_rows(pipeline, errors, status, changes | tried("open"))


def update_rows(
    pipeline: Pipeline, chosen: DataFrame, status: str, changes: Mapping[str, str | Column]
) -> None:
    """Change columns of the rows with a status whose coordinates are among `chosen`.

    Raises:
        InfrastructureError: others changed the same rows at each try.
    """
    table = require_table(pipeline, "quarantine")
    same = [f"q.{name} = o.{name}" for name in COORDINATES]

    def update() -> None:
        (
            DeltaTable.forPath(pipeline.spark, table)
            .alias("q")
            .merge(chosen.alias("o"), " AND ".join([*same, f"q._status = '{status}'"]))
            .whenMatchedUpdate(set=dict(changes))
            .execute()
        )

    retry_conflicts(table, update)
