"""Replay: add records of the quarantine that keep the current contract to the lake, each once."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import date

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.delta.epochs import Stamp
from pipelines.delta.event_tables import ensure_speed
from pipelines.delta.fenced_commits import append_fenced, claim
from pipelines.delta.io import on_days, read, small_rows
from pipelines.delta.reader_position_check import require_not_read_ahead
from pipelines.delta.record_tables import REPLAYED_BY, ensure_quarantine, require_table
from pipelines.delta.small_tables import read_small
from pipelines.delta.stream_check import refuse_lost_speed
from pipelines.delta.tables import exists, version
from pipelines.kafka.missing_offsets import within_ranges
from pipelines.ledger.certifications import Certified, certified
from pipelines.ledger.decoding import decode_all, decoding_key
from pipelines.ledger.forgotten_places import not_forgotten
from pipelines.ledger.leases import Lease, lease
from pipelines.ledger.ops_tables import CERTIFICATIONS
from pipelines.ledger.quarantine import Selection, mark_broken, picked, tried, update_unresolved
from pipelines.ledger.retention_properties import first_rebuildable_day
from pipelines.records.decode import (
    COORDINATES,
    ENVELOPE,
    EVENT_DATE,
    ORIGIN,
    VALID,
    valid,
)
from pipelines.records.dedup import (
    right_side_columns,
    same_event,
    winners,
    with_key_columns,
    without_key_columns,
)
from pipelines.spark.pipeline import Pipeline
from pipelines.sql import literal
from pipelines.steps.rebuild import Rebuild, rebuild
from pipelines.steps.replay_run import (
    ReplayLake,
    ReplayResult,
    put_back,
    run_replay,
)
from pipelines.steps.serving_table import refresh_readers_or_warn

_log = logging.getLogger(__name__)


def replay_and_rebuild(
    pipeline: Pipeline, run_id: str, selection: Selection, *, dry_run: bool
) -> ReplayResult[DataFrame]:
    """Decode records again by today's contract and put those that pass where they belong.

    Events of days that are not certified enter the speed layer, unless their key is there. Events of
    certified days come by a rebuild of these days, which reads them from bronze; then the view is recreated,
    and their records are marked. What is still broken stays unresolved, with its new reason. A second replay
    adds nothing.

    Args:
        pipeline: The pipeline.
        run_id: The holder of the lease meanwhile; recorded with the verdicts.
        selection: Which of the unresolved records.
        dry_run: Count, and change nothing.

    Raises:
        InfrastructureError: Another run holds the pipeline's lease, or has taken it over.
        SourceError: There is no quarantine yet, or the speed layer is gone, or was restored.
    """
    lake = replay_lake(pipeline, run_id, selection, dry_run=dry_run)
    return ReplayResult(put_back(lake, None), Rebuild({}), []) if dry_run else run_replay(lake)


def replay_lake(
    pipeline: Pipeline, run_id: str, selection: Selection, *, dry_run: bool
) -> ReplayLake[DataFrame]:
    """Return the tables as a replay uses them; make those that it writes to, unless nothing is to change.

    Args:
        pipeline: The pipeline.
        run_id: The holder of the lease of the replay.
        selection: Which of the unresolved records.
        dry_run: Whether nothing is to change.

    Raises:
        SourceError: As `replay_and_rebuild`.
    """
    require_table(pipeline, "quarantine")
    if not dry_run:
        refuse_lost_speed(pipeline)
        require_not_read_ahead(pipeline, "speed")
        ensure_speed(pipeline)
        ensure_quarantine(pipeline)
    return _Lake(pipeline, run_id, selection)


def _near(chosen: DataFrame) -> str:
    """Return a condition on offsets that the records meet, by which files of a large table are skipped."""
    ends = F.min("_offset").alias("first"), F.max("_offset").alias("last")
    parts = (
        f"(_topic = {literal(row['_topic'])} AND"
        f" {within_ranges([(row['_partition'], range(row['first'], row['last'] + 1))])})"
        for row in small_rows(chosen.groupBy("_topic", "_partition").agg(*ends))
    )
    return " OR ".join(parts) or "false"


def _in_bronze(pipeline: Pipeline, chosen: DataFrame) -> DataFrame:
    """Leave out records that bronze has lost: no rebuild has them, so they must not count as replayed."""
    if not exists(pipeline.spark, bronze := pipeline.table("bronze")):
        return chosen
    held = read_small(pipeline.spark, bronze).where(_near(chosen)).select(*COORDINATES)
    lost = chosen.join(held, [*COORDINATES], "left_anti").count()
    if not lost:
        return chosen
    _log.warning(
        "%d records of the quarantine are not in %s, so no rebuild would have them: they stay unresolved. If"
        " Kafka still has them, run oncelake backfill, then replay again; otherwise discard them",
        *(lost, bronze),
    )
    return chosen.join(held, [*COORDINATES], "left_semi")


@dataclass(frozen=True)
class _Lake:
    """The tables of a lake, see `pipelines.steps.replay_run.ReplayLake`."""

    pipeline: Pipeline
    run_id: str
    selection: Selection
    _persisted: list[DataFrame] = field(default_factory=list)

    def hold(self) -> AbstractContextManager[Lease]:
        return lease(self.pipeline, self.run_id, "quarantine replay")

    def claim_speed(self, stamp: Stamp) -> None:
        claim(self.pipeline.spark, self.pipeline.table("speed"), stamp)

    def claim_ledger(self, stamp: Stamp) -> None:
        claim(self.pipeline.spark, CERTIFICATIONS.path(self.pipeline), stamp)

    @contextmanager
    def decoded(self) -> Iterator[DataFrame]:
        pipeline = self.pipeline
        # What was forgotten before this run had the lease is no longer there.
        at = version(pipeline.spark, pipeline.table("quarantine"))
        chosen = _in_bronze(pipeline, not_forgotten(pipeline, picked(pipeline, self.selection, at)))
        records = chosen.dropDuplicates(list(COORDINATES)).select(*ENVELOPE, *ORIGIN)
        try:
            yield self._persist(decode_all(pipeline, records, retries_passed_over=True))
        finally:
            while self._persisted:
                self._persisted.pop().unpersist()

    def certified(self) -> Certified | None:
        return certified(self.pipeline)

    def broken(self, records: DataFrame) -> DataFrame:
        return records.where(~F.col(VALID))

    def by_verdict(self, records: DataFrame, certified: Certified | None) -> tuple[DataFrame, DataFrame]:
        is_certified = F.col(EVENT_DATE).isin(*certified.days) if certified else F.lit(False)
        passed = valid(records, self.pipeline.contract)
        return passed.where(~is_certified), passed.where(is_certified)

    def unknown(self, events: DataFrame, certified: Certified | None) -> DataFrame:
        pipeline, contract = self.pipeline, self.pipeline.contract
        spark, horizon, speed = pipeline.spark, pipeline.horizon, pipeline.table("speed")
        unknown = with_key_columns(events, contract)
        # Not pinned: the stream may append before the join is planned.
        layers = [read(spark, speed)] if exists(spark, speed) else []
        if certified is not None:
            layers.append(read_small(spark, pipeline.table("batch"), certified.version))
        for layer in layers:
            present = layer.select(*right_side_columns(contract))
            unknown = unknown.join(present, same_event(contract, horizon), "left_anti")
        return self._persist(winners(without_key_columns(unknown, contract), contract, horizon))

    def count(self, records: DataFrame) -> int:
        return records.count()

    def days(self, events: DataFrame) -> list[date]:
        days = events.select(F.col(EVENT_DATE).alias("day")).distinct().orderBy("day")
        return [row["day"] for row in small_rows(days)]

    def first_rebuildable(self) -> date | None:
        return first_rebuildable_day(self.pipeline)

    def kept(self, events: DataFrame) -> DataFrame:
        return events.select(*COORDINATES, EVENT_DATE).localCheckpoint()

    def add(self, rows: DataFrame, stamp: Stamp) -> None:
        append_fenced(rows, self.pipeline.table("speed"), stamp)

    def mark_replayed(self, events: DataFrame, days: Sequence[date] | None = None) -> None:
        of_days = events if days is None else events.where(on_days(days))
        changes = {**tried("replayed"), REPLAYED_BY: F.lit(decoding_key(self.pipeline))}
        update_unresolved(self.pipeline, of_days.select(*COORDINATES), changes)

    def mark_broken(self, records: DataFrame) -> None:
        mark_broken(self.pipeline, records)

    def rebuild(self, days: Sequence[date]) -> Rebuild:
        return rebuild(self.pipeline, self.run_id, days)

    def refresh_readers(self) -> list[str]:
        return refresh_readers_or_warn(self.pipeline)

    def _persist(self, rows: DataFrame) -> DataFrame:
        persisted = rows.persist()
        self._persisted.append(persisted)
        return persisted
