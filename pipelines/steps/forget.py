"""Forget: what the lake holds of a dedup key is emptied or deleted, for good."""

from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date

from pyspark.sql import DataFrame

from pipelines.config.commands import command
from pipelines.config.streams import LAYERS
from pipelines.delta.conditions import days_condition
from pipelines.delta.fenced_commits import claim
from pipelines.delta.io import by_day_and_key, on_days, read, small_rows
from pipelines.delta.reader_position_check import require_not_read_ahead
from pipelines.delta.record_tables import require_table
from pipelines.delta.stream_check import reset_command
from pipelines.delta.stream_position import start_version, unread_rows
from pipelines.delta.tables import exists, version
from pipelines.delta.time_travel import read_kept
from pipelines.delta.upkeep import refuse_deletes
from pipelines.errors import SourceError
from pipelines.fault_points import Point, reach
from pipelines.ledger.certifications import Certified, certified
from pipelines.ledger.forgotten import delete_records, emptied_of, empty
from pipelines.ledger.forgotten_places import remember_places
from pipelines.ledger.kept_values import delete_values
from pipelines.ledger.leases import Lease, backfill_lease, lease
from pipelines.ledger.retention_properties import first_rebuildable_day
from pipelines.lineage.searches import Search, Searched
from pipelines.nightly.row_removal import cut_days
from pipelines.records.decode import ENVELOPE, EVENT_DATE, ORIGIN, RECORD_ID
from pipelines.spark.checkpoints import query_files
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.rebuild import Rebuild, rebuild
from pipelines.steps.serving_table import refresh_readers_or_warn


@dataclass(frozen=True)
class ForgottenCounts:
    """How much of a key was found, by layer.

    Attributes:
        bronze: Records that were emptied.
        quarantine: Rows that were deleted.
        speed: Rows that were deleted.
        batch: Rows that readers have of certified days.
    """

    bronze: int
    quarantine: int
    speed: int
    batch: int


@dataclass(frozen=True)
class Forgotten:
    """What was found of a key, and what a rebuild has to complete.

    Attributes:
        counts: How much was found, by layer.
        searched: The records of bronze among which it was looked for.
        days: Certified days that must be rebuilt.
        final: Certified days that cannot be rebuilt, since bronze no longer holds all their records;
            they have lost the rows of the key, and nothing else.
    """

    counts: ForgottenCounts
    searched: Searched
    days: tuple[date, ...]
    final: tuple[date, ...]


def forget(
    pipeline: Pipeline,
    run_id: str,
    search: Search,
    *,
    dry_run: bool,
) -> Forgotten:
    """Empty records in bronze, and delete their rows of quarantine and speed layer.

    Certified days are left to a rebuild, see `forget_and_rebuild`. Every layer is searched by what it
    holds itself, so a run that died is completed by another one.

    Args:
        pipeline: The pipeline.
        run_id: The holder of the lease meanwhile.
        search: What is to be forgotten.
        dry_run: Count, and change nothing.

    Raises:
        InfrastructureError: Another run holds the pipeline's lease, or a backfill is at work, or others
            rewrote the same files.
        SourceError: There is no bronze, `speed_stream` has not read all these records, or bronze or speed
            layer were restored, and their reader was not.
    """
    spark = pipeline.spark
    bronze = require_table(pipeline, "bronze")
    require_not_read_ahead(pipeline, *LAYERS)
    work = _Work(pipeline, search)
    with ExitStack() as held:
        run_lease = None
        if not dry_run:
            run_lease = held.enter_context(lease(pipeline, run_id))
            # A chunk of a backfill would come after bronze was searched.
            held.enter_context(backfill_lease(pipeline, run_id))
            # A run that died while it emptied records has left deletes allowed.
            refuse_deletes(spark, bronze)
        at = version(spark, bronze)
        total = read(spark, bronze, at).count()
        records = search.records(read(spark, bronze, at)).persist()
        try:
            return work.run(records, Searched(total, bronze, at), run_lease, run_id)
        finally:
            records.unpersist()


@dataclass(frozen=True)
class ForgetResult:
    """What was forgotten, and what became of the certified days that held it.

    Attributes:
        forgotten: What was found and removed.
        rebuild: The rebuild of the days that held it.
        warnings: What people should know of the rebuild, and what keeps the view from the current state.
    """

    forgotten: Forgotten
    rebuild: Rebuild
    warnings: list[str]


def forget_and_rebuild(pipeline: Pipeline, run_id: str, search: Search, *, dry_run: bool) -> ForgetResult:
    """Forget, then rebuild the certified days that held what is forgotten, and recreate the view.

    Args:
        pipeline: The pipeline.
        run_id: The holder of the lease meanwhile; recorded with the verdicts.
        search: What is to be forgotten.
        dry_run: Count, and change nothing.

    Raises:
        InfrastructureError: As `forget`.
        SourceError: As `forget`.
    """
    forgotten = forget(pipeline, run_id, search, dry_run=dry_run)
    if dry_run:
        return ForgetResult(forgotten, Rebuild({}), [])
    done = rebuild(pipeline, run_id, forgotten.days, "forgotten")
    # Also where nothing is found: a run before, which died after its verdicts, may have left them behind.
    return ForgetResult(forgotten, done, [*done.warnings, *refresh_readers_or_warn(pipeline)])


@dataclass(frozen=True)
class _Work:
    """One run of `forget`."""

    pipeline: Pipeline
    search: Search

    def run(self, records: DataFrame, searched: Searched, run_lease: Lease | None, run_id: str) -> Forgotten:
        """Forget what the search finds; count it only, if no lease is held.

        Args:
            records: What the search finds in bronze.
            searched: The records of bronze among which it looked.
            run_lease: The pipeline's lease; None in a dry run.
            run_id: The run.
        """
        pipeline = self.pipeline
        self._require_read(records)
        state = certified(pipeline)
        certified_rows = self._certified_days(state)
        came = {row["day"] for row in small_rows(records.select("day").distinct())} - {None}
        certified_days = {*(state.days if state else ())}
        to_rebuild = sorted((came | certified_rows.keys()) & certified_days)
        emptied = records.count()
        if run_lease:
            delete_values(pipeline, sorted(came | certified_rows.keys() | self._speed_days().keys()))
            reach(Point.VALUES_DELETED)
            run_lease.require()
            if emptied:
                # Before the records are emptied: from then on no run decides by any that is not.
                remember_places(pipeline, records, run_id)
                reach(Point.PLACES_REMEMBERED)
                empty(pipeline.spark, pipeline.table("bronze"), records.drop("day"), run_id)
                reach(Point.RECORDS_EMPTIED)
                # A stream that has begun meanwhile began with what bronze held before.
                self._require_read(records)
        counts = ForgottenCounts(
            bronze=emptied,
            quarantine=self._forget_quarantine(run_lease, run_id),
            speed=self._forget_speed(run_lease, run_id),
            batch=sum(certified_rows.values()),
        )
        whole = first_rebuildable_day(pipeline) or date.min
        final = {day: n for day, n in sorted(certified_rows.items()) if day < whole}
        if run_lease and state and final:
            remaining = self._remaining(state).where(on_days([*final]))
            cut_days(pipeline, by_day_and_key(remaining, self.pipeline.contract.key), final, run_lease)
        return Forgotten(counts, searched, tuple(day for day in to_rebuild if day >= whole), tuple(final))

    def _require_read(self, records: DataFrame) -> None:
        """Make sure that the speed stream reads none of these records from older files.

        Nor any that an earlier run has emptied, which may have died before it could check that.
        """
        pipeline = self.pipeline
        if query_files(pipeline.spark, pipeline.checkpoint("speed")).query is None:
            return
        unread = unread_rows(pipeline)
        emptied = emptied_of(unread).select(*RECORD_ID)
        began_with = start_version(pipeline)
        if began_with is not None:
            # What was empty when the stream began it reads so.
            then = read_kept(pipeline.spark, pipeline.table("bronze"), began_with)
            if then is not None:
                emptied = emptied.join(emptied_of(then).select(*RECORD_ID), [*RECORD_ID], "left_anti")
        of_these = records.join(unread.select(*RECORD_ID), [*RECORD_ID], "left_semi").select(*RECORD_ID)
        number = of_these.union(emptied).distinct().count()
        if number:
            raise SourceError(
                f"{pipeline.table('bronze')}: speed_stream has not read {number:,} records that are to be"
                " forgotten, and would bring them back from older files."
                f" {self._way_out()}, then run this command again"
            )

    def _way_out(self) -> str:
        if self.search.repeats:
            # It does not start with what was forgotten before.
            return f"Reset its checkpoint ({reset_command(self.pipeline.config, 'speed')})"
        return f"Let it read them ({command(self.pipeline.config, 'speed_stream', '--once')})"

    def _forget_quarantine(self, run_lease: Lease | None, run_id: str) -> int:
        spark = self.pipeline.spark
        table = self.pipeline.table("quarantine")
        if not exists(spark, table):
            return 0
        rows = read(spark, table, version(spark, table))
        matching = self.search.records(rows.select(*ENVELOPE, *ORIGIN)).select(*RECORD_ID)
        return self._delete(table, matching, run_lease, run_id)

    def _forget_speed(self, run_lease: Lease | None, run_id: str) -> int:
        spark = self.pipeline.spark
        table = self.pipeline.table("speed")
        if not exists(spark, table):
            return 0
        if run_lease:
            # A replay that stood still, and has lost its lease, must not bring them back.
            claim(spark, table, run_lease.stamp("claim"))
        matching = self.search.rows(read(spark, table, version(spark, table)))
        return self._delete(table, matching.select(*RECORD_ID), run_lease, run_id)

    def _delete(self, table: str, matching: DataFrame, run_lease: Lease | None, run_id: str) -> int:
        """Delete rows by their place, if a lease is held; return how many they are."""
        matching = matching.persist()
        try:
            number = matching.count()
            if run_lease and number:
                run_lease.require()
                delete_records(self.pipeline.spark, table, matching.distinct(), run_id)
                reach(Point.ROWS_DELETED)
            return number
        finally:
            matching.unpersist()

    def _speed_days(self) -> dict[date, int]:
        """Return the rows of the speed layer that are to go, by event day."""
        table = self.pipeline.table("speed")
        return self._by_day(read(self.pipeline.spark, table)) if exists(self.pipeline.spark, table) else {}

    def _certified_days(self, state: Certified | None) -> dict[date, int]:
        """Return the rows of certified days that are to go, by event day."""
        if state is None:
            return {}
        rows = read(self.pipeline.spark, self.pipeline.table("batch"), state.version)
        return self._by_day(rows.where(days_condition(state.days)))

    def _remaining(self, state: Certified) -> DataFrame:
        """Return the rows of the batch layer, as readers have them, that stay."""
        return self.search.others(read(self.pipeline.spark, self.pipeline.table("batch"), state.version))

    def _by_day(self, rows: DataFrame) -> dict[date, int]:
        """Return rows that are to go, by event day."""
        counts = self.search.rows(rows).groupBy(EVENT_DATE).count()
        return {row[EVENT_DATE]: row["count"] for row in small_rows(counts)}
