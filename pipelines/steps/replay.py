"""Replay: add records of the quarantine that keep the current contract to the lake, each once."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.delta.event_tables import ensure_speed
from pipelines.delta.fenced_commits import append_fenced, claim
from pipelines.delta.io import read, small_rows
from pipelines.delta.reader_position_check import require_not_read_ahead
from pipelines.delta.record_tables import require_table
from pipelines.delta.stream_check import refuse_lost_speed
from pipelines.delta.tables import exists, version
from pipelines.ledger.certifications import certified
from pipelines.ledger.decoding import decode_all
from pipelines.ledger.forgotten_places import places
from pipelines.ledger.leases import Lease, lease
from pipelines.ledger.quarantine import Selection, picked, tried, update_unresolved
from pipelines.ledger.retention_properties import first_rebuildable_day
from pipelines.records.decode import (
    COORDINATES,
    ENVELOPE,
    ERROR,
    EVENT_DATE,
    ORIGIN,
    VALID,
    valid,
)
from pipelines.records.decoder import ERROR_PARTS
from pipelines.records.dedup import (
    right_side_columns,
    same_event,
    winners,
    with_key_columns,
    without_key_columns,
)
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.rebuild import Rebuild, rebuild
from pipelines.steps.serving_table import refresh_readers_or_warn


@dataclass(frozen=True)
class ReplayCounts:
    """What became of records that were decoded again: `records` is the sum of the others.

    Attributes:
        records: Records that were decoded again.
        still_broken: Records that still break the contract.
        rows: Rows that are new in the speed layer.
        closed: Events of certified days.
        copies: Copies of events that readers have.
    """

    records: int
    still_broken: int
    rows: int
    closed: int
    copies: int


@dataclass(frozen=True)
class Replay:
    """What a replay has done so far, and what a rebuild has to complete.

    Attributes:
        counts: What became of the records.
        days: certified days that must be rebuilt to take records in.
        gone: certified days that cannot be, since bronze no longer holds all their records.
        of_certified_days: the coordinates of the records of certified days, and their `_event_date`.
    """

    counts: ReplayCounts
    days: tuple[date, ...]
    gone: tuple[date, ...]
    of_certified_days: DataFrame


def replay(
    pipeline: Pipeline,
    run_id: str,
    selection: Selection,
    *,
    dry_run: bool,
) -> Replay:
    """Decode records again by today's contract and put those that pass where they belong.

    Events of days that are not certified enter the speed layer, unless their key is there. Events of
    certified days are left to a rebuild of these days, which reads them from bronze; call `mark_replayed`
    afterwards. What is still broken stays unresolved, with its new reason. A second replay adds nothing.

    Args:
        pipeline: The pipeline.
        run_id: the holder of the lease meanwhile.
        selection: which of the unresolved records.
        dry_run: count, and change nothing.

    Raises:
        InfrastructureError: another run holds the pipeline's lease.
        SourceError: there is no quarantine yet, or the speed layer is gone, or was restored.
    """
    require_table(pipeline, "quarantine")
    if dry_run:
        return _put_back(pipeline, selection, None)
    refuse_lost_speed(pipeline)
    require_not_read_ahead(pipeline, "speed")
    ensure_speed(pipeline)
    with lease(pipeline, run_id) as run_lease:
        claim(pipeline.spark, pipeline.table("speed"), run_lease.stamp("claim"))
        return _put_back(pipeline, selection, run_lease)


def _put_back(
    pipeline: Pipeline,
    selection: Selection,
    run_lease: Lease | None,
) -> Replay:
    # What was forgotten before this run had the lease is no longer there.
    at = version(pipeline.spark, pipeline.table("quarantine"))
    chosen = picked(pipeline, selection, at).dropDuplicates(list(COORDINATES))
    forgotten = places(pipeline)
    if forgotten is not None:
        chosen = chosen.join(forgotten.select(*COORDINATES), [*COORDINATES], "left_anti")
    records = chosen.select(*ENVELOPE, *ORIGIN)
    judged = decode_all(pipeline, records, retries_passed_over=True).persist()
    state = certified(pipeline)
    certified_version = state.version if state else None
    is_certified = F.col(EVENT_DATE).isin(*state.days) if state else F.lit(False)
    passed = valid(judged, pipeline.contract)
    of_certified = passed.where(is_certified)
    new = _unknown(pipeline, passed.where(~is_certified), certified_version).persist()
    try:
        whole = first_rebuildable_day(pipeline) or date.min
        days = [row["day"] for row in small_rows(_days(of_certified))]
        total, still_broken = judged.count(), judged.where(~F.col(VALID)).count()
        rows, closed = new.count(), of_certified.count()
        counts = ReplayCounts(
            records=total,
            still_broken=still_broken,
            rows=rows,
            closed=closed,
            copies=total - still_broken - rows - closed,
        )
        if run_lease:
            if rows:
                append_fenced(new, pipeline.table("speed"), run_lease.stamp("replay"))
            update_unresolved(pipeline, passed.where(~is_certified).select(*COORDINATES), tried("replayed"))
            _mark_broken(pipeline, judged.where(~F.col(VALID)))
        return Replay(
            counts,
            tuple(day for day in days if day >= whole),
            tuple(day for day in days if day < whole),
            # The same rows, whatever becomes of the tables that they were read from.
            of_certified.select(*COORDINATES, EVENT_DATE).localCheckpoint(),
        )
    finally:
        new.unpersist()
        judged.unpersist()


@dataclass(frozen=True)
class ReplayResult:
    """What was replayed, and what became of the certified days that got events.

    Attributes:
        done: What was put where it belongs.
        rebuild: The rebuild of the days.
        warnings: What keeps the view from the current state.
    """

    done: Replay
    rebuild: Rebuild
    warnings: list[str]


def replay_and_rebuild(
    pipeline: Pipeline, run_id: str, selection: Selection, *, dry_run: bool
) -> ReplayResult:
    """Replay, then rebuild the certified days that get events, recreate the view, and mark the records.

    Args:
        pipeline: The pipeline.
        run_id: The holder of the lease meanwhile; recorded with the verdicts.
        selection: Which of the unresolved records.
        dry_run: Count, and change nothing.

    Raises:
        InfrastructureError: As `replay`.
        SourceError: As `replay`.
    """
    done = replay(pipeline, run_id, selection, dry_run=dry_run)
    if dry_run or not done.days:
        return ReplayResult(done, Rebuild({}), [])
    of_days = rebuild(pipeline, run_id, done.days)
    warnings = refresh_readers_or_warn(pipeline)
    mark_replayed(pipeline, done, of_days.certified(done.days))
    return ReplayResult(done, of_days, warnings)


def mark_replayed(pipeline: Pipeline, done: Replay, days: Sequence[date]) -> None:
    """Mark the records of these days, which were rebuilt and certified, as replayed."""
    if days:
        of_days = done.of_certified_days.where(F.col(EVENT_DATE).isin(*days)).select(*COORDINATES)
        update_unresolved(pipeline, of_days, tried("replayed"))


def _unknown(
    pipeline: Pipeline,
    events: DataFrame,
    certified_version: int | None,
) -> DataFrame:
    """Return the winners among events whose keys no reader has within the horizon."""
    spark, contract = pipeline.spark, pipeline.contract
    horizon = pipeline.horizon
    unknown = with_key_columns(events, contract)
    speed = pipeline.table("speed")
    layers = [read(spark, speed)] if exists(spark, speed) else []
    if certified_version is not None:
        layers.append(read(spark, pipeline.table("batch"), certified_version))
    for layer in layers:
        present = layer.select(*right_side_columns(contract))
        unknown = unknown.join(present, same_event(contract, horizon), "left_anti")
    return winners(without_key_columns(unknown, contract), contract, horizon)


def _days(events: DataFrame) -> DataFrame:
    return events.select(F.col(EVENT_DATE).alias("day")).distinct().orderBy("day")


def _mark_broken(pipeline: Pipeline, broken: DataFrame) -> None:
    error = {f"_{part}": F.col(f"{ERROR}.{part}") for part in ERROR_PARTS}
    errors = broken.select(*COORDINATES, *(value.alias(f"_new{name}") for name, value in error.items()))
    changes: dict[str, str | Column] = {name: F.col(f"o._new{name}") for name in error}
    changes["_contract_version"] = F.lit(pipeline.contract.version)
    update_unresolved(pipeline, errors, changes | tried("open"))
