"""Select rows of the quarantine, and record what became of them.

A replay, a discard or a reopening changes `_status` and keeps the row; only `forget` and the retention of
`maintain` delete rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import and_
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.delta.fenced_commits import rewrite_rows
from pipelines.delta.io import append, read
from pipelines.delta.record_tables import REPLAYED_BY, ensure_quarantine, first_try, require_table
from pipelines.delta.row_changes import update_from
from pipelines.delta.small_tables import read_small
from pipelines.delta.tables import exists
from pipelines.ledger.decoding import decode_all
from pipelines.ledger.forgotten import not_emptied
from pipelines.records.decode import COORDINATES, ERROR, VALID, invalid
from pipelines.records.decoder import ERROR_PARTS
from pipelines.spark.pipeline import Pipeline
from pipelines.sql import literal

# A record with the status `open` is unresolved.
STATUSES: Final = ("open", "replayed", "discarded")


@dataclass(frozen=True)
class Selection:
    """Which records of the quarantine to work on; what is left empty does not narrow it.

    Attributes:
        status: One of `STATUSES`, or None for any.
        reasons: Reason codes.
        since: Sent (by Kafka's timestamp) at this moment or later.
        until: Sent before this moment.
        partitions: Kafka partitions.
        contract_versions: Versions of the contract that refused them.
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
        SourceError: There is no quarantine yet.
    """
    return read_small(pipeline.spark, require_table(pipeline, "quarantine"), at).where(selection.condition())


def tried(status: str) -> dict[str, str | Column]:
    """Return the changes of a row that was tried once more and has a status now, for `update_unresolved`."""
    return {
        "_status": F.lit(status),
        "_attempts": F.col("t._attempts") + 1,
        "_tried_at": F.current_timestamp(),
    }


def update_unresolved(pipeline: Pipeline, chosen: DataFrame, changes: Mapping[str, str | Column]) -> None:
    """Change columns of the unresolved rows whose coordinates are among `chosen`.

    Raises:
        InfrastructureError: Others changed the same rows at each try.
    """
    update_rows(pipeline, chosen, changes, before="open")


def update_rows(
    pipeline: Pipeline, chosen: DataFrame, changes: Mapping[str, str | Column], *, before: str
) -> None:
    """Change columns of rows whose coordinates are among `chosen`.

    Args:
        pipeline: The pipeline.
        chosen: The coordinates.
        changes: What the columns become.
        before: The status that a row must have.

    Raises:
        InfrastructureError: Others changed the same rows at each try.
    """
    table = require_table(pipeline, "quarantine")
    change = update_from(chosen, COORDINATES, f"t._status = {literal(before)}", changes)
    rewrite_rows(pipeline.spark, table, change)


def broken_not_quarantined(pipeline: Pipeline, condition: str) -> DataFrame:
    """Return records of bronze that break the contract and are not in quarantine.

    An earlier contract accepted them when the stream read them; or the stream has not read them yet; or the
    quarantine has lost them.

    Args:
        pipeline: The pipeline.
        condition: The records of bronze that are looked at, in SQL.

    Returns:
        The records as `pipelines.records.decode.invalid` gives them.
    """
    spark = pipeline.spark
    records = not_emptied(read_small(spark, require_table(pipeline, "bronze")).where(condition))
    broken = invalid(decode_all(pipeline, records), pipeline.contract)
    if not exists(spark, table := pipeline.table("quarantine")):
        return broken
    # By Delta: a commit that appends what is not known has to conflict with one that does the same.
    known = read(spark, table).where(condition).select(*COORDINATES)
    return broken.join(known, [*COORDINATES], "left_anti")


def quarantine_broken(pipeline: Pipeline, condition: str) -> None:
    """Append what `broken_not_quarantined` returns to the quarantine, unresolved, as one commit."""
    ensure_quarantine(pipeline)
    append(first_try(broken_not_quarantined(pipeline, condition)), pipeline.table("quarantine"))


def mark_broken(pipeline: Pipeline, records: DataFrame) -> None:
    """Give unresolved rows the reason for which the contract refuses their records now.

    Args:
        pipeline: The pipeline.
        records: The records, as `decode` gives them.

    Raises:
        InfrastructureError: Others changed the same rows at each try.
    """
    update_unresolved(pipeline, _with_errors(records), _refused(pipeline))


def judge_replayed(pipeline: Pipeline, records: DataFrame, key: str) -> None:
    """Note of replayed rows, as one commit, that their records are valid, or make them unresolved.

    Rows that others have marked since are left as they are. Those that become unresolved keep
    `_replayed_by`: it tells them from records that readers never had.

    Args:
        pipeline: The pipeline.
        records: The records, as `decode` gives them, with the `_replayed_by` that their rows had.
        key: The decoding by which they were judged.

    Raises:
        InfrastructureError: Others changed the same rows at each try.
    """
    judged = _with_errors(records, REPLAYED_BY, VALID)
    same_mark = f"t._status = 'replayed' AND t.{REPLAYED_BY} <=> o.{REPLAYED_BY}"
    table, is_valid = require_table(pipeline, "quarantine"), F.col(f"o.{VALID}")
    changes: dict[str, str | Column] = {
        column: F.when(is_valid, F.col(f"t.{column}")).otherwise(_column(change))
        for column, change in _refused(pipeline).items()
    }
    changes[REPLAYED_BY] = F.when(is_valid, F.lit(key)).otherwise(F.col(f"t.{REPLAYED_BY}"))
    rewrite_rows(pipeline.spark, table, update_from(judged, COORDINATES, same_mark, changes))


def _with_errors(records: DataFrame, *columns: str) -> DataFrame:
    errors = (F.col(f"{ERROR}.{part}").alias(f"_new_{part}") for part in ERROR_PARTS)
    return records.select(*COORDINATES, *columns, *errors)


def _refused(pipeline: Pipeline) -> dict[str, str | Column]:
    """Return the changes of a row whose record the contract refuses, by what `_with_errors` gives."""
    changes: dict[str, str | Column] = {f"_{part}": F.col(f"o._new_{part}") for part in ERROR_PARTS}
    return changes | {"_contract_version": F.lit(pipeline.contract.version)} | tried("open")


def _column(change: str | Column) -> Column:
    return F.expr(change) if isinstance(change, str) else change
