"""The rows that a rebuild added to a day, removed or changed, with samples as far as they may be shown."""

from collections.abc import Iterator
from typing import Any, Final, get_args

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.audit.rebuild_diff import CHANGE, differing
from pipelines.contracts.contract import DataContract
from pipelines.delta.event_tables import events_schema
from pipelines.delta.io import small_rows
from pipelines.delta.tables import conform
from pipelines.delta.time_travel import read_kept
from pipelines.ledger.certifications import Verdict
from pipelines.records.decode import COORDINATES, EVENT_DATE
from pipelines.records.dedup import with_key_columns
from pipelines.records.fingerprints import fingerprint
from pipelines.records.redaction import leaves, text_of
from pipelines.report.model.history import (
    ChangedColumn,
    ChangedRow,
    RowDifference,
    SampledChanges,
    Withheld,
)
from pipelines.report.model.records import Coordinates, KeyPart
from pipelines.spark.pipeline import Pipeline
from pipelines.sql import name

_NTH: Final = "_nth"


def changes(pipeline: Pipeline, verdict: Verdict, rows: DataFrame) -> SampledChanges | Withheld | None:
    """Return the rows that the run changed, or why they are not shown; None if it is the day's first verdict.

    Args:
        pipeline: The pipeline.
        verdict: The verdict on the day, which names both versions.
        rows: The day's rows in the version that was certified.
    """
    previous = verdict.previous_version
    if previous is None:
        return None
    if verdict.cause == "forgotten":
        return "forgotten"
    before = read_kept(pipeline.spark, pipeline.table("batch"), previous, [verdict.day])
    if before is None:
        return "version_gone"
    columns = events_schema(pipeline.contract)
    return sampled_changes(
        conform(before, columns), conform(rows, columns), pipeline.contract, pipeline.config.audit.examples
    )


def sampled_changes(
    before: DataFrame, after: DataFrame, contract: DataContract, limit: int
) -> SampledChanges:
    """Compare two states of a day, key by key.

    Args:
        before: The earlier rows: the contract's columns and the coordinates, one row for each key.
        after: The later rows, in the same shape.
        contract: Names the key and says what may be shown.
        limit: How many samples of each sort to keep.
    """
    keys = contract.key_names
    differences = differing(before, after, contract).drop(EVENT_DATE).persist()
    try:
        counted = small_rows(differences.groupBy(CHANGE).count())
        counts = {row[CHANGE]: row["count"] for row in counted}
        in_order = f"row_number() OVER (PARTITION BY {CHANGE} ORDER BY {', '.join(map(name, keys))})"
        sampled = differences.selectExpr("*", f"{in_order} AS {_NTH}").where(f"{_NTH} <= {limit}")
        samples = tuple(_samples(before, after, sampled, contract)) if counts and limit else ()
    finally:
        differences.unpersist()
    added, removed, changed = (counts.get(change, 0) for change in get_args(RowDifference))
    return SampledChanges(added, removed, changed, samples)


def _samples(
    before: DataFrame, after: DataFrame, sampled: DataFrame, contract: DataContract
) -> Iterator[ChangedRow]:
    old, new = (_shown(rows, sampled, contract) for rows in (before, after))
    places = get_args(RowDifference)
    for change, nth in sorted(old.keys() | new.keys(), key=lambda at: (places.index(at[0]), at[1])):
        was, is_now = old.get((change, nth)), new.get((change, nth))
        row = is_now or was or {}
        key = zip(contract.key, row["key"], strict=True)
        yield ChangedRow(
            change=change,
            key=tuple(KeyPart(column=path, value=value) for path, value in key),
            before=_coordinates(was),
            after=_coordinates(is_now),
            columns=tuple(_columns(was, is_now, contract)),
        )


def _shown(
    rows: DataFrame, sampled: DataFrame, contract: DataContract
) -> dict[tuple[RowDifference, int], Any]:
    """Return what may be shown of the rows that a sample is made of, by sort and place."""
    parts = list(leaves(contract.schema))
    kinds = dict(parts)
    texts = ", ".join(text_of(contract, path, kind) for path, kind in parts)
    hashes = ", ".join(fingerprint(name(path), kind) for path, kind in parts)
    key = ", ".join(text_of(contract, path, kinds[path]) for path in contract.key)
    chosen = with_key_columns(rows, contract).join(F.broadcast(sampled), list(contract.key_names))
    shown = chosen.selectExpr(
        CHANGE,
        _NTH,
        f"array({key}) AS key",
        f"array({texts}) AS texts",
        f"array({hashes}) AS hashes",
        *COORDINATES,
    )
    return {(row[CHANGE], row[_NTH]): row for row in small_rows(shown)}


def _columns(
    was: dict[str, Any] | None, is_now: dict[str, Any] | None, contract: DataContract
) -> Iterator[ChangedColumn]:
    for n, (path, _) in enumerate(leaves(contract.schema)):
        before, after = (row["texts"][n] if row else None for row in (was, is_now))
        differs = was and is_now and was["hashes"][n] != is_now["hashes"][n]
        stands_alone = not (was and is_now) and path not in contract.key and (before or after) is not None
        if differs or stands_alone:
            yield ChangedColumn(column=path, personal=contract.treatment(path), before=before, after=after)


def _coordinates(row: dict[str, Any] | None) -> Coordinates | None:
    if row is None:
        return None
    return Coordinates(topic=row["_topic"], partition=row["_partition"], offset=row["_offset"])
