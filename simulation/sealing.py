"""Days are sealed while ingest goes on, over a Kafka topic to which anything may happen."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any, Final, cast
from zoneinfo import ZoneInfo

from pipelines.audit.integrity_checks import INTEGRITY_CHECKS
from pipelines.config.audit import KnownGap
from pipelines.config.loader import load_config
from pipelines.config.model import PipelineConfig
from pipelines.errors import ConfigError, SourceError
from pipelines.kafka.known_gaps import known_of
from pipelines.ledger.offset_ranges import PartitionOffsets
from pipelines.ledger.retention_properties import refuse_incomplete_days
from pipelines.nightly.seal_terms import end_of, wait_until_sealed
from simulation.delta import ModelLog, Version
from simulation.ingest import (
    ModelCheckpoint,
    ModelIngest,
    ModelQuery,
    Row,
    UndisturbedIngest,
    reset_note,
    rows_of,
)
from simulation.kernel import Actor, Kernel, Process, Schedule, Violation
from simulation.topic import ModelTopic, Sent

CONFIG: Final = load_config("flights", environ={})
ZONE: Final = ZoneInfo("America/New_York")
DAYS: Final = (date(2013, 1, 5), date(2013, 1, 6))
_BEGIN: Final = datetime(2013, 1, 6, tzinfo=UTC)
_STEP: Final = timedelta(minutes=20)
"""What a second of the kernel stands for, so that a day is as long as some dozens of steps."""
_INGESTS: Final = 7
_MOST_RECORDS: Final = 30
_CONTIGUOUS: Final = next(check for check in INTEGRITY_CHECKS if check.name == "offsets_contiguous")


@dataclass(frozen=True)
class ModelIndex:
    """What bronze has at a version, see `pipelines.ledger.bronze_index.BronzeIndex.offsets`."""

    version: int
    made: Version
    rows: Sequence[Row]
    is_stamped: bool

    def offsets(self) -> list[PartitionOffsets]:
        """Return the offsets of each partition."""
        records = dict[int, list[Sent]]()
        for row in self.rows:
            records.setdefault(row.record.partition, []).append(row.record)
        return [self._of(number, records[number]) for number in sorted(records)]

    def _of(self, number: int, records: Sequence[Sent]) -> PartitionOffsets:
        offsets, newest = [each.offset for each in records], max(each.at for each in records)
        return PartitionOffsets(
            CONFIG.kafka.topic,
            number,
            min(offsets),
            max(offsets),
            len(offsets),
            len({*offsets}),
            newest,
            newest if self.is_stamped else None,
        )


class ModelSeal:
    """A lake whose days are sealed, see `pipelines.nightly.seal_terms.SealLake`."""

    def __init__(self, world: "SealingWorld") -> None:
        self.world, self.config, self.zone = world, world.config, world.zone

    def now(self) -> datetime:
        """Return the time."""
        return self.world.time()

    def elapsed_s(self) -> float:
        """Return the seconds of the kernel."""
        return self.world.kernel.now

    def pause(self, seconds: float) -> None:
        """Wait."""
        self.world.kernel.sleep(max(12.0, seconds), "waits for ingest")

    def ingests(self) -> list[ModelIngest]:
        """Find the topic, and make sure that bronze was filled from it."""
        ingest = self.world.make_ingest(self.world)
        ingest.require_same_topic()
        return [ingest]

    def first_kept(self, source: PipelineConfig) -> Mapping[int, int] | None:
        """Return nothing, as retention never runs; None if bronze says that it lost records."""
        return {} if self.world.make_ingest(self.world).first_complete_day() is None else None

    def index(self) -> ModelIndex:
        """Return the index of bronze as it is now."""
        bronze = self.world.bronze
        made = self.world.kernel.effect("bronze: newest version", lambda: bronze.newest)
        version = made.commit.version
        return ModelIndex(version, made, rows_of(bronze, version), self.world.is_stamped)


def night(world: "SealingWorld", day: date) -> ModelIndex:
    """Seal a day, and audit the offsets of bronze: what a night does before and after it builds.

    Raises:
        SourceError: the day is not sealed, or failed.
        ConfigError: bronze has not all records of it.
    """
    lake = world.make_seal(world)
    marks = world.make_ingest(world)
    refuse_incomplete_days(lake.config, marks.first_complete_day(), [day])
    index = world.seal(lake, day)
    refuse_incomplete_days(lake.config, marks.first_complete_day(), [day])
    world.audit(lake.config, index, day)
    return index


def _held_within(rows: Sequence[Row], ranges: Sequence[tuple[int, range]]) -> dict[int, int]:
    """Return how many different offsets rows have within ranges, by partition."""
    offsets = {(row.record.partition, row.record.offset) for row in rows}
    return Counter(number for number, at in offsets if any(n == number and at in span for n, span in ranges))


def audit_offsets(config: PipelineConfig, index: ModelIndex, day: date) -> None:
    """Make the check of the audit that sees gaps between offsets.

    Raises:
        SourceError: it fails.
    """
    offsets = index.offsets()
    within = {each.partition: range(each.first, each.last + 1) for each in offsets}
    known = known_of(partial(_held_within, index.rows), config.audit.known_gaps, within)
    # What the check asks of `pipelines.audit.audited_days.AuditedDays`.
    audited = SimpleNamespace(
        offsets=[replace(each, known=known.get(each.partition, 0)) for each in offsets],
        pipeline=SimpleNamespace(config=config),
        span=SimpleNamespace(days=[day]),
    )
    found = _CONTIGUOUS.find(cast(Any, audited))[day]
    if found.status == "failed":
        raise SourceError(found.observed)


@dataclass
class SealingWorld:
    """A topic, ingest, bronze, and the nights that seal its days.

    Attributes:
        schedule: who goes on, and with which fault.
        setup: decides what is there when it begins.
        make_ingest: makes what is asked of ingest; a planted fault is one that answers wrongly.
        make_seal: makes what is sealed.
        make_query: makes a query of ingest.
        seal: seals a day.
        audit: audits the offsets of bronze.
        is_fenced: whether bronze knows the micro-batches that it has.
        certified: the nights that were done, with what they sealed.
    """

    schedule: Schedule
    setup: Random
    make_ingest: Callable[["SealingWorld"], ModelIngest] = ModelIngest
    make_seal: Callable[["SealingWorld"], ModelSeal] = ModelSeal
    make_query: Callable[["SealingWorld", Process, bool, ModelIngest], ModelQuery] = ModelQuery
    seal: Callable[[ModelSeal, date], ModelIndex] = wait_until_sealed
    audit: Callable[[PipelineConfig, ModelIndex, date], None] = audit_offsets
    is_fenced: bool = True
    certified: list[tuple[date, ModelIndex]] = field(default_factory=list)
    config: PipelineConfig = CONFIG
    zone: ZoneInfo = ZONE
    _checked: int = 0
    _newest: Version | None = None
    _is_whole: bool = True

    def __post_init__(self) -> None:
        self.kernel = Kernel(self.schedule, self.check)
        setup = self.setup
        self.topic = ModelTopic(CONFIG.kafka.topic, setup.randint(1, 2))
        self.bronze, self.checkpoint = ModelLog("bronze", is_fenced=self.is_fenced), ModelCheckpoint()
        self.is_stamped, self.has_gaps = setup.random() < 0.3, setup.random() < 0.3
        if self.has_gaps:
            audit = CONFIG.audit.model_copy(update={"offset_gaps": "warn"})
            self.config = CONFIG.model_copy(update={"audit": audit})
        self._backups = [(self.checkpoint.copy(), 0)]
        self._are_once = [setup.random() < 0.5 for _ in range(_INGESTS)]
        self._future = setup.random() < 0.5
        for number in range(len(self.topic.logs)):
            for _ in range(setup.randint(0, 2)):
                self._send(number)
        for day in DAYS:
            self.start_night(f"night-{day:%d}", day)
        self._start_ingest()
        self._start_producer()
        self._accidents()

    def time(self) -> datetime:
        """Return the time."""
        return _BEGIN + self.kernel.now * _STEP

    def backed_up(self) -> None:
        """Copy the checkpoint, with the version that bronze has."""
        self._backups.append((self.checkpoint.copy(), len(self.bronze.versions) - 1))

    def start_night(self, name: str, day: date, times: int = 3) -> Actor:
        """Start a nightly run, and again if it is refused."""
        process = Process(name, 0)

        def body() -> None:
            end = end_of(day, self.zone) + self.config.batch.seal_grace
            if (wait := (end - self.time()) / _STEP) > 0:
                self.kernel.sleep(wait + 1, "waits for the end of the day")
            for left in reversed(range(times)):
                try:
                    index = night(self, day)
                except (SourceError, ConfigError):
                    if not left:
                        raise
                    self.kernel.sleep(30, "is started again")
                else:
                    self.kernel.effect("certifies", partial(self._certify, day, index), is_write=True)
                    return

        return self.kernel.spawn(name, process, body)

    def _certify(self, day: date, index: ModelIndex) -> None:
        # A night builds from the version that it sealed.
        if self.bronze.versions[index.version : index.version + 1] != [index.made]:
            raise SourceError(f"bronze no longer has version {index.version}: it was put back from a copy")
        self.certified.append((day, index))

    def start_ingest(self, name: str, *, once: bool, batches: int = 4) -> Actor:
        """Start ingest."""
        process = Process(name, 0)

        def body() -> None:
            self.make_query(self, process, once, self.make_ingest(self)).run(batches)

        return self.kernel.spawn(name, process, body)

    def _start_producer(self) -> None:
        """Let records come around the end of the first day."""
        pauses = [self.setup.randint(1, 12) for _ in range(self.setup.randint(0, 8))]

        def body() -> None:
            for number, pause in enumerate(pauses):
                self.kernel.sleep(pause, "waits")
                self.kernel.effect("sends", partial(self._send, number % len(self.topic.logs)), is_write=True)

        self.kernel.spawn("producer", Process("producer", 0), body)

    def _start_ingest(self) -> None:
        number = sum(name.startswith("ingest") for name in self.kernel.actors)
        if number < _INGESTS:
            self.start_ingest(f"ingest-{number + 1}", once=self._are_once[number])

    @property
    def _is_ingesting(self) -> bool:
        return any(
            name.startswith("ingest") and not actor.has_ended for name, actor in self.kernel.actors.items()
        )

    def check(self) -> None:
        """Make sure that no day was certified that lacks a record, and that bronze has each record once.

        Raises:
            Violation: one was, or it has not.
        """
        for day, index in self.certified[self._checked :]:
            self._check_day(day, index)
        self._checked = len(self.certified)
        if self.bronze.newest is not self._newest:
            self._newest = self.bronze.newest
            held = Counter(row.record.number for row in rows_of(self.bronze))
            if twice := [number for number, times in held.items() if times > 1]:
                raise Violation("each record once", f"records {twice} are in bronze twice")

    def _check_day(self, day: date, index: ModelIndex) -> None:
        held = {row.record.number for row in index.rows}
        end = end_of(day, self.zone) + self.config.batch.seal_grace
        missing = [
            record
            for record in self.topic.sent
            if (record.day, record.topic_id) == (day, self.topic.topic_id)
            and record.at < end
            and record.number not in held
            and not self._is_reported(record)
        ]
        if missing:
            text = ", ".join(f"{each.partition}@{each.offset}" for each in missing)
            raise Violation("certified days have all records", f"{day} lacks {text}")

    def _is_reported(self, record: Sent) -> bool:
        """Return whether nobody can miss a record, or somebody knows that it is missed."""
        if record.number in self.topic.excused:
            return True
        gaps = self.config.audit.known_gaps
        return any(gap.partition == record.partition and record.offset in gap.offsets for gap in gaps)

    def finish(self) -> None:
        """Let all end, repair what is out of order as the messages say, and certify all days.

        Raises:
            Violation: a day is certified that lacks records, or one can never be certified.
        """
        self.kernel.come_to_rest()
        # Of an empty topic no day is sealed.
        self.topic.send(0, self.time(), self.time().date())
        for attempt in range(3):
            ingest = self.start_ingest(f"ingest-last-{attempt}", once=True, batches=10)
            self.kernel.run()
            if ingest.failure is None:
                break
            self.reset()
        for attempt in range(2):
            if attempt:
                self._accept_gaps()
            nights = [self.start_night(f"last-{day:%d}-{attempt}", day, times=1) for day in DAYS]
            self.kernel.run()
        failures = [
            each.failure for each in nights if each.failure and not isinstance(each.failure, ConfigError)
        ]
        if failures and self._is_whole:
            raise Violation("the next night is done", str(failures[0]))

    def _send(self, partition: int) -> None:
        if partition >= len(self.topic.logs) or len(self.topic.sent) >= _MOST_RECORDS:
            return
        now = self.time()
        local = now.astimezone(self.zone).date()
        # Within `decode.max_future`.
        is_early = self._future and len(self.topic.sent) % 4 == 3
        self.topic.send(partition, now, local + timedelta(days=1) if is_early else local)

    def reset(self) -> None:
        """Do what `checkpoint reset` does: it takes the lease of backfills, which bronze is claimed for."""
        if self._is_ingesting:
            return
        # It is refused if bronze has offsets that Kafka has not.
        with suppress(SourceError):
            note = reset_note(UndisturbedIngest(self))
            self.bronze.append_for("backfill")
            self.checkpoint = ModelCheckpoint(note=note)

    def _accept_gaps(self) -> None:
        """Do what the runbook says of offsets that are gone: list them as lost."""
        held = {(row.record.partition, row.record.offset) for row in rows_of(self.bronze)}
        gaps = list[KnownGap]()
        for number, log in enumerate(self.topic.logs):
            gaps += [
                KnownGap(partition=number, first=at, last=at, why="deleted")
                for at in range(log.start)
                if (number, at) not in held
            ]
        audit = self.config.audit.model_copy(update={"known_gaps": tuple(gaps)})
        self.config = self.config.model_copy(update={"audit": audit})

    def restore(self, *, as_a_copy: bool) -> None:
        """Put bronze back to what it was some micro-batches ago."""
        if self._is_ingesting or len(self._backups) < 2:
            return
        _, version = self._backups[-2]
        if as_a_copy:
            del self.bronze.versions[version + 1 :]
        else:
            self.bronze.restore_to(version)

    def _put_back_checkpoint(self) -> None:
        if not self._is_ingesting and len(self._backups) > 1:
            self.checkpoint = self._backups[-2][0].copy()

    def _lose(self, partition: int) -> None:
        # While ingest runs, nobody can know, see docs/semantics.md.
        if partition < len(self.topic.logs) and not self._is_ingesting:
            self.topic.lose(partition, 2)
            self._is_whole = False

    def _give_to_others(self, partition: int) -> None:
        """Let the newest offsets be lost, and given to other records at once."""
        if not self._is_ingesting:
            self._lose(partition)
            for _ in range(3):
                self._send(partition)

    def _recreate(self) -> None:
        self.topic.recreate(1)
        self._is_whole = False

    def _of_partition(self, act: Callable[[int], None], number: int) -> None:
        if number < len(self.topic.logs):
            act(number)

    def _accidents(self) -> None:
        topic, accidents = self.topic, self.kernel.accidents
        acts: dict[str, Callable[[int], None]] = {
            "a record comes to": self._send,
            "Kafka deletes the oldest offset of": lambda number: topic.delete(number, 1),
            "Kafka deletes all offsets of": lambda number: topic.delete(number, 100),
            "Kafka loses the newest offsets of": self._lose,
            "Kafka gives the newest offsets to others in": self._give_to_others,
        }
        if self.has_gaps:
            acts |= {"a transaction is aborted in": topic.abort, "Kafka compacts": topic.compact}
        for number in range(3):
            for name, act in acts.items():
                accidents[f"{name} partition {number}"] = partial(self._of_partition, act, number)
        accidents |= {
            "a partition is added": self.add_partition,
            "the topic is recreated": self._recreate,
            "ingest is started": self._start_if_idle,
            "a further ingest is started": self._start_ingest,
            "ingest is reset": self.reset,
            "ingest's checkpoint is put back": self._put_back_checkpoint,
            "bronze is put back by RESTORE": partial(self.restore, as_a_copy=False),
            "bronze is put back by a copy": partial(self.restore, as_a_copy=True),
            "offsets that are gone are accepted": self._accept_gaps,
            "a property of bronze is set": partial(self.bronze.set_property, "other", "value"),
            "bronze is optimized": self.bronze.optimize,
        }

    def add_partition(self) -> None:
        """Give the topic a further partition."""
        if len(self.topic.logs) < 3:
            self.topic.logs.append(type(self.topic.logs[0])())

    def _start_if_idle(self) -> None:
        if not self._is_ingesting:
            self._start_ingest()
