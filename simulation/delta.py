"""A model of Delta's log: what conditional commits, conflicts and numbers of applications do.

`tests/spark/simulation/test_delta_model.py` holds it against Delta.

Sources: https://github.com/delta-io/delta/blob/master/PROTOCOL.md and `ConflictChecker.scala` of Delta 4.4.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from itertools import count
from typing import Final, Literal

from delta.exceptions import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    MetadataChangedException,
)

from pipelines.delta.conflicts import raising_stale_epoch
from pipelines.delta.epochs import Commit, Stamp, require_newer
from pipelines.delta.fencing import rewrite_files
from pipelines.delta.replaced_rows import File
from pipelines.delta.table_properties import no_earlier_day
from pipelines.delta.transaction import version_gone
from simulation.kernel import Kernel, NoAnswer

ALL: Final = "all"

Kind = Literal["add", "remove"]
Action = tuple[Kind, File]


@dataclass(frozen=True)
class Version:
    """What a commit made of a table.

    Attributes:
        files: the files of the table by path.
        numbers: the last number of each application.
        commit: what the log says of it.
        added: paths that it added, with their day.
        removed: paths that it removed.
        taken: the application whose number it has.
        changes_metadata: whether it changed a property or a column.
        properties: of the table.
        at: when it was committed, in seconds.
    """

    files: Mapping[str, File]
    numbers: Mapping[str, int]
    commit: Commit
    added: frozenset[tuple[str, str]] = frozenset()
    removed: frozenset[str] = frozenset()
    taken: str | None = None
    changes_metadata: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    at: float = 0.0


@dataclass(frozen=True)
class Change:
    """What a commit is to make of the version before it.

    Its properties are all that the table has then, if they are whole; else those that change.
    """

    actions: Sequence[Action]
    operation: str
    note: str | None = None
    number: tuple[str, int] | None = None
    properties: Mapping[str, str] | None = None
    is_whole: bool = False

    def on(self, before: Version, at: float) -> Version:
        """Return the version after it, committed at a time."""
        files = dict(before.files)
        added, removed = list[tuple[str, str]](), list[str]()
        for kind, file in self.actions:
            if kind == "add":
                files[file["path"]] = file
                added.append((file["path"], file["day"]))
            else:
                files.pop(file["path"], None)
                removed.append(file["path"])
        return Version(
            files,
            {**before.numbers, self.number[0]: self.number[1]} if self.number else before.numbers,
            Commit(before.commit.version + 1, self.operation, self.note),
            frozenset(added),
            frozenset(removed),
            self.number[0] if self.number else None,
            self.properties is not None,
            {**({} if self.is_whole else before.properties), **(self.properties or {})},
            at,
        )


class ModelLog:
    """The log of a table.

    Args:
        path: its name.
        is_fenced: whether it knows numbers of applications; without them is a planted fault.
        clock: tells the time of a commit, in seconds.

    Attributes:
        gone: the paths of files that were deleted from the store.
    """

    def __init__(
        self, path: str, *, is_fenced: bool = True, clock: Callable[[], float] = lambda: 0.0
    ) -> None:
        self.path, self.is_fenced, self.clock = path, is_fenced, clock
        self.gone = set[str]()
        self.versions = [Version({}, {}, Commit(0, "CREATE TABLE"))]
        self._paths = count()

    @property
    def newest(self) -> Version:
        """The newest version."""
        return self.versions[-1]

    def put(self, at: int, change: Change) -> bool:
        """Write the file of a commit, unless there is one of that version."""
        if at != len(self.versions):
            return False
        self.versions.append(change.on(self.newest, self.clock()))
        return True

    def since(self, version: int) -> list[Version]:
        """Return a version and those after it."""
        return self.versions[version:]

    def overwrite(self, change: Change) -> None:
        """Write the next version whatever there is; only a planted fault does so."""
        self.versions.append(change.on(self.newest, self.clock()))

    def file(self, day: date | str, rows: object) -> File:
        """Return a new file with rows of a day."""
        return {"path": f"{self.path}/{next(self._paths)}", "day": str(day), "rows": rows}

    def removed_before(self, moment: float, until: int | None = None) -> set[str]:
        """Return files that commits removed before a moment, and that the table does not have now.

        Args:
            moment: the moment.
            until: the last version whose commits are looked at; None for the newest.
        """
        last = dict[str, float]()
        for version in self.versions[: None if until is None else until + 1]:
            last |= dict.fromkeys(version.removed, version.at)
        kept = self.newest.files if until is None else {**self.versions[until].files, **self.newest.files}
        return {path for path, at in last.items() if at < moment and path not in kept} - self.gone

    def restore_to(self, version: int) -> bool:
        """Do what Delta's RESTORE does: a commit by which the table is as it was at a version.

        Returns:
            False, with nothing done, if files of that version were deleted.
        """
        then, now = self.versions[version], self.newest
        if self.gone & then.files.keys():
            return False
        actions = list[Action](("remove", file) for path, file in now.files.items() if path not in then.files)
        actions += [("add", file) for path, file in then.files.items() if path not in now.files]
        # Delta writes the metadata anew only where they differ.
        properties = None if then.properties == now.properties else then.properties
        restored = Change(actions, "RESTORE", properties=properties, is_whole=properties is not None)
        return self.put(len(self.versions), restored)

    def set_property(self, name: str, value: str) -> None:
        """Do what somebody does by hand, or upkeep does: set a property."""
        self.put(len(self.versions), Change([], "SET TBLPROPERTIES", properties={name: value}))

    def optimize(self) -> None:
        """Do what upkeep does: write files anew, with the rows that they had."""
        actions = list[Action]()
        for file in self.newest.files.values():
            actions += [("remove", file), ("add", self.file(file["day"], file["rows"]))]
        if actions:
            self.put(len(self.versions), Change(actions, "OPTIMIZE"))

    def append_for(self, application: str) -> None:
        """Do what a run of another pipeline does: commit with the number of its own lease."""
        number = self.newest.numbers.get(application, -1) + 1
        self.put(len(self.versions), Change([], "WRITE", "of another pipeline", (application, number)))

    def append_blindly(self, day: date | str, rows: object) -> None:
        """Do what somebody does by hand: add a file, on nothing that was read."""
        self.put(len(self.versions), Change([("add", self.file(day, rows))], "WRITE"))


class ModelTransaction:
    """A transaction of Delta's own, on the newest version of a table."""

    def __init__(self, kernel: Kernel, log: ModelLog) -> None:
        self._kernel, self._log = kernel, log
        self._read = kernel.effect(f"{log.path}: begin", lambda: log.newest)
        self._applications, self._reads = set[str](), set[str]()
        self._properties: Mapping[str, str] | None = None
        self._rewritten: Sequence[Action] = ()

    @property
    def version(self) -> int:
        """The version of the table that it reads."""
        return self._read.commit.version

    @property
    def files(self) -> Mapping[str, File]:
        """The files that it reads."""
        return self._read.files

    def number_taken(self, application: str) -> int:
        """Return the last number of an application; the commit conflicts with a further one."""
        self._applications.add(application)
        return self._read.numbers.get(application, -1) if self._log.is_fenced else -1

    def read_days(self, days: Sequence[date | str]) -> list[File]:
        """Return the files of days; the commit conflicts with what others write to them."""
        self._reads |= {str(day) for day in days}
        return [file for file in self._read.files.values() if file["day"] in self._reads]

    def partition_files(self, partition: Mapping[str, str]) -> list[File]:
        """Return the files of a partition; the commit conflicts with what removes one of them."""
        return [file for file in self._read.files.values() if file["day"] in partition.values()]

    def differences(self, at: int | None, days: Sequence[date]) -> tuple[list[File], list[File]]:
        """Return files that only a version has, and those that only the table has now."""
        self._reads.add(ALL)
        named = {str(day) for day in days}

        def within(files: Mapping[str, File]) -> dict[str, File]:
            return {path: file for path, file in files.items() if not named or file["day"] in named}

        then = {} if at is None else within(self._log.versions[at].files)
        now = within(self._read.files)
        return (
            [file for path, file in then.items() if path not in now],
            [file for path, file in now.items() if path not in then],
        )

    def require(self, files: Sequence[File], at: int | None) -> None:
        """Make sure that files of a version are there."""
        if any(file["path"] in self._log.gone for file in files):
            raise version_gone(self._log.path, at)

    def added(self, file: File) -> Action:
        """Return the action by which a file becomes one of the table."""
        return "add", file

    def removed(self, file: File) -> Action:
        """Return the action by which a file is no longer one of the table."""
        return "remove", file

    def rewrite(self, change: Callable[[File], File | None]) -> frozenset[str]:
        """Write the files anew that have rows to change; return the paths of those that they replace.

        Args:
            change: writes what becomes of a file; the file itself if it stays, None if it loses all rows.
        """
        actions = list[Action]()
        for file in self._read.files.values():
            if (rest := change(file)) is not file:
                actions += [self.removed(file), *([self.added(rest)] if rest else [])]
        self._rewritten = actions
        return frozenset(file["path"] for kind, file in actions if kind == "remove")

    def replace_files(self, paths: Collection[str], other: "ModelTransaction") -> bool:
        """Take what another transaction has written in place of files, and remove these, by the commit."""
        if self.version < other.version:
            return False
        since = self._kernel.effect(
            f"{self._log.path}: read from version {other.version + 1}",
            lambda: self._log.versions[other.version + 1 : self.version + 1],
        )
        if any(version.removed & set(paths) for version in since):
            return False
        self._rewritten = other._rewritten
        return True

    def take_columns_of(self, at: int) -> None:
        """Tables of the model have no columns."""

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Let the table say something of itself, by the commit; Delta does not write what it says already."""
        properties = no_earlier_day(self._read.properties, properties)
        if not properties.items() <= self._read.properties.items():
            self._properties = properties

    def commit(
        self, actions: Sequence[Action], stamp: Stamp, mode: str = "Append", condition: str | None = None
    ) -> int:
        """Commit actions and the stamp; return the version that this made."""
        require_newer(self._log.path, self.number_taken(stamp.application), stamp)
        with raising_stale_epoch(self._log.path):
            number = (stamp.application, stamp.number)
            actions = [*self._rewritten, *actions]
            return self.put(Change(actions, "WRITE", stamp.note, number, self._properties))

    def commit_marks(self) -> int:
        """Commit what was written in place of files, without a stamp.

        Delta names it as it names an append; histories have to tell the two apart.
        """
        return self.put(Change(self._rewritten, "MERGE"))

    def put(self, change: Change) -> int:
        """Commit a change as Delta does: at the next version, or after those of others that do not conflict.

        Raises:
            One of `CONFLICTS`: that of another writer conflicts with it.
        """
        checked = self.version
        while True:
            following = checked + 1

            def put(at: int = following) -> bool:
                return self._log.put(at, change)

            label = f"{self._log.path}: put version {following} ({change.note or change.operation})"
            if self._kernel.effect(label, put, is_write=True, again=put):
                return following
            winners = self._kernel.effect(
                f"{self._log.path}: read from version {following}", partial(self._log.since, following)
            )
            if not winners:
                raise NoAnswer(f"{self._log.path}: the table was put back while a transaction was under way")
            for winner in winners:
                self._refuse(winner, change)
            checked = winners[-1].commit.version

    def _refuse(self, winner: Version, change: Change) -> None:
        """Raise what Delta raises if a commit of others conflicts, in the order in which it looks."""
        if winner.changes_metadata:
            raise MetadataChangedException(self._log.path)
        if self._log.is_fenced and winner.taken in self._applications:
            raise ConcurrentTransactionException(self._log.path)
        days = {day for _, day in winner.added}
        if self._is_read(days):
            raise ConcurrentAppendException(self._log.path)
        read = {path for path, file in self._read.files.items() if self._is_read({file["day"]})}
        if winner.removed & read:
            raise ConcurrentDeleteReadException(self._log.path)
        if winner.removed & {file["path"] for kind, file in change.actions if kind == "remove"}:
            raise ConcurrentDeleteDeleteException(self._log.path)

    def _is_read(self, days: set[str]) -> bool:
        return bool(days) and (ALL in self._reads or bool(days & self._reads))


class ModelTable:
    """A table as `pipelines.delta.fencing` sees it."""

    def __init__(self, kernel: Kernel, log: ModelLog) -> None:
        self._kernel, self.log = kernel, log

    @property
    def path(self) -> str:
        """Its name."""
        return self.log.path

    def version(self) -> int:
        """Return its newest version."""
        return self.begin().version

    def begin(self) -> ModelTransaction:
        """Begin a transaction on the newest version."""
        return ModelTransaction(self._kernel, self.log)

    def commits_since(self, base: int) -> list[Commit]:
        """Return its commits after a version."""
        return self._kernel.effect(
            f"{self.path}: history since version {base}",
            lambda: [version.commit for version in self.log.versions[base + 1 :]],
        )

    def pause(self, seconds: float) -> None:
        """Wait before a commit is tried again; for how long is left to chance where it matters."""
        self._kernel.sleep(1, f"{self.path}: wait")

    def number_taken(self, application: str) -> int:
        """Return the highest number of an application that it has taken."""
        return self.begin().number_taken(application)

    def saver(
        self, stamp: Stamp, days: Sequence[date | str], files: Callable[[], Sequence[File]]
    ) -> Callable[[], None]:
        """Return what a command of Delta does that takes `txnAppId` and `txnVersion`.

        Args:
            stamp: what its commit carries.
            days: those that it truncates; none for an append.
            files: writes the files that it adds.
        """

        def save() -> None:
            transaction = self.begin()
            if transaction.number_taken(stamp.application) >= stamp.number:
                return
            gone = transaction.read_days(days) if days else []
            actions = [transaction.removed(file) for file in gone]
            actions += [transaction.added(file) for file in files()]
            transaction.put(Change(actions, "WRITE", stamp.note, (stamp.application, stamp.number)))

        return save

    def delete(self, stamp: Stamp, days: Sequence[date | str], left: Callable[[File], File | None]) -> None:
        """Delete rows, as `pipelines.delta.fenced_commits.delete_rows_fenced`, by the commit of the deletion.

        Args:
            stamp: what its commit carries.
            days: those of whose files it takes rows.
            left: writes what is left of a file; the file itself if it loses none, None if it loses all.
        """

        def begin() -> ModelTransaction:
            transaction = self.begin()
            require_newer(self.path, transaction.number_taken(stamp.application), stamp)
            return transaction

        rewrite_files(self, begin, _of_days(days, left), lambda at: at.commit([], stamp))

    def merge(self, days: Sequence[date | str], changed: Callable[[File], File]) -> None:
        """Change rows without a stamp, as `pipelines.delta.fenced_commits.rewrite_rows`.

        Args:
            days: those of whose files it changes rows.
            changed: writes a file anew; the file itself if none of its rows changes.
        """
        change = _of_days(days, changed)
        rewrite_files(self, self.begin, change, ModelTransaction.commit_marks, is_needed=False)

    def set_property(self, name: str, value: str) -> None:
        """Set a property of the table, by a commit that changes no row."""
        self.begin().put(Change([], "SET TBLPROPERTIES", properties={name: value}))


def _of_days(
    days: Sequence[date | str], change: Callable[[File], File | None]
) -> Callable[[File], File | None]:
    named = {str(day) for day in days}
    return lambda file: change(file) if file["day"] in named else file
