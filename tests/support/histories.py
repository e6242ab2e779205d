"""Random histories of a lake, held against an oracle in plain Python that knows nothing of the pipeline."""

import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from pyspark.sql import SparkSession

from pipelines.config.loader import load_config
from pipelines.contracts.contract import DataContract
from pipelines.contracts.rules import DayRule, RowRule
from pipelines.delta.io import read
from pipelines.delta.tables import exists, version
from pipelines.errors import InfrastructureError
from pipelines.fault_points import Point, armed
from pipelines.ledger.certifications import VerdictStatus, certified, history, newest_certified
from pipelines.ledger.quarantine import Selection
from pipelines.nightly.rebuild_plan import RepairScope
from pipelines.nightly.verdicts import NightFailed
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.maintain import maintain
from pipelines.steps.nightly import nightly
from pipelines.steps.serving import read_serving
from pipelines.steps.speed import speed
from tests.support.accidents import dying
from tests.support.lakes import Lake, Record, flight
from tests.support.replays import mark_replayed, replay

DAYS = [date(2013, 1, n) for n in (1, 2, 3)]
HORIZON = 1
FAR = 4963.0

_SENT = datetime(2013, 1, 6, tzinfo=UTC)
_MENDABLE = Selection(reasons=("rule_failed",))
# Between which of its commits a nightly run dies.
_DEATHS = (Point.DAYS_BUILT, Point.DAYS_AUDITED, Point.DAYS_KEPT, Point.VERDICTS_WRITTEN)


Row = tuple[int, int, float]
"""Partition, offset and delay."""


@dataclass(frozen=True)
class Sent:
    """A valid record, by what decides on it: who wins is the least `order`."""

    key: tuple[Any, ...]
    day: date
    order: tuple[datetime, int, int]
    delay: float

    @property
    def row(self) -> "Row":
        """What the batch layer has of it, if it wins."""
        return (*self.order[1:], self.delay)


def winners(sent: list[Sent], day: date) -> set[Row]:
    """The rows of a day: each record stands, the first first, that lies beyond the horizon of all that do."""
    standing: dict[tuple[Any, ...], list[Sent]] = defaultdict(list)
    for mine in sorted(sent, key=lambda each: each.order):
        if all(abs((other.day - mine.day).days) > HORIZON for other in standing[mine.key]):
            standing[mine.key].append(mine)
    return {mine.row for rows in standing.values() for mine in rows if mine.day == day}


@dataclass(frozen=True)
class Draft:
    """A record that is about to be sent. Few numbers, so that copies, ties and conflicts abound."""

    number: int
    day: date
    late_hour: bool
    delay: float
    far: bool
    minute: int
    partition: int


_drafts = st.builds(
    Draft,
    number=st.integers(1, 3),
    day=st.sampled_from(DAYS),
    late_hour=st.booleans(),
    delay=st.sampled_from([1.0, 2.0]),
    far=st.booleans(),
    minute=st.integers(0, 3),
    partition=st.integers(0, 1),
)
_poison = st.sampled_from([None, b"", b"[]", b'{"carrier": 7}', b'{"flight": 1', b"\xff\xfe"])


class Died(Exception):
    """What a process that is killed in the middle leaves undone is left undone."""


class History(RuleBasedStateMachine):
    """What may happen to a lake in any order, and what must hold after each certification.

    Args:
        spark: the session.
        contract: of flights, with a key that holds the event time.
        keyless: the same with a key without it, so that copies of an event may lie on several days.
    """

    def __init__(self, spark: SparkSession, contract: DataContract, keyless: DataContract) -> None:
        super().__init__()
        self.spark = spark
        self._contracts = (contract, keyless)
        self._folder = tempfile.mkdtemp(prefix="history-")
        settings = [f"lake.root={self._folder}/lake", "batch.seal_by=bronze"]
        settings.append(f"batch.dedup_horizon_days={HORIZON}")
        self.config = load_config("flights", environ={}, settings=settings)
        self.sent: list[Sent] = []
        self.ingested: dict[int, int] = {}
        self.offsets: Counter[int] = Counter()
        self.runs = 0
        self.happened: set[str] = set()
        # A copy that comes after its event was put back is not recognised by the stream.
        self.put_back = False

    @property
    def pipeline(self) -> Pipeline:
        """What steps are given."""
        return Pipeline(self.spark, self.config, self.contract)

    def teardown(self) -> None:
        self.spark.catalog.clearCache()
        shutil.rmtree(self._folder)

    @initialize(which=st.integers(0, 1))
    def begin(self, which: int) -> None:
        self.contract = self._contracts[which]
        self.is_keyed = which == 0
        short = RowRule("distance", "maximum", 3000)
        strict = replace(self.contract, version="0.9.0", row_rules=(*self.contract.row_rules, short))
        self.of_stream = strict
        self.lake = Lake(self.pipeline)
        self.produce([Draft(1, day, False, 1.0, False, 0, 0) for day in (DAYS[0], DAYS[2])], [])

    @rule(drafts=st.lists(_drafts, min_size=1, max_size=5), poison=st.lists(_poison, max_size=2))
    def produce(self, drafts: list[Draft], poison: list[bytes | None]) -> None:
        """Records come in any order of days and times, again and again, in versions, broken."""
        records: list[Record] = []
        for draft in drafts:
            hour = 23 if draft.late_hour else 0
            value = flight(
                flight=draft.number,
                scheduled_departure=f"{draft.day}T{hour:02}:15:00-05:00",
                departure_delay=draft.delay,
                distance=FAR if draft.far else 100.0,
            )
            moment = _SENT + timedelta(minutes=draft.minute)
            offset = self._next_offset(draft.partition)
            records.append(Record(value, draft.partition, offset, moment))
            of_key = (draft.number, draft.day, hour) if self.is_keyed else (draft.number,)
            self.sent.append(Sent(of_key, draft.day, (moment, draft.partition, offset), draft.delay))
        records += [Record(value, 0, self._next_offset(0), _SENT) for value in poison]
        self.lake.ingest(records)
        self.ingested[version(self.spark, self.config.table("bronze"))] = len(self.sent)

    @rule()
    def stream(self) -> None:
        self.happened.add("stream")
        speed(replace(self.pipeline, contract=self.of_stream), once=True)

    @rule()
    def stream_dies_between_its_tables(self) -> None:
        self.happened.add("stream_dies_between_its_tables")
        with armed(Point.QUARANTINE_WRITTEN, dying(Died())), suppress(InfrastructureError):
            speed(replace(self.pipeline, contract=self.of_stream), once=True)

    @rule(last=st.sampled_from(DAYS[1:]), repair=st.sampled_from(["late and missed", "late"]))
    def night(self, last: date, repair: RepairScope) -> None:
        """The scheduler's run, which also repairs: nothing that came for the days up to it is left out."""
        self.happened.add("night")
        before = self._rows_of_certified()
        done = self._run([last], repair)
        assert last in done
        after = self._hold(done, before)
        if repair == "late and missed":
            past = [day for day in DAYS if day <= last]
            assert {day: after[day] for day in past} == {day: self._expected(day, last) for day in past}

    @rule(days=st.sampled_from([DAYS[:1], DAYS[1:2], DAYS[2:], DAYS[:2], DAYS]))
    def rebuild(self, days: list[date]) -> None:
        """Somebody rebuilds days by hand, in any order."""
        self.happened.add("rebuild")
        before = self._rows_of_certified()
        done = self._run(days, "nothing")
        assert set(days) <= done
        self._hold(done, before)

    @rule(last=st.sampled_from(DAYS), most=st.integers(1, 2))
    def night_with_days_that_fail(self, last: date, most: int) -> None:
        """Days that fail leave readers what they had; the others of the same run are certified."""
        self.happened.add("night_with_days_that_fail")
        before = self._rows_of_certified()
        few = replace(self.contract, day_rules=(DayRule("rowCount", None, 0, most),))
        try:
            verdicts = self._nightly([last], "late and missed", few)
        except NightFailed as failed:
            verdicts = failed.result.days
        passed = {day for day, verdict in verdicts.items() if verdict == "certified"}
        after = self._hold(passed, before)
        assert before.keys() | passed == after.keys()

    @rule(last=st.sampled_from(DAYS), death=st.sampled_from(_DEATHS))
    def night_dies(self, last: date, death: Point) -> None:
        """Whenever a run dies, readers have either all of it or what they had before."""
        self.happened.add("night_dies")
        before = self._rows_of_certified()
        with armed(death, dying(Died())), suppress(Died):
            self._run([last], "late and missed")
        after = self._rows_of_certified()
        if death is not Point.VERDICTS_WRITTEN:
            assert after == before
        self._each_key_once(after)

    @precondition(lambda self: "stream" in self.happened)
    @rule()
    def mend_and_replay(self) -> None:
        """The stream's contract is fixed, and what it refused is put back."""
        self.happened.add("mend_and_replay")
        self.of_stream = self.contract
        before = self._rows_of_certified()
        done = replay(self.pipeline, "replay", _MENDABLE, dry_run=False)
        self.put_back = self.put_back or done.counts.rows > 0
        days = self._run(list(done.days), "nothing") if done.days else set()
        mark_replayed(self.pipeline, done, sorted(days))
        again = replay(self.pipeline, "replay", _MENDABLE, dry_run=False)
        assert (again.counts.records, again.counts.rows) == (0, 0)
        self._hold(days, before)

    @rule()
    def upkeep(self) -> None:
        """Compaction, retention and a VACUUM that keeps nothing for its age change no row that is served."""
        self.happened.add("upkeep")
        certified = self._rows_of_certified()
        before = certified, self._served(certified)
        short = self.config.maintain.model_copy(
            update={"vacuum_after": timedelta(0), "speed_retention": timedelta(days=1)}
        )
        config = self.config.model_copy(update={"maintain": short})
        maintain(replace(self.pipeline, config=config), "upkeep", dry_run=False)
        certified = self._rows_of_certified()
        assert (certified, self._served(certified)) == before

    def _next_offset(self, partition: int) -> int:
        self.offsets[partition] += 1
        return self.offsets[partition] - 1

    def _run(self, days: list[date], repair: RepairScope) -> set[date]:
        verdicts = self._nightly(days, repair, self.contract)
        assert set(verdicts.values()) == {"certified"}
        return set(verdicts)

    def _nightly(
        self, days: list[date], repair: RepairScope, contract: DataContract
    ) -> Mapping[date, VerdictStatus]:
        self.runs += 1
        return nightly(replace(self.pipeline, contract=contract), f"run {self.runs}", days, repair).days

    def _hold(self, days: set[date], before: dict[date, set[Row]]) -> dict[date, set[Row]]:
        """These days are what the oracle says, all others what they were; gives the rows of all of them."""
        after = self._rows_of_certified()
        assert {day: after[day] for day in days} == {day: winners(self.sent, day) for day in days}
        others = before.keys() - days
        assert {day: after[day] for day in others} == {day: before[day] for day in others}
        self._each_key_once(after)
        return after

    def _expected(self, day: date, last: date) -> set[Row]:
        """What a run up to a last day leaves of an earlier one, that it need not have rebuilt.

        Copies that have come since with later days are counted when these days are certified.
        """
        certified = newest_certified(history(self.pipeline))
        built = certified[day].bronze_version
        known = max(count for at, count in self.ingested.items() if at <= built)
        since = [sent for sent in self.sent[known:] if sent.day <= last or sent.day in certified]
        return winners([*self.sent[:known], *since], day)

    def _each_key_once(self, certified: dict[date, set[Row]]) -> None:
        """Readers get each event of certified days once, from the batch layer; of others, if they can.

        They cannot where the key lacks the event time, or an event was put back before its copy came.
        """
        served = self._served(certified)
        assert {day: {row for row in served if served[row] == day} for day in certified} == certified
        events = {sent.row: sent for sent in self.sent}
        everywhere = self.is_keyed and not self.put_back
        days = defaultdict(list)
        for row, day in served.items():
            if everywhere or day in certified:
                days[events[row].key].append(day)
        for key, found in days.items():
            apart = [(later - earlier).days for earlier, later in pairwise(sorted(found))]
            assert min(apart, default=HORIZON + 1) > HORIZON, (key, found)

    def _rows_of_certified(self) -> dict[date, set[Row]]:
        state = certified(self.pipeline)
        found: dict[date, set[Row]] = {day: set() for day in state.days} if state else {}
        if state:
            columns = ("_event_date", "_partition", "_offset", "departure_delay")
            rows = read(self.spark, self.config.table("batch"), state.version).select(*columns)
            for day, *row in map(tuple, rows.collect()):
                assert tuple(row) not in found.get(day, set())
                if day in found:
                    found[day].add(tuple(row))
        return found

    def _served(self, certified: dict[date, set[Row]]) -> dict[Row, date]:
        """What readers get, and on which day; these days are certified."""
        if not exists(self.spark, self.config.table("speed")) and not certified:
            return {}
        columns = ("_partition", "_offset", "departure_delay", "_event_date")
        rows = list(map(tuple, read_serving(self.pipeline).select(*columns).collect()))
        served = {(partition, offset, delay): day for partition, offset, delay, day in rows}
        assert len(served) == len(rows)
        return served


def few(examples: int, steps: int) -> settings:
    """So many histories of so many steps; a failing one is shown as it is."""
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
