"""Replays of the quarantine beside nightly runs, upkeep and the speed stream, over models of their tables.

The contract was corrected: records that broke it are valid now. Jobs that were started before know the
contract from before.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import partial

from pipelines.delta.table_properties import WHOLE_FROM
from pipelines.ledger.certifications import Verdict, certified_in, newest_certified
from pipelines.steps.replay_run import run_replay
from simulation.delta import Action, Change, ModelLog, Version
from simulation.ingest import rows_of
from simulation.kernel import Actor, Process, Violation
from simulation.nightly import ModelTables, NightlyWorld
from simulation.replay_lake import DAYS, QUARANTINE, Contract, DayRows, Entry, QuarantineLake
from simulation.replay_tables import ModelReplay, ReplayStream, ReplayTables, ReplayUpkeep
from simulation.retention import Upkeep as MakeUpkeep
from simulation.schedules import overtaking


@dataclass
class ReplayWorld(QuarantineLake):
    """A lake with records in quarantine, and what works on it.

    Attributes:
        make_replay: makes what a replay reads and writes; a planted fault is one that does so wrongly.
        replay: lets a replay run.
    """

    tables: Callable[["NightlyWorld", Process, Sequence[date]], ModelTables] = ReplayTables
    make_upkeep: MakeUpkeep = ReplayUpkeep
    make_replay: Callable[["ReplayWorld", Process], ModelReplay] = ModelReplay
    replay: Callable[[ModelReplay], object] = run_replay

    def __post_init__(self) -> None:
        self.schedule = overtaking(self.schedule, self.setup, "replay")
        self._make_tables()
        self._newest_of = dict[str, Version]()
        self._added = dict[str, list[int]]()
        self._excused = set[int]()
        self._of_streams: Contract = "before"
        self._backup: list[list[Version]] | None = None
        self._fill()
        self.undisturbed(self._begin)
        if self.setup.random() < 0.3:
            self._back_up()
        self._run_stream("stream-A", 2)
        self._start_night("night-A")
        for name in ("replay-A", "replay-B"):
            self.start_replay(name)
        if self.setup.random() < 0.5:
            self.start_upkeep("upkeep-A", vacuum_now=False)
        self._accidents()

    def _begin(self) -> None:
        """Let the stream read some records, and a night certify some days."""
        first = ReplayStream(self, "before")
        self.kernel.spawn("stream-first", self.process("stream-first"), partial(first.run, 1))
        if days := [day for day in DAYS if self.setup.random() < 0.5]:
            self.contracts["night-first"] = "before" if self.setup.random() < 0.8 else "corrected"
            self.start("night-first", days)

    def start_stream(self, batches: int) -> None:
        """Start the speed stream, unless it runs."""
        if self._alive("stream") is None:
            self._run_stream(f"stream-{next(self._names)}", batches)

    def _run_stream(self, name: str, batches: int) -> None:
        # A contract that was corrected is not put back.
        if self.setup.random() < 0.3:
            self._of_streams = "corrected"
        stream = ReplayStream(self, self._of_streams)
        self.kernel.spawn(name, self.process(name), partial(stream.run, batches))

    def start_replay(self, name: str, times: int = 3) -> Actor:
        """Start a replay, and again if it is refused."""
        process = self.process(name)

        def job() -> None:
            self.replay(self.make_replay(self, process))

        return self.kernel.spawn(name, process, lambda: self.kernel.work(job, times))

    def _start_night(self, name: str) -> None:
        self.contracts[name] = "before" if self.setup.random() < 0.5 else "corrected"
        asked = [self.setup.choice(DAYS)] if self.setup.random() < 0.3 else []
        self.failing[name] = frozenset(day for day in DAYS if self.setup.random() < 0.1)
        self.start(name, asked)

    def check(self) -> None:
        """Make sure that readers have what was replayed, and that retention takes nothing that is needed.

        Raises:
            Violation: they have not, or it does.
        """
        self._check_lease()
        logs = (self.bronze_log, self.ledger, self.batch, self.speed, self.entries)
        changed = {log.path for log in logs if self._newest_of.get(log.path) is not log.newest}
        if not changed:
            return
        before = dict(self._newest_of)
        self._newest_of = {log.path: log.newest for log in logs}
        if "ledger" in changed:
            self._check_ledger()
        if "bronze" in changed:
            before_it, self._newest = self._newest, self.bronze_log.newest
            self._check_bronze(before_it, self._newest)
        verdicts = newest_certified(self._ledger())
        self._check_readers(verdicts)
        if "speed" in changed and "speed" in before:
            self._check_rows_added(before["speed"])
            self._check_rows_stay(before["speed"], verdicts)
        if QUARANTINE in changed:
            self._check_entries(before.get(QUARANTINE))
        self._check_replayed(verdicts)

    def _check_ledger(self) -> None:
        self._check_verdicts()
        ledger = self._ledger()
        if lost := self._served.keys() - newest_certified(ledger).keys():
            raise Violation("days stay certified", f"{sorted(map(str, lost))} are no longer certified")
        self._served = newest_certified(ledger)

    def _check_readers(self, verdicts: dict[date, Verdict]) -> None:
        """Make sure that a certified day is what the run of its verdict built, with each key once."""
        state = certified_in(self._ledger())
        if state is None:
            return
        rows = self.files_at(state.version)
        for day, verdict in verdicts.items():
            contract = self.contracts.get(verdict.run_id, "corrected")
            built = self.winners(verdict.bronze_version, contract).get(day)
            expected = [DayRows(verdict.run_id, built)] if built else []
            if rows.get(day, []) != expected:
                text = f"{day}: version {state.version} has {rows.get(day)}, its verdict says {expected}"
                raise Violation("readers get what was audited", text)

    def _check_rows_added(self, before: Version) -> None:
        """Make sure that replays append to the speed layer and do nothing else, each key once."""
        for version in self.speed.versions[before.commit.version + 1 :]:
            for path in version.removed:
                # Verdicts may be lost after upkeep has removed what was certified: then it is added again.
                self._added.pop(path, None)
            if not (version.commit.note or "").startswith("replay "):
                continue
            if version.removed:
                raise Violation("replays append", f"version {version.commit.version} of the speed layer")
            for path, _ in version.added:
                rows = version.files[path]["rows"]
                self._added[path] = [self._keys[row.record.number] for row in rows]
        times = Counter(key for keys in self._added.values() for key in keys)
        if twice := [key for key, number in times.items() if number > 1]:
            raise Violation("replays add a key once", f"{twice}")

    def _check_rows_stay(self, before: Version, verdicts: dict[date, Verdict]) -> None:
        gone = [file for path, file in before.files.items() if path not in self.speed.newest.files]
        if days := {file["day"] for file in gone} - {str(day) for day in verdicts}:
            raise Violation("uncertified days stay in the speed layer", f"rows of {sorted(days)} are gone")

    def _check_entries(self, before: Version | None) -> None:
        """Make sure that each record that was put aside stands there once, and what is resolved stays so."""
        after = {entry.number: entry for entry in self.quarantined()}
        if len(after) != len(self.quarantined()):
            raise Violation("a record is put aside once", f"{sorted(e.number for e in self.quarantined())}")
        held = {row.record.number for row in rows_of(self.bronze_log)}
        entries = [entry for file in (before.files if before else {}).values() for entry in file["rows"]]
        for entry in entries:
            now = after.get(entry.number)
            if now is None and (entry.status == "open" or entry.number in held):
                raise Violation("records stay in the quarantine", f"{entry} is gone")
            if now is not None and entry.status not in ("open", now.status):
                raise Violation("what is resolved stays so", f"{entry} is {now.status}")

    def _check_replayed(self, verdicts: dict[date, Verdict]) -> None:
        """Make sure that readers have the event of each record that is marked as replayed."""
        state, speed = certified_in(self._ledger()), self.speed_keys()
        rows = self.files_at(state.version) if state else {}
        for entry in self.quarantined():
            number, day = entry.number, entry.row.record.day
            if entry.status != "replayed" or number in self._excused:
                continue
            served = self.keys(n for each in rows.get(day, ()) for n in each.winners)
            if self._keys[number] not in (served if day in verdicts else speed.get(day, set())):
                where = "the certified day" if day in verdicts else "the speed layer"
                raise Violation("readers have what was replayed", f"{where} {day} lacks record {number}")

    def _built(self) -> dict[date, set[int]]:
        """Return the records of which the rows of each certified day were made."""
        return {
            day: {
                *self.events(verdict.bronze_version, self.contracts.get(verdict.run_id, "corrected")).get(
                    day, ()
                )
            }
            for day, verdict in newest_certified(self._ledger()).items()
        }

    def finish(self) -> None:
        """Let all end, and make sure that what follows brings all in order, and then changes nothing.

        Raises:
            Violation: it does not.
        """
        self.kernel.come_to_rest()
        self._put_back()
        self.failing.clear()
        self._run_stream("stream-last", 9)
        self.kernel.run()
        last = [self._finished("replay-next")]
        self.start("next", ())
        self.kernel.run()
        last += [self._finished("replay-behind")]
        self.discard()
        upkeep = self.start_upkeep("upkeep-last", vacuum_now=True, times=1)
        self.kernel.run()
        failures = [each.failure for each in (*last, self.kernel.actors["next"], upkeep) if each.failure]
        if failures:
            raise Violation("the next run is done", repr(failures[0]))
        self._check_end()
        self._check_unchanged()

    def _finished(self, name: str) -> Actor:
        actor = self.start_replay(name, times=1)
        self.kernel.run()
        return actor

    def _check_unchanged(self) -> None:
        """Make sure that a further replay changes nothing."""
        logs = (self.speed, self.batch, self.entries)
        before = [self._content(log) for log in logs]
        replay = self._finished("replay-again")
        if replay.failure or [self._content(log) for log in logs] != before:
            raise Violation("a further replay changes nothing", repr(replay.failure))

    def _content(self, log: ModelLog) -> list[str]:
        rows = [file["rows"] for file in log.newest.files.values()]
        if log is self.entries:
            return sorted(f"{entry.number} {entry.status}" for of_file in rows for entry in of_file)
        return sorted(map(repr, rows))

    def _check_end(self) -> None:
        super()._check_end()
        first = self.first_rebuildable() or date.min
        unresolved = [
            entry.number
            for entry in self.quarantined()
            if entry.status == "open" and self.is_valid(entry.row) and entry.row.record.day >= first
        ]
        if unresolved:
            raise Violation("valid records are resolved", f"{unresolved} are not")

    def discard(self) -> None:
        """Do what `quarantine discard` does with records that stay broken."""
        actions, tried_at = list[Action](), self.time()
        for file in self.entries.newest.files.values():
            rows = tuple(self._discarded(entry, tried_at) for entry in file["rows"])
            if rows != file["rows"]:
                actions += [("remove", file), ("add", self.entries.file(QUARANTINE, rows))]
        if actions:
            self.entries.put(len(self.entries.versions), Change(actions, "MERGE"))

    def _discarded(self, entry: Entry, at: datetime) -> Entry:
        is_chosen = entry.status == "open" and not self.is_valid(entry.row)
        return replace(entry, status="discarded", tried_at=at) if is_chosen else entry

    def _accidents(self) -> None:
        accidents = self.kernel.accidents
        for days_ago in (0, 1, 2, 6):
            accidents[f"a record comes of {days_ago} days ago"] = partial(self.come, days_ago)
        accidents |= {
            "the speed stream is started": partial(self.start_stream, 3),
            "a nightly run is started": partial(self._more, "night", self._start_night),
            "a further upkeep is started": partial(self._more, "upkeep", self._start_upkeep),
            "a further replay is started": partial(self._more, "replay", self.start_replay),
            "the batch table is put back by RESTORE": self._restore_batch,
            "somebody appends to the batch table": self._append_to_batch,
            "marks are undone by RESTORE": self._undo_marks,
            "ops/leases is lost": self._lose_leases,
            "a backup is made": self._back_up,
            "verdicts and the batch table are put back from the backup": self._put_back,
            "broken records are discarded": self.discard,
            "two days pass": self._wait,
        }
        for process in [*self.processes.values()]:
            for seconds in (-1000, 90, 1000):
                accidents[f"the clock of {process.name} jumps by {seconds} s"] = partial(
                    self._jump, process, seconds
                )

    def _jump(self, process: Process, seconds: float) -> None:
        process.skew += seconds

    def _append_to_batch(self) -> None:
        self.batch.append_blindly(DAYS[0], DayRows("by hand", (0,)))

    def _lose_leases(self) -> None:
        del self.leases.versions[1:]
        self._are_leases_whole = False

    def _undo_marks(self) -> None:
        """Put the quarantine back to a version since which replays alone have changed it.

        Not while upkeep is at work, which has seen that no record of before is open: see docs/semantics.md.
        """
        if any(each.name.startswith("upkeep") and not each.has_ended for each in self.kernel.actors.values()):
            return
        versions = self.entries.versions
        last = max((v.commit.version for v in versions if v.commit.operation == "WRITE"), default=0)
        is_marked = all(version.commit.operation in ("MERGE", "RESTORE") for version in versions[last + 1 :])
        if is_marked:
            self._newest_of.pop(QUARANTINE, None)
            self.entries.restore_to(self.setup.randint(last, len(versions) - 1))

    def _is_idle(self) -> bool:
        return not self.kernel.in_flight and all(
            each.has_ended or each.name.startswith("stream") for each in self.kernel.actors.values()
        )

    def _back_up(self) -> None:
        self._backup = [list(log.versions) for log in (self.ledger, self.batch, self.leases)]

    def _put_back(self) -> None:
        """Put verdicts, batch table and leases back, while no job is at work that writes them."""
        if self._backup is None or not self._is_idle() or WHOLE_FROM in self.bronze_log.newest.properties:
            return
        for log, versions in zip((self.ledger, self.batch, self.leases), self._backup, strict=True):
            log.versions = list(versions)
        self._served = newest_certified(self._ledger())
        self._verdicts = len(self._ledger())
        self._are_leases_whole = False
        # They are in the verdicts and rows that are gone.
        self._excused |= {entry.number for entry in self.quarantined() if entry.status == "replayed"}
