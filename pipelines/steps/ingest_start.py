"""How ingest starts: whether bronze, checkpoint and topic match, and where a new checkpoint begins.

What is asked of lake and cluster goes through `IngestLake`: the simulation has a model of it.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo

from pipelines.config.model import PipelineConfig
from pipelines.config.risks import refusal
from pipelines.delta.checkpoint_fit import BEGIN
from pipelines.delta.stream_check import require_fit
from pipelines.errors import ConfigError
from pipelines.kafka.beginnings import Beginning, beginning_in
from pipelines.kafka.ingest_position import (
    Continuation,
    checkpoint_mismatch,
    continuation,
    first_start,
    first_start_at_latest,
    start_mismatch,
)
from pipelines.kafka.ingest_state import IngestState
from pipelines.kafka.known_gaps import is_known_gap
from pipelines.kafka.log_divergence import last_offsets, require_same_log
from pipelines.kafka.log_start import deleted_until
from pipelines.ledger.retention_properties import last_event_day
from pipelines.spark.checkpoints import QueryFiles

_log = logging.getLogger(__name__)


class IngestLake(IngestState, Protocol):
    """A lake into which records are ingested."""

    @property
    def zone(self) -> ZoneInfo:
        """The zone in which days end."""

    def make_bronze(self) -> None:
        """Make bronze, if there is none; refuse one that is older than its reader, or of another topic."""

    def now(self) -> datetime:
        """Return the time."""

    def first_sent(self, ranges: Mapping[int, range]) -> Mapping[int, float]:
        """Return when records were sent, see `pipelines.kafka.log_start.first_sent`."""

    def set_first_complete_day(self, day: date) -> None:
        """Let bronze say which day is its first complete one."""

    def note_tables(self, files: QueryFiles, beginning: Beginning) -> None:
        """Write beside the checkpoint which table it writes to, and where ingest first began."""


def prepare_start(lake: IngestLake, files: QueryFiles) -> Continuation | None:
    """Make all that has to be made sure before the query of ingest begins.

    Args:
        lake: The lake.
        files: What the checkpoint says, which matches bronze by what both have noted.

    Returns:
        Where a query begins that has planned nothing yet; None if the checkpoint says it.

    Raises:
        ConfigError: A first start would skip what the topic holds.
        SourceError: The topic is not the one that bronze was filled from, or has other records under its
            offsets, or bronze and the checkpoint do not match.
        InfrastructureError: The cluster or the lake does not answer; or the clock is behind.
    """
    is_begun = lake.has_begun(files)
    if not is_begun:
        _refuse_latest(lake, files)
    lake.make_bronze()
    require_fit(lake.config, "ingest", checkpoint_mismatch(lake, files))
    last = last_offsets(lake)
    if not is_begun and BEGIN not in files.note and last:
        require_fit(lake.config, "ingest", _copied(lake.config.table("bronze"), files))
    require_same_log(lake, last)
    noted = beginning_in(files.note, files.path)
    start = _start(lake, files, noted, is_first=not is_begun)
    begun = start.begun if start and not is_begun else {}
    _remember_losses(lake, noted, begun)
    beginning = _kept_beginning(noted, start, is_at_latest=_is_at_latest(lake, files))
    if start and not is_begun:
        beginning = _note_incomplete_days(lake, start, beginning)
    lake.note_tables(files, beginning)
    return start


class OffsetRequests:
    """When Spark asked Kafka for the ends of its partitions, for each micro-batch of a query.

    It does so when it plans one: after the one before is done; or, to take what is there now and stop, when
    the query starts. The time that Spark notes itself is that of a moment after the answer.
    """

    def __init__(
        self, begun: int | None, once: bool, now: Callable[[], datetime], *, is_bounded: bool
    ) -> None:
        self._begun, self._once, self._is_bounded, self._now = begun, once, is_bounded, now
        self._at = now()

    def before(self, batch: int) -> int | None:
        """Return a moment before it asked, in milliseconds; None if the micro-batch may end before the ends.

        One that an earlier run has planned goes to the ends, or the bound, of that time.
        """
        if self._is_bounded or batch == self._begun:
            return None
        return int(self._at.timestamp() * 1000)

    def done(self) -> None:
        """Note that a micro-batch is done: what is asked from now on is asked for the next."""
        if not self._once:
            self._at = self._now()


def _refuse_latest(lake: IngestLake, files: QueryFiles) -> None:
    """Make sure that a first start skips no record, unless the configuration says so by name.

    Raises:
        ConfigError: It would.
    """
    config = lake.config
    if not _is_at_latest(lake, files) or "starting_offsets_latest" in config.accept_risks:
        return
    raise ConfigError(
        f"{config.kafka.setting('starting_offsets')}:"
        f" {refusal('starting_offsets_latest', 'latest on a first start', 'earliest')}"
    )


def _is_at_latest(lake: IngestLake, files: QueryFiles) -> bool:
    """Return whether a first start begins behind what the topic holds; after a reset it does not."""
    return lake.config.kafka.starting_offsets == "latest" and BEGIN not in files.note


def _start(lake: IngestLake, files: QueryFiles, noted: Beginning, *, is_first: bool) -> Continuation | None:
    """Return where a query begins that has planned nothing yet; None if the checkpoint says it.

    Args:
        lake: The lake.
        files: What the checkpoint says.
        noted: What is noted beside it of where ingest began.
        is_first: Whether it does not say where the query began.

    Raises:
        SourceError: It says so, and bronze goes on elsewhere, or bronze has offsets that Kafka has not.
    """
    if files.next_batch or files.in_flight is not None:
        return None
    if BEGIN not in files.note:
        if not is_first:
            return None
        is_at_latest = _is_at_latest(lake, files)
        return first_start_at_latest(lake, noted.began) if is_at_latest else first_start(lake)
    start, topic = continuation(lake), lake.config.kafka.source_topic
    if began := lake.began():
        require_fit(lake.config, "ingest", start_mismatch(lake.config.table("bronze"), began, start))
    for partition, at in start.starts.items():
        _log.info("%s-%d: from offset %s on", topic, partition, "earliest" if at is None else at)
    for partition, deleted in start.deleted.items():
        _log.warning(
            "%s-%d: Kafka has deleted offsets %d to %d before they were read; %s",
            *(topic, partition, deleted.start, deleted.stop - 1, fate_of_gaps(lake.config)),
        )
    return start


def fate_of_gaps(config: PipelineConfig) -> str:
    """Return what follows of records that Kafka has deleted before they came into bronze, for messages."""
    if config.audit.offset_gaps == "fail":
        return "audits will fail"
    return "days that may lack records cannot be certified"


def _kept_beginning(noted: Beginning, start: Continuation | None, *, is_at_latest: bool) -> Beginning:
    """Return where ingest first began, of the partitions of which the checkpoint will say something else.

    What bronze has nothing of begins with the checkpoint: bronze says which days lack what was before. If it
    begins at the latest offsets, these are kept: a start that dies may leave a checkpoint that has none.
    """
    if start is None:
        return noted
    if is_at_latest:
        return replace(noted, began={n: at for n, at in start.starts.items() if at is not None})
    if start.is_first:
        return Beginning()
    return replace(noted, began={n: at for n, at in noted.began.items() if n not in start.begun})


def _copied(bronze: str, files: QueryFiles) -> str:
    return (
        f"{bronze} has rows of a stream, but its checkpoint {files.path} does not exist or is new, and the"
        " table knows of no stream: it was copied without the checkpoint. The stream would write these rows"
        " again"
    )


def _remember_losses(lake: IngestLake, noted: Beginning, begun: Collection[int]) -> None:
    """Let bronze say again which days are incomplete, if it has forgotten that and has not got the records.

    A bronze from a better backup has them. Of a partition that ingest begins again, more may be lost by now:
    see `_note_incomplete_days`.
    """
    forgotten = noted.forgotten(lake.first_complete_day()) if noted.lost else {}
    forgotten = {n: loss for n, loss in forgotten.items() if n not in begun}
    if not forgotten:
        return
    held = lake.held()
    days = [loss.day for n, loss in forgotten.items() if n not in held or held[n].start > loss.offset]
    if days:
        _log.warning(
            "%s lacks records that Kafka had deleted before they were read, and no longer says so, as after a"
            " RESTORE: %s is its first complete day. See docs/runbook.md, 'After a loss'",
            *(lake.config.table("bronze"), max(days)),
        )
        lake.set_first_complete_day(max(days))


def _begun_behind_loss(lake: IngestLake, start: Continuation, passed: Mapping[int, int]) -> dict[int, range]:
    """Return the offsets that Kafka has of partitions whose lost records no audit would miss.

    Args:
        lake: The lake.
        start: Where ingest goes on.
        passed: Up to where the checkpoint before had read: what bronze lacks below were no records.
    """
    begun = {number: held for number, held in start.begun.items() if number in start.deleted}
    audit = lake.config.audit
    within = {
        number
        for number, offsets in start.deleted.items()
        if number not in start.begun
        and offsets.stop > passed.get(number, 0)
        and not is_known_gap(number, offsets, audit.known_gaps)
    }
    if not within or audit.offset_gaps == "fail":
        return begun
    bounds = lake.bounds()
    return begun | {number: bounds[number] for number in sorted(within)}


def _note_incomplete_days(lake: IngestLake, start: Continuation, beginning: Beginning) -> Beginning:
    """Keep days from being certified of which bronze will lack records that Kafka has deleted.

    So it is if bronze is begun, or begun again after a loss, and if it has no record of a partition with
    which ingest begins again. A gap between records fails audits; where these accept gaps, it keeps days from
    being certified as well. Who starts at the latest offset has accepted that by name.

    Returns:
        Where ingest first began, with what was lost before: bronze may forget which days these are.
    """
    begun = start.begun if start.is_first else _begun_behind_loss(lake, start, beginning.passed)
    sent = deleted_until(begun, lake.first_sent, lake.now())
    if sent is None:
        return beginning
    last = last_event_day(sent, lake.config.decode.max_future, lake.zone)
    first_complete, before = last + timedelta(days=1), lake.first_complete_day()
    lost = {n: start.deleted[n].start if n in start.deleted else 0 for n, held in begun.items() if held.start}
    beginning = beginning.having_lost(lost, first_complete, before)
    if before is not None and before >= first_complete:
        return beginning
    _log.warning(
        "Kafka has deleted records of %s that were sent until %s: %s is the first complete day of bronze."
        " Days before it, and days within batch.dedup_horizon_days after it, cannot be certified. See"
        " docs/runbook.md, 'After a loss'",
        *(start.topic, sent.strftime("%Y-%m-%d %H:%M:%S UTC"), first_complete),
    )
    lake.set_first_complete_day(first_complete)
    return beginning
