"""What a micro-batch of publishing is made of: new events of unsettled days, corrections of settled ones."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pipelines.config.commands import command
from pipelines.contracts.contract import DataContract
from pipelines.contracts.event_days import around
from pipelines.delta.event_tables import events_schema
from pipelines.delta.io import on_days, small_rows
from pipelines.delta.stream_position import Position, positions_after
from pipelines.delta.tables import conform, small_frame
from pipelines.delta.time_travel import read_kept
from pipelines.errors import SourceError
from pipelines.ledger.certifications import Verdict, history
from pipelines.ledger.forgotten import forgetting_commits
from pipelines.ledger.ops_tables import CERTIFICATIONS, rows_of
from pipelines.publishing.corrections import (
    CORRECTION,
    corrections,
    perhaps_published,
    replace_removed,
)
from pipelines.publishing.first_start import claim_first_start
from pipelines.publishing.publications import publications, unfinished
from pipelines.publishing.published_days import note_settled, record_settled, settled_before
from pipelines.publishing.settled import Settled
from pipelines.records.decode import COORDINATES, EVENT_DATE
from pipelines.spark.checkpoints import damaged_file_error
from pipelines.spark.pipeline import Pipeline

_IS_VERDICT: Final = "_is_verdict"
_SOURCES: Final = 2

_log = logging.getLogger(__name__)


def stream(pipeline: Pipeline) -> DataFrame:
    """Return the speed layer and the ledger of verdicts as one stream, for `BatchMaker`.

    Verdicts are in it since each begins a micro-batch; what they say is read from the ledger.
    """
    config = pipeline.config
    # Rows go when their day is past its retention, and when they are forgotten: `BatchMaker` looks for those.
    reader = pipeline.spark.readStream.format("delta").option("skipChangeCommits", True)
    verdicts = reader.load(CERTIFICATIONS.path(pipeline)).where(rows_of(pipeline))
    limit = config.publish.max_bytes_per_trigger if config.publish else None
    if limit:
        reader = reader.option("maxBytesPerTrigger", limit)
    events = reader.load(pipeline.table("speed"))
    return events.unionByName(verdicts.select(F.lit(True).alias(_IS_VERDICT)), allowMissingColumns=True)


def source_positions(pipeline: Pipeline, batch: int) -> tuple[Position | None, Position | None]:
    """Return how far a micro-batch of `stream` goes in the speed layer, and in the ledger of verdicts.

    Raises:
        SourceError: The file that says so is damaged.
    """
    checkpoint = pipeline.checkpoint("publish")
    positions = positions_after(pipeline, "publish", batch)
    if positions is None:
        raise RuntimeError(f"micro-batch {batch} has no offsets in its checkpoint")
    if len(positions) != _SOURCES:
        raise damaged_file_error(f"{checkpoint}/offsets/{batch}", f"{_SOURCES} sources")
    # In the order of the union that `stream` makes.
    events, verdicts = positions
    return events, verdicts


@dataclass(frozen=True)
class SettledThrough:
    """The days that are settled once all verdicts of a version of the ledger are.

    Attributes:
        verdicts: The version of the ledger; None if the stream has read none of it.
        days: The days.
    """

    verdicts: int | None
    days: Settled


@dataclass(frozen=True)
class _Settling:
    """What a micro-batch settles.

    Attributes:
        before: What was settled before it; for the first one, what was certified when the stream was first
            started.
        newer: What it settles; None if nothing.
        since: For the first one, the days that were certified or rebuilt since that start.
        is_waiting: Whether verdicts wait for a later one.
    """

    before: Settled
    newer: Settled | None = None
    since: Sequence[date] = ()
    is_waiting: bool = False

    @property
    def after(self) -> Settled:
        return self.before.and_then(self.newer)


@dataclass(frozen=True)
class OutgoingBatch:
    """What a micro-batch publishes.

    Attributes:
        rows: The contract's columns, `_event_date`, the coordinates and `_correction`, see `corrections`.
        may_correct: Whether it settles days, and so may hold corrections.
        settled_through: What is settled once it is published; None if verdicts wait, so the next one looks.
    """

    rows: DataFrame
    may_correct: bool
    settled_through: SettledThrough | None


@dataclass(frozen=True)
class BatchMaker:
    """Makes the rows of each micro-batch, the same ones whenever it is tried.

    A certified day is settled: what was published of it is compared with the certified rows, and from then
    on only rebuilds change it. That waits for a micro-batch at whose end the stream has read whole commits
    of the speed layer, so that a version of it says what was published. The first micro-batch need not wait:
    nothing was published before it, but for whole days.

    Attributes:
        pipeline: The pipeline.
        topic_id: The cluster's identifier of the topic.
    """

    pipeline: Pipeline
    topic_id: str

    def make(self, rows: DataFrame, query: str, batch: int, last: SettledThrough | None) -> OutgoingBatch:
        """Return what a micro-batch publishes.

        Args:
            rows: The micro-batch, of `stream`.
            query: The id of the query.
            batch: Its number.
            last: What is settled since the micro-batch before it was published; None if that is not known.

        Raises:
            SourceError: A version of the speed or the batch layer that is needed is gone.
        """
        events, verdicts = self._positions(batch)
        if last and last.verdicts == verdicts:
            # No verdict has come since all that had come were settled.
            settling = _Settling(last.days)
        else:
            settling = self._settle(query, batch, events, verdicts)
        outgoing = self._outgoing(rows, batch, events, settling)
        through = None if settling.is_waiting else SettledThrough(verdicts, settling.after)
        return OutgoingBatch(outgoing, settling.newer is not None, through)

    def _outgoing(
        self, rows: DataFrame, batch: int, events: Position | None, settling: _Settling
    ) -> DataFrame:
        newer, after = settling.newer, settling.after
        came = rows.where(F.col(_IS_VERDICT).isNull())
        outgoing = conform(
            came.where(~on_days(after.days)) if after.days else came,
            published_columns(self.pipeline.contract),
        )
        outgoing = outgoing.withColumn(CORRECTION, F.lit(None).cast("string"))
        gone = self._forgotten(batch, events)
        if gone is not None:
            outgoing = _without(outgoing, gone)
        if newer is not None:
            # Of days that were certified before the first micro-batch only whole ones were published.
            published, days = (
                (self._published(settling, came, events, gone), newer.days)
                if batch
                else self._published_whole(newer, settling)
            )
            # The first one may be some of what the speed layer has, of which the rest comes later.
            unsettled = partial(self._speed, events) if batch else partial(self._of_days, came)
            corrected = self._corrected(published, days, after, unsettled)
            if self.pipeline.horizon:
                # One that has come for an unsettled day may stand for one that a settled day has lost.
                outgoing = _without(outgoing, corrected)
            outgoing = outgoing.unionByName(corrected)
        return (
            outgoing if gone is None else self._and_taken_back(outgoing, _without(gone, came), after, events)
        )

    def _and_taken_back(
        self, outgoing: DataFrame, gone: DataFrame, after: Settled, events: Position | None
    ) -> DataFrame:
        """Return what is sent, and the corrections for forgotten rows."""
        taken_back = self._taken_back(gone, after, events)
        if not self.pipeline.horizon:
            return outgoing.unionByName(taken_back)
        # An event may be sent again for another day. In which order its records come nobody can tell.
        sent = outgoing.where(f"{CORRECTION} IS NULL OR {CORRECTION} <> 'removed'").drop(CORRECTION)
        replaced = replace_removed(
            taken_back, sent, sent.limit(0), self.pipeline.contract, self.pipeline.horizon
        )
        return _without(outgoing, replaced).unionByName(replaced)

    def _settle(self, query: str, batch: int, events: Position | None, verdicts: int | None) -> _Settling:
        before = settled_before(self.pipeline, query, batch)
        ledger = history(self.pipeline, verdicts) if verdicts is not None else []
        newer = before.since(ledger)
        if newer and batch and events and not events.is_whole:
            return _Settling(before, is_waiting=True)
        settling = _Settling(before, newer) if batch else self._begin(query, ledger, newer)
        if settling.newer:
            record_settled(self.pipeline, query, batch, settling.newer, self.topic_id)
            note_settled(self.pipeline, query, batch, settling.newer.version)
        return settling

    def _begin(self, query: str, ledger: Sequence[Verdict], newer: Settled | None) -> _Settling:
        begun = claim_first_start(self.pipeline, query)
        if newer is None:
            return _Settling(Settled())
        if begun is None:
            # An earlier release has started the stream, and took its first micro-batch for the start.
            begun = newer
        since = begun.since(ledger)
        left = tuple(day for day in newer.days if day in begun.days)
        return _Settling(begun, replace(newer, left=left), since.days if since else ())

    def _positions(self, batch: int) -> tuple[Position | None, int | None]:
        events, verdicts = source_positions(self.pipeline, batch)
        return events, verdicts.last if verdicts else None

    def _forgotten(self, batch: int, events: Position | None) -> DataFrame | None:
        """Return the rows that were forgotten in the speed layer since the micro-batch before.

        None if none were.
        """
        before = self._positions(batch - 1)[0] if batch else None
        if before is None or events is None:
            return None
        table, gone = self.pipeline.table("speed"), None
        for version, days in forgetting_commits(self.pipeline.spark, table, before.last, events.last).items():
            # Each file is asked for one by one, and all of the layer is years of them.
            was, now = (self._layer(table, at, days) for at in (version - 1, version))
            gone = _without(was, now) if gone is None else gone.unionByName(_without(was, now))
        return gone

    def _taken_back(self, gone: DataFrame, after: Settled, events: Position | None) -> DataFrame:
        """Return corrections for forgotten rows of unsettled days; rebuilds bring those of settled ones."""
        unsettled = gone.where(~on_days(after.days)) if after.days else gone
        days = sorted(row[EVENT_DATE] for row in small_rows(unsettled.select(EVENT_DATE).distinct()))
        # A copy may have come since, which is an event like any other.
        changes = corrections(unsettled, self._speed(events, days), self.pipeline.contract)
        return changes.where(f"{CORRECTION} = 'removed'")

    def _published(
        self, settling: _Settling, came: DataFrame, events: Position | None, gone: DataFrame | None
    ) -> DataFrame:
        """Return what was published of the days that a micro-batch settles."""
        before, days = settling.before, settling.newer.days if settling.newer else ()
        again = [day for day in days if day in before.days]
        unsettled_before = [day for day in days if day not in before.days]
        first = self._speed(events, unsettled_before)
        if gone is not None and unsettled_before:
            first = first.unionByName(gone.where(on_days(unsettled_before)))
        # What has just come of a day that is settled now was not published, and will not be.
        return self._batch(before.version, again).unionByName(_without(first, came))

    def _published_whole(self, settles: Settled, settling: _Settling) -> tuple[DataFrame, list[date]]:
        """Return what counts as published when the stream begins, and the days of which it sends changes.

        These are the days that were sent as a whole, at earlier versions, and those that were certified or
        rebuilt since the stream was first started. Of a day that a run has only begun to send any row may be
        on the topic.
        """
        begun, since = settling.before, settling.since
        by_day = publications(self.pipeline, self.topic_id, settles.version)
        left = unfinished(self.pipeline, self.topic_id, by_day, settles.version)
        published, whole = self._sent_as_whole({(day, each.version) for day, each in by_day.items()}, settles)
        perhaps, only_begun = self._sent_as_whole({(each.day, each.version) for each in left}, settles)
        # Days that nobody has sent count as published, as they were when the stream was first started.
        rebuilt = [day for day in since if day in begun.days and day not in whole]
        published = published.unionByName(self._batch(begun.version, rebuilt))
        if only_begun:
            as_they_are = [day for day in only_begun if day not in since and day not in whole]
            published = published.unionByName(self._batch(settles.version, as_they_are))
            certified = self._batch(settles.version, only_begun)
            perhaps = perhaps_published(perhaps, published, certified, self.pipeline.contract)
            published = published.unionByName(perhaps)
        return published, sorted({*whole, *only_begun, *since})

    def _sent_as_whole(
        self, sent: Iterable[tuple[date, int]], settles: Settled
    ) -> tuple[DataFrame, list[date]]:
        """Return the rows of settled days at the versions by which they were sent, and these days.

        Args:
            sent: Days, each with a version of the batch table.
            settles: The days that are settled.
        """
        by_version: dict[int, list[date]] = {}
        for day, version in sorted(sent):
            if day in settles.days:
                by_version.setdefault(version, []).append(day)
        published, whole = self._batch(settles.version, []), set[date]()
        table = self.pipeline.table("batch")
        for version, days in sorted(by_version.items()):
            rows = read_kept(self.pipeline.spark, table, version, days)
            if rows is None:
                # Waiting would not bring it back, and the days can be sent again.
                _log.warning(
                    "%s: version %d is gone, by which %s to %s were published as a whole: send these days"
                    " with %s; what they have lost since is not retracted",
                    *(table, version, days[0], days[-1], self._again(days)),
                )
                continue
            published = published.unionByName(conform(rows, published_columns(self.pipeline.contract)))
            whole.update(days)
        return published, sorted(whole)

    def _again(self, days: Sequence[date]) -> str:
        return command(self.pipeline.config, "publish", f"--from {days[0]} --to {days[-1]}", "--again")

    def _corrected(
        self,
        published: DataFrame,
        days: Sequence[date],
        after: Settled,
        unsettled_rows: Callable[[Sequence[date]], DataFrame],
    ) -> DataFrame:
        """Return what becomes of days that a micro-batch settles.

        Args:
            published: What was published of them.
            days: The days.
            after: What is settled then.
            unsettled_rows: Returns what the topic has then of days that are not settled.
        """
        contract = self.pipeline.contract
        certified = self._batch(after.version, days)
        changes = corrections(published, certified, contract)
        if not self.pipeline.horizon or not days:
            return changes
        near = [day for day in around(days, self.pipeline.horizon) if day not in days]
        settled = [day for day in near if day in after.days]
        unsettled = [day for day in near if day not in after.days]
        others = self._batch(after.version, settled).unionByName(unsettled_rows(unsettled))
        return replace_removed(changes, certified, others, contract, self.pipeline.horizon)

    def _batch(self, version: int, days: Sequence[date]) -> DataFrame:
        return self._layer(self.pipeline.table("batch"), version, days)

    def _speed(self, events: Position | None, days: Sequence[date]) -> DataFrame:
        return self._layer(self.pipeline.table("speed"), events.last if events else None, days)

    def _of_days(self, came: DataFrame, days: Sequence[date]) -> DataFrame:
        """Return the rows of a micro-batch that are of some days."""
        rows = came.where(on_days(days)) if days else came.limit(0)
        return conform(rows, published_columns(self.pipeline.contract))

    def _layer(self, table: str, version: int | None, days: Sequence[date] | None = None) -> DataFrame:
        """Return the rows of some days, or of all, at a version."""
        if version is None or (days is not None and not days):
            return small_frame(self.pipeline.spark, [], published_columns(self.pipeline.contract))
        rows = read_kept(self.pipeline.spark, table, version, days or ())
        if rows is None:
            which = f" of the days {days[0]} to {days[-1]}" if days else ""
            raise SourceError(
                f"{table}: version {version} is gone, so it is unknown what was published{which}."
                " Publish again from the beginning: docs/publishing.md, 'When versions are gone'"
            )
        return conform(rows, published_columns(self.pipeline.contract))


def _without(rows: DataFrame, others: DataFrame) -> DataFrame:
    """Return the rows that did not come from the same records as others did."""
    return rows.join(others.select(*COORDINATES), [*COORDINATES], "left_anti").select(*rows.columns)


def published_columns(contract: DataContract) -> StructType:
    """Return the columns of events that are published, and of those by which they are distinguished."""
    names = (*contract.columns, EVENT_DATE, *COORDINATES)
    return StructType([field for field in events_schema(contract) if field.name in names])
