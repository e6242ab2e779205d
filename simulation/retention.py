"""Upkeep beside nightly runs, the speed stream and backfills, over models of the tables of a lake."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from itertools import count
from typing import Any

from pipelines.delta.replaced_rows import File
from pipelines.delta.table_properties import APPEND_ONLY, WHOLE_FROM
from pipelines.errors import OncelakeError, SourceError
from pipelines.ledger.certifications import certified_in, history_of, newest_certified
from pipelines.ledger.retention_properties import first_rebuildable, refuse_incomplete_days
from pipelines.nightly.night_run import NightPlan
from pipelines.nightly.rebuild_plan import Due
from pipelines.retention.upkeep_run import upkeep_under_lease
from simulation.delta import Version
from simulation.ingest import Row, rows_of
from simulation.kernel import Actor, Process, Violation
from simulation.nightly import ModelTables, NightlyWorld
from simulation.retention_backfills import copy_lost
from simulation.retention_lake import DAY, FIRST, STEP, AgingLake
from simulation.upkeep import ModelUpkeep, SpeedStream


class RetentionTables(ModelTables):
    """The tables of a nightly run, whose bronze loses records and files."""

    world: AgingLake

    def plan(self) -> NightPlan:
        """Read what is certified, what bronze has, and which days can be rebuilt."""
        certified = certified_in(self.read_ledger())
        asked = self.days
        refuse_incomplete_days(self.world.config, self._whole_from(), [*asked, date.max][:1])
        log = self.world.bronze_log
        version = self.world.kernel.effect("bronze: newest version", lambda: len(log.versions) - 1)
        whole = self._whole_from()
        refuse_incomplete_days(self.world.config, whole, [*asked, date.max][:1])
        first = first_rebuildable(self.world.config, whole) or date.min
        days = asked or sorted(day for day in self.world.bronze[version] if day >= first)
        self.days = days
        self._plan = NightPlan(certified, Due(dict.fromkeys(days, "asked"), {}, []), version, "bronze")
        return self._plan

    def files(self) -> list[File]:
        """Write the rows of the days; a version whose files are gone cannot be read."""
        log = self.world.bronze_log
        if log.gone & log.versions[self.planned.bronze_version].files.keys():
            raise SourceError(f"bronze: files of version {self.planned.bronze_version} are gone")
        return super().files()

    def _whole_from(self) -> date | None:
        found: date | None = self.world.kernel.effect("bronze: first complete day", self.world.whole_from)
        return found


Upkeep = Callable[[AgingLake, RetentionTables, bool], ModelUpkeep]


@dataclass
class RetentionWorld(AgingLake):
    """A lake with old records, and what works on it.

    Attributes:
        make_upkeep: makes what upkeep reads and writes; a planted fault is one that does so wrongly.
    """

    tables: Callable[["NightlyWorld", Process, Sequence[date]], ModelTables] = RetentionTables
    make_upkeep: Upkeep = ModelUpkeep

    def __post_init__(self) -> None:
        super().__post_init__()
        self.start_stream(self.setup.randint(0, 3))
        self.start("night-A", ())
        self.start_upkeep("upkeep-A", vacuum_now=self.setup.random() < 0.5)
        self.start_upkeep("upkeep-B", vacuum_now=self.setup.random() < 0.5)
        if self.lost:
            self.start_backfill("backfill-A")
        self._accidents()

    def _make_tables(self) -> None:
        super()._make_tables()
        self._names = count()
        self._came, self._rows, self._verdicts = dict[int, int](), dict[int, Row](), 0
        self._floors: list[date | None] = [None]
        self._newest: Version = self.bronze_log.newest

    def undisturbed(self, start: Callable[[], None]) -> None:
        """Let what is started come to its end before the schedule begins."""
        self.kernel.is_quiet = True
        start()
        self.kernel.run()
        self.kernel.is_quiet = False
        self.kernel.moves.clear()

    def process(self, name: str) -> Process:
        """Return a new process."""
        process = Process(name, len(self.processes) + 1)
        self.processes[process.number] = process
        return process

    def start_stream(self, batches: int) -> None:
        """Start the speed stream, unless it runs."""
        if self._alive("stream") is None:
            name = f"stream-{next(self._names)}"
            self.kernel.spawn(name, self.process(name), partial(SpeedStream(self).run, batches))

    def start_upkeep(self, name: str, *, vacuum_now: bool, times: int = 3) -> Actor:
        """Start upkeep, and again if it is refused."""
        process = self.process(name)

        def body() -> None:
            for left in reversed(range(times)):
                tables = RetentionTables(self, process, ())
                upkeep = self.make_upkeep(self, tables, vacuum_now)
                try:
                    upkeep.compact_streams()
                    with tables.hold() as upkeep.term:
                        list(upkeep_under_lease(upkeep))
                except OncelakeError:
                    if not left:
                        raise
                    self.kernel.sleep(20, "is started again")
                else:
                    self._check_refusal(name)
                    return

        return self.kernel.spawn(name, process, body)

    def _check_refusal(self, done: str) -> None:
        if self.bronze_log.newest.properties.get(APPEND_ONLY) != "true" and not self._others(done):
            raise Violation("bronze refuses deletes", f"it does not when {done} has ended")

    def _others(self, done: str) -> list[str]:
        return [
            name
            for name, actor in self.kernel.actors.items()
            if name.startswith("upkeep") and name != done and not actor.has_ended
        ]

    def start_backfill(self, name: str) -> Actor:
        """Start a backfill of what bronze lacks."""
        process = self.process(name)
        return self.kernel.spawn(name, process, partial(copy_lost, self, process))

    def _alive(self, kind: str) -> str | None:
        actors = self.kernel.actors.items()
        return next((name for name, each in actors if name.startswith(kind) and not each.has_ended), None)

    def check(self) -> None:
        """Make sure that nothing goes that anybody needs.

        Raises:
            Violation: it does.
        """
        super().check()
        self._check_verdicts()
        if self.bronze_log.newest is not self._newest:
            before, self._newest = self._newest, self.bronze_log.newest
            self._check_bronze(before, self._newest)
        for log in (self.batch_log, self.bronze_log, self.speed):
            if gone := log.gone & log.newest.files.keys():
                raise Violation("tables have their files", f"{log.path}: {sorted(gone)} are gone")
        state = certified_in(self._ledger())
        if state and (gone := self.batch.gone & self.batch.versions[state.version].files.keys()):
            raise Violation("readers find their files", f"{sorted(gone)} of version {state.version} are gone")
        self._check_speed(set(state.days) if state else set())

    def _check_verdicts(self) -> None:
        for verdict in self._ledger()[self._verdicts :]:
            self._verdicts += 1
            held = {row.record.number for row in rows_of(self.bronze_log, verdict.bronze_version)}
            came = [number for number, at in self._came.items() if at <= verdict.bronze_version]
            lacking = [n for n in came if self._rows[n].record.day == verdict.day and n not in held]
            if verdict.status == "certified" and any(self.is_valid(self._rows[n]) for n in lacking):
                raise Violation("certified days have all records", f"{verdict.day} lacks {lacking}")

    def _ledger(self) -> list[Any]:
        verdicts = [v for file in self.ledger.newest.files.values() for v in file["rows"]]
        return history_of(self.config, None, verdicts)

    def _check_bronze(self, before: Version, after: Version) -> None:
        whole, floor = self.whole_from(), self._floors[-1]
        if floor is not None and (whole is None or whole < floor):
            raise Violation("the first complete day grows", f"{whole} after {floor}")
        if whole != floor:
            self._floors.append(whole)
        held = {row.record.number for file in after.files.values() for row in file["rows"]}
        for file in after.files.values():
            for row in file["rows"]:
                self._rows[row.record.number] = row
                self._came.setdefault(row.record.number, after.commit.version)
        removed = [
            row for file in before.files.values() for row in file["rows"] if row.record.number not in held
        ]
        if removed:
            self._check_removed(removed, whole)

    def _check_removed(self, removed: Sequence[Row], whole: date | None) -> None:
        # A day that an earlier removal has cut enters no certified state any more.
        first, built = self._first_owed(), self._built()
        for row in removed:
            record = row.record
            if record.number not in self._seen:
                raise Violation("unread records stay", f"{record}")
            if self.is_unresolved(record.number):
                raise Violation("unresolved records stay", f"{record}")
            if not self.is_valid(row):
                continue
            if whole is None or record.day >= whole:
                raise Violation("complete days are complete", f"{record} is gone, they begin with {whole}")
            if record.day >= first and record.number not in built.get(record.day, ()):
                raise Violation("records stay until they are certified", f"{record}")

    def is_unresolved(self, number: int) -> bool:
        """Return whether a record stands in the quarantine, and nobody has resolved it."""
        found = self.quarantine.get(number)
        return found is not None and found.tried_at is None

    def _first_owed(self) -> date:
        """Return the first day that could still be rebuilt before the newest removal."""
        before = self._floors[-2] if len(self._floors) > 1 else None
        return first_rebuildable(self.config, before) or date.min

    def _built(self) -> dict[date, set[int]]:
        """Return the records of which the rows of each certified day were made."""
        return {
            day: {row.record.number for row in rows_of(self.bronze_log, verdict.bronze_version)}
            for day, verdict in newest_certified(self._ledger()).items()
        }

    def _check_speed(self, certified: set[date]) -> None:
        there = {row.record.number for row in rows_of(self.speed)}
        lacking = [
            number
            for number, row in self._seen.items()
            if number not in there and self.is_valid(row) and row.record.day not in certified
        ]
        if lacking:
            raise Violation("uncertified days stay in the speed layer", f"records {lacking} are gone")

    def finish(self) -> None:
        """Let all end, and make sure that the stream, a night and upkeep after them do their work.

        Raises:
            Violation: one of them does not.
        """
        self.kernel.come_to_rest()
        self.failing.clear()
        self.start_stream(5)
        self.kernel.run()
        self.discard()
        self.start("next", ())
        self.kernel.run()
        for _ in range(2):
            last = self.start_upkeep(f"upkeep-last-{next(self._names)}", vacuum_now=True, times=1)
            self.kernel.run()
            if last.failure:
                raise Violation("the next upkeep is done", repr(last.failure))
        if failure := self.kernel.actors["next"].failure:
            raise Violation("the next run is done", repr(failure))
        self._check_end()

    def _check_end(self) -> None:
        first = max(self._first_owed(), first_rebuildable(self.config, self.whole_from()) or date.min)
        built = self._built()
        behind = [
            row.record
            for row in rows_of(self.bronze_log)
            if self.is_valid(row) and row.record.day >= first
            if row.record.number not in built.get(row.record.day, ())
        ]
        if behind:
            raise Violation("the next run certifies all", f"{behind}")
        if self.bronze_log.newest.properties.get(APPEND_ONLY) != "true":
            raise Violation("bronze refuses deletes", "it does not")

    def _accidents(self) -> None:
        accidents = self.kernel.accidents
        for days_ago in (0, 1, 3, 5, 7):
            accidents[f"a record comes of {days_ago} days ago"] = partial(self.come, days_ago)
        accidents |= {
            "the speed stream is started": partial(self.start_stream, 3),
            "broken records are discarded": self.discard,
            "a nightly run is started": partial(self._more, "night", self._start_night),
            "a further upkeep is started": partial(self._more, "upkeep", self._start_upkeep),
            "a further backfill is started": partial(self._more, "backfill", self.start_backfill),
            "the batch table is put back by RESTORE": self._restore_batch,
            "somebody appends to the batch table": self._append_to_batch,
            "a property of bronze is set": partial(self.bronze_log.set_property, "other", "value"),
            "ingest begins behind records that are lost": self._begin_later,
            "two days pass": self._wait,
        }

    def _more(self, kind: str, start: Callable[[str], object]) -> None:
        if sum(name.startswith(kind) and "'" not in name for name in self.kernel.actors) < 4:
            start(f"{kind}-{next(self._names)}")

    def _start_night(self, name: str) -> None:
        asked = [FIRST + self.setup.randint(0, 9) * DAY] if self.setup.random() < 0.3 else []
        self.failing[name] = frozenset(FIRST + day * DAY for day in range(12) if self.setup.random() < 0.1)
        self.start(name, asked)

    def _start_upkeep(self, name: str) -> None:
        self.start_upkeep(name, vacuum_now=self.setup.random() < 0.5)

    def _restore_batch(self) -> None:
        # A RESTORE does not see which files a VACUUM at work is about to delete.
        labels = {*(actor.label for actor in self.kernel.actors.values() if not actor.has_ended)}
        if "upkeep: delete files of batch" in {*labels, *(label for label, _ in self.kernel.in_flight)}:
            return
        self.batch.restore_to(self.setup.randrange(len(self.batch.versions)))

    def _begin_later(self) -> None:
        """Let bronze say that it is complete from a later day on."""
        before = self.whole_from() or FIRST
        self.bronze_log.set_property(WHOLE_FROM, (before + self.setup.randint(1, 4) * DAY).isoformat())

    def _append_to_batch(self) -> None:
        self.batch.append_blindly(FIRST, ())

    def _wait(self) -> None:
        self.kernel.now += 2 * DAY / STEP
