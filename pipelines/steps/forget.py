"""Forget: what the lake holds of a dedup key is emptied or deleted, for good."""

from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.config.commands import command
from pipelines.config.streams import LAYERS, Layer
from pipelines.delta.conditions import days_condition
from pipelines.delta.fenced_commits import claim
from pipelines.delta.io import by_day_and_key, on_days, small_rows
from pipelines.delta.reader_position_check import require_not_read_ahead
from pipelines.delta.record_tables import require_table
from pipelines.delta.small_tables import read_small
from pipelines.delta.stream_check import reset_command
from pipelines.delta.stream_position import start_version, unread_rows
from pipelines.delta.tables import exists, shape, small_frame, version
from pipelines.delta.time_travel import read_kept
from pipelines.delta.upkeep import refuse_deletes
from pipelines.errors import SourceError
from pipelines.fault_points import Point, reach
from pipelines.ledger.certifications import Certified, certified
from pipelines.ledger.forgotten import EVENT_TIME, delete_records, emptied_of, empty
from pipelines.ledger.forgotten_places import remember_places
from pipelines.ledger.kept_values import delete_values
from pipelines.ledger.leases import Lease, backfill_lease, lease
from pipelines.ledger.retention_properties import first_rebuildable_day
from pipelines.lineage.searches import Again, Search, Searched
from pipelines.nightly.row_removal import cut_days
from pipelines.records.decode import COORDINATES, ENVELOPE, EVENT_DATE, ORIGIN, RECORD_ID
from pipelines.spark.checkpoints import query_files
from pipelines.spark.pipeline import Pipeline
from pipelines.sql import name
from pipelines.steps.rebuild import Rebuild, rebuild
from pipelines.steps.serving_table import refresh_readers_or_warn

_SENT: Final = (*COORDINATES, "_kafka_timestamp")
_PLACE: Final = "_topic string, _partition int, _offset bigint, _kafka_timestamp timestamp"


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
    bronze = require_table(pipeline, "bronze")
    require_not_read_ahead(pipeline, *LAYERS)
    with ExitStack() as held:
        run_lease = None
        if not dry_run:
            run_lease = held.enter_context(lease(pipeline, run_id, "forget"))
            # A chunk of a backfill would come after bronze was searched.
            held.enter_context(backfill_lease(pipeline, run_id, "forget"))
            # A run that died while it emptied records has left deletes allowed.
            refuse_deletes(pipeline.spark, bronze)
        work = _Work(pipeline, search, certified(pipeline), run_lease, run_id)
        at = version(pipeline.spark, bronze)
        rows = read_small(pipeline.spark, bronze, at)
        with ExitStack() as kept:
            found, in_layers = (_persisted(each, kept) for each in (search.records(rows), work.in_layers()))
            records = _persisted(work.with_layers(found, in_layers, rows), kept)
            places = _persisted(work.places(records, in_layers, rows), kept)
            return work.run(records, places, Searched(rows.count(), bronze, at))


def _persisted(rows: DataFrame, until: ExitStack) -> DataFrame:
    rows.persist()
    until.callback(rows.unpersist)
    return rows


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
    """One run of `forget`.

    Attributes:
        pipeline: The pipeline.
        search: What is to be forgotten.
        state: What is certified; None if no day ever was.
        run_lease: The pipeline's lease; None in a dry run, which counts only.
        run_id: The run.
    """

    pipeline: Pipeline
    search: Search
    state: Certified | None
    run_lease: Lease | None
    run_id: str

    def with_layers(self, found: DataFrame, in_layers: DataFrame, bronze: DataFrame) -> DataFrame:
        """Return the records of bronze that are to go: those found, and those that made rows that are to go.

        Of a record that breaks the contract by now, only a layer that was made of it may still tell the key.
        What has the same coordinates and another time was sent to a topic that took the place of an earlier
        one, and is another record.

        Args:
            found: What the search finds in bronze.
            in_layers: What it finds in the other layers.
            bronze: The rows of bronze.
        """
        others = in_layers.join(found.select(*COORDINATES), [*COORDINATES], "left_anti")
        if others.isEmpty():
            return found
        there = bronze.join(others.select(*_SENT).distinct(), [*_SENT], "left_semi")
        return found.unionByName(Again(self.pipeline, others.select(*COORDINATES)).records(there))

    def places(self, records: DataFrame, in_layers: DataFrame, bronze: DataFrame) -> DataFrame:
        """Return coordinates and event time of the records that are to go, also of those bronze has lost.

        A place that bronze has not reached, or at which it has another record, is one of an earlier topic.

        Args:
            records: The records of bronze that are to go.
            in_layers: What the search finds in the other layers.
            bronze: The rows of bronze.
        """
        ends = bronze.groupBy("_topic", "_partition").agg(F.max("_offset").alias("_last"))
        there = bronze.select(*COORDINATES, F.col("_kafka_timestamp").alias("_there"))
        near = in_layers.join(ends, ["_topic", "_partition"]).where("_offset <= _last")
        lost = near.join(there, [*COORDINATES], "left").where("_there IS NULL OR _there = _kafka_timestamp")
        columns = (*COORDINATES, EVENT_TIME)
        return records.select(*columns).union(lost.select(*columns))

    def run(self, records: DataFrame, places: DataFrame, searched: Searched) -> Forgotten:
        """Forget what was found; count it only, if no lease is held.

        Args:
            records: The records of bronze that are to go.
            places: Coordinates and event time of all that is to go, of whatever layer.
            searched: The records of bronze among which they were looked for.
        """
        pipeline = self.pipeline
        self._require_read(records)
        certified_rows = self._by_day(self._certified_rows())
        came = {row["day"] for row in small_rows(records.select("day").distinct())} - {None}
        certified_days = {*(self.state.days if self.state else ())}
        to_rebuild = sorted((came | certified_rows.keys()) & certified_days)
        emptied = records.count()
        if self.run_lease:
            days = {*came, *certified_rows, *self._by_day(self._newest("speed")), *self.search.known_days()}
            if not places.isEmpty():
                # Before anything goes: from then on no run decides by a table that has it still, or again.
                remember_places(pipeline, places, self.run_id)
                reach(Point.PLACES_REMEMBERED)
            # Only now: an audit that is at work asks for these places once it has written what it found.
            delete_values(pipeline, sorted(days))
            reach(Point.VALUES_DELETED)
            self.run_lease.require()
            if emptied:
                empty(pipeline.spark, pipeline.table("bronze"), records.drop("day"), self.run_id)
                reach(Point.RECORDS_EMPTIED)
                # A stream that has begun meanwhile began with what bronze held before.
                self._require_read(records)
        counts = ForgottenCounts(
            bronze=emptied,
            quarantine=self._forget_quarantine(places),
            speed=self._forget_speed(),
            batch=sum(certified_rows.values()),
        )
        whole = first_rebuildable_day(pipeline) or date.min
        final = {day: n for day, n in sorted(certified_rows.items()) if day < whole}
        if self.run_lease and self.state and final:
            remaining = self._remaining(self.state).where(on_days([*final]))
            cut_days(pipeline, by_day_and_key(remaining, pipeline.contract.key), final, self.run_lease)
        return Forgotten(counts, searched, tuple(day for day in to_rebuild if day >= whole), tuple(final))

    def in_layers(self) -> DataFrame:
        """Return coordinates, time and event time of what is to go of the layers that are made of bronze.

        Retention may have removed the records themselves.
        """
        moment = F.expr(name(self.pipeline.contract.event_time)).alias(EVENT_TIME)
        layers = (self._newest("speed"), self._certified_rows())
        found = [self.search.rows(rows).select(*_SENT, moment) for rows in layers if rows is not None]
        quarantine = self._newest("quarantine")
        if quarantine is not None:
            of_quarantine = quarantine.select(*RECORD_ID, "_kafka_timestamp")
            records = self._quarantined(quarantine).join(of_quarantine, [*RECORD_ID])
            found.append(records.select(*_SENT, EVENT_TIME))
        nothing = small_frame(self.pipeline.spark, [], shape(f"{_PLACE}, {EVENT_TIME} timestamp"))
        return reduce(DataFrame.union, found, nothing)

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

    def _forget_quarantine(self, places: DataFrame) -> int:
        rows = self._newest("quarantine")
        if rows is None:
            return 0
        placed = rows.join(places.select(*COORDINATES).distinct(), [*COORDINATES], "left_semi")
        matching = placed.select(*RECORD_ID).union(self._quarantined(rows).select(*RECORD_ID))
        return self._delete(self.pipeline.table("quarantine"), matching.distinct())

    def _quarantined(self, quarantine: DataFrame) -> DataFrame:
        """Return the records of the quarantine that the search finds."""
        return self.search.records(quarantine.select(*ENVELOPE, *ORIGIN))

    def _forget_speed(self) -> int:
        spark, table = self.pipeline.spark, self.pipeline.table("speed")
        if self.run_lease and exists(spark, table):
            # A replay that stood still, and has lost its lease, must not bring them back.
            claim(spark, table, self.run_lease.stamp("claim"))
        rows = self._newest("speed")
        return 0 if rows is None else self._delete(table, self.search.rows(rows).select(*RECORD_ID))

    def _delete(self, table: str, matching: DataFrame) -> int:
        """Delete rows by their place, if a lease is held; return how many they are."""
        matching = matching.persist()
        try:
            number = matching.count()
            if self.run_lease and number:
                self.run_lease.require()
                delete_records(self.pipeline.spark, table, matching.distinct(), self.run_id)
                reach(Point.ROWS_DELETED)
            return number
        finally:
            matching.unpersist()

    def _newest(self, layer: Layer) -> DataFrame | None:
        """Return the rows of a layer as it is now; None if there is no table."""
        spark, table = self.pipeline.spark, self.pipeline.table(layer)
        return read_small(spark, table, version(spark, table)) if exists(spark, table) else None

    def _certified_rows(self) -> DataFrame | None:
        """Return the rows that readers have of certified days; None if no day is certified."""
        if self.state is None:
            return None
        rows = read_small(self.pipeline.spark, self.pipeline.table("batch"), self.state.version)
        return rows.where(days_condition(self.state.days))

    def _remaining(self, state: Certified) -> DataFrame:
        """Return the rows of the batch layer, as readers have them, that stay."""
        return self.search.others(
            read_small(self.pipeline.spark, self.pipeline.table("batch"), state.version)
        )

    def _by_day(self, rows: DataFrame | None) -> dict[date, int]:
        """Return how many rows of a layer are to go, by event day."""
        if rows is None:
            return {}
        counts = self.search.rows(rows).groupBy(EVENT_DATE).count()
        return {row[EVENT_DATE]: row["count"] for row in small_rows(counts)}
