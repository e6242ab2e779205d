"""Planted faults of sealing, see `simulation.planted`."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import date
from functools import partial
from random import Random
from typing import Any, Final

from pipelines.kafka.beginnings import Beginning
from pipelines.kafka.bronze_offsets import Ingestion
from pipelines.kafka.ingest_state import RecordComparison
from pipelines.kafka.topic_offsets import BrokerOffsets
from pipelines.spark.checkpoints import QueryFiles
from pipelines.spark.ingest_plans import MicroBatchPlan
from pipelines.steps.ingest_start import OffsetRequests
from simulation.ingest import ModelIngest, ModelQuery
from simulation.kernel import Schedule
from simulation.planted import Planted
from simulation.runs import World
from simulation.sealing import ModelSeal, SealingWorld

_FAR: Final = 1_000_000


class _EndsByTheCheckpoint(ModelIngest):
    """Where Kafka ends is taken from ingest's checkpoint, and not from Kafka."""

    def readable(self) -> Mapping[int, BrokerOffsets]:
        plans = self.world.checkpoint.plans
        ends = plans[max(plans)].ends if plans else {}
        return {n: BrokerOffsets(each.earliest, ends.get(n, 0)) for n, each in super().readable().items()}


class _NobodyAsksForRecords(ModelIngest):
    """Above the last record of bronze there are markers of transactions, of course."""

    def records_within(
        self, ranges: Mapping[int, range], *, stop_at_first: bool = False
    ) -> Mapping[int, int]:
        return {}


class _LogNotCompared(ModelIngest):
    """Records under the same offsets are the same."""

    def compared(self, ranges: Mapping[int, range]) -> Mapping[int, RecordComparison]:
        return {}


class _FirstDayNotNoted(ModelIngest):
    """What Kafka had deleted before ingest began is noted nowhere."""

    def set_first_complete_day(self, day: date) -> None:
        pass

    def note_tables(self, files: QueryFiles, beginning: Beginning) -> None:
        super().note_tables(files, Beginning(beginning.began))


class _FirstDayReadOnce(ModelIngest):
    """The first complete day is read before the seal, and not after it."""

    _day: date | None
    _is_read = False

    def first_complete_day(self) -> date | None:
        if not self._is_read:
            self._day, self._is_read = super().first_complete_day(), True
        return self._day


class _TailsNotCompared(ModelIngest):
    """When ingest starts, bronze is not compared with what the checkpoint says was read."""

    def oldest(self) -> int | None:
        return None


class _BeginsBehindTheFirst(ModelIngest):
    """After a reset ingest goes on behind the first record of bronze."""

    def last_offsets(
        self, came: Ingestion | None = None, partitions: Collection[int] | None = None
    ) -> Mapping[int, int]:
        last = super().last_offsets(came, partitions)
        return {number: at - 1 for number, at in last.items() if at} if came is None else last


class _AskedWhenWritten(ModelQuery):
    """A commit says that Kafka was asked when it was written."""

    def requests(self) -> OffsetRequests:
        world = self.world

        class Requests(OffsetRequests):
            def before(self, batch: int) -> int | None:
                return int(world.time().timestamp() * 1000)

        return Requests(None, self.once, world.time, is_bounded=False)


class _PlanOfAnotherRun(ModelQuery):
    """A micro-batch that an earlier run has planned is told as one that was planned now."""

    def requests(self) -> OffsetRequests:
        return OffsetRequests(None, self.once, self.world.time, is_bounded=False)


class _GapsAreAccepted(ModelSeal):
    """Gaps are taken for those of a compacted topic."""

    def __init__(self, world: SealingWorld) -> None:
        super().__init__(world)
        audit = self.config.audit.model_copy(update={"offset_gaps": "warn"})
        self.config = self.config.model_copy(update={"audit": audit})

    def ingests(self) -> list[ModelIngest]:
        (ingest,) = super().ingests()
        ingest.config = self.config
        return [ingest]


class _BeginsAnywhere(ModelSeal):
    """Of a partition without records in bronze, Kafka has deleted what it has deleted."""

    def ingests(self) -> list[ModelIngest]:
        class Ingest(ModelIngest):
            def first_began(self) -> Mapping[int, int]:
                return {number: offsets.start for number, offsets in self.bounds().items()}

        ingest = Ingest(self.world)
        ingest.require_same_topic()
        return [ingest]


class _StartsAsIfGapsFailed(ModelIngest):
    """Whoever starts ingest leaves losses between records to the audit, also to one that accepts gaps."""

    def __init__(self, world: SealingWorld) -> None:
        super().__init__(world)
        audit = self.config.audit.model_copy(update={"offset_gaps": "fail"})
        self.config = self.config.model_copy(update={"audit": audit})


class _AsConfigured(ModelSeal):
    """The seal knows of ingest what is configured."""

    def ingests(self) -> list[ModelIngest]:
        (ingest,) = super().ingests()
        ingest.config = self.config
        return [ingest]


class _AllCountsAsRead(ModelSeal):
    """Whatever Kafka has deleted behind bronze's last record, ingest had come past it."""

    def ingests(self) -> list[ModelIngest]:
        class Ingest(ModelIngest):
            def plan(self, batch: int) -> MicroBatchPlan | None:
                found = super().plan(batch)
                return found and replace(found, ends=dict.fromkeys(found.ends, _FAR))

        ingest = Ingest(self.world)
        ingest.require_same_topic()
        return [ingest]


class _ResetsForget(ModelIngest):
    """After a reset ingest begins with what Kafka has, as if it had never been elsewhere."""

    def first_began(self) -> Mapping[int, int]:
        return {number: offsets.start for number, offsets in self.bounds().items()}


def _no_audit(*_: object) -> None:
    """Nobody looks for gaps between offsets."""


def _sealing(schedule: Schedule, setup: Random, **wrong: Any) -> World:
    return SealingWorld(schedule, setup, **wrong)


def _ingest(name: str, seed: int, make: type[ModelIngest]) -> Planted:
    return Planted(name, seed, partial(_sealing, make_ingest=make))


def _query(name: str, seed: int, make: type[ModelQuery]) -> Planted:
    return Planted(name, seed, partial(_sealing, make_query=make))


SEALING: Final = (
    _ingest("ends of partitions from the checkpoint", 1, _EndsByTheCheckpoint),
    _ingest("nobody asks for records", 1, _NobodyAsksForRecords),
    _ingest("other records under the same offsets", 312, _LogNotCompared),
    _ingest("the first complete day is not noted", 0, _FirstDayNotNoted),
    _ingest("the first complete day is read before the seal alone", 182, _FirstDayReadOnce),
    _ingest("bronze is not compared with what was read", 11, _TailsNotCompared),
    _ingest("a reset goes back by one record", 16, _BeginsBehindTheFirst),
    _query("asked is when it was written", 211, _AskedWhenWritten),
    _query("a plan of another run is taken for a new one", 2064, _PlanOfAnotherRun),
    Planted("gaps are accepted", 80, partial(_sealing, make_seal=_GapsAreAccepted)),
    Planted(
        "what was deleted before bronze's first record", 221, partial(_sealing, make_seal=_BeginsAnywhere)
    ),
    Planted(
        "losses between records are left to an audit that accepts gaps",
        565,
        partial(_sealing, make_ingest=_StartsAsIfGapsFailed, make_seal=_AsConfigured),
    ),
    Planted("what was deleted unread counts as read", 1483, partial(_sealing, make_seal=_AllCountsAsRead)),
    _ingest("a reset forgets where ingest began", 221, _ResetsForget),
    Planted("offsets are not audited", 80, partial(_sealing, audit=_no_audit)),
    Planted("no fencing of micro-batches", 65, partial(_sealing, is_fenced=False)),
)
