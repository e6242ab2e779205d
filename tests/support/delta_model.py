"""A model of what fencing needs of Delta, and of nightly runs that take the steps of the real ones."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Final

from pipelines.config.loader import load_config
from pipelines.delta.epochs import Commit, Epoch, Stamp, commits_of_others, next_epoch
from pipelines.fault_points import Point
from pipelines.ledger.certifications import Certified, Verdict, certified_in, newest_certified, standing

Content = Mapping[int, str]
"""Of each day, who wrote its rows."""

_CONFIG: Final = load_config("flights", environ={})
_WHEN: Final = datetime(2013, 1, 6, tzinfo=UTC)


class Refused(Exception):
    """A commit that Delta refuses, or leaves out."""


class Stale(Refused):
    """Since a later epoch has claimed the table."""


class Conflict(Refused):
    """Since others, who hold no epoch, wrote what this one has read."""


@dataclass(frozen=True)
class Version:
    """What a commit made of a table."""

    content: Content
    number: int
    changed: frozenset[int]
    writer: str


@dataclass
class Table:
    """A Delta table: a commit is conditional on what it has read, and on the numbers of its application.

    Attributes:
        is_fenced: whether it knows numbers; without them it is what runs without epochs write to.
    """

    is_fenced: bool = True
    versions: list[Version] = field(default_factory=lambda: [Version({}, -1, frozenset(), "nobody")])

    @property
    def newest(self) -> int:
        """The newest version."""
        return len(self.versions) - 1

    def begin(self, stamp: Stamp) -> int:
        """Begins a transaction; returns the version that it reads."""
        if self.is_fenced and self.versions[-1].number >= stamp.number:
            raise Stale
        return self.newest

    def commit(self, read: int, stamp: Stamp, change: Content, seen: frozenset[int], writer: str) -> int:
        """Ends a transaction that has seen some days, and gives days another content."""
        for winner in self.versions[read + 1 :]:
            if self.is_fenced and winner.number > self.versions[read].number:
                raise Stale
            if winner.changed & seen:
                raise Conflict
        return self._add(change, stamp.number, writer)

    def append_blindly(self, day: int, writer: str) -> None:
        """What somebody does by hand: rows are added to a day, on nothing that was read."""
        had = self.versions[-1].content.get(day, "")
        self._add({day: f"{had}+{writer}"}, self.versions[-1].number, writer)

    def _add(self, change: Content, number: int, writer: str) -> int:
        content = {day: by for day, by in {**self.versions[-1].content, **change}.items() if by}
        number = max(number, self.versions[-1].number)
        self.versions.append(Version(content, number, frozenset(change), writer))
        return self.newest


@dataclass
class World:
    """The tables of one pipeline.

    Attributes:
        looks: whether a run asks who wrote between its base and what it certifies.
    """

    is_fenced: bool = True
    looks: bool = True
    epoch: int = 0
    verdicts: list[Verdict] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.batch, self.ledger = Table(self.is_fenced), Table(self.is_fenced)

    def certified(self) -> dict[int, str]:
        """What readers get of each certified day: who wrote its rows."""
        ledger = standing(_CONFIG, self.verdicts)
        state = certified_in(ledger)
        if state is None:
            return {}
        content = self.batch.versions[state.version].content
        for day, verdict in newest_certified(ledger).items():
            assert content.get(day.day) == verdict.run_id, (day, verdict.run_id, content)
        return {day.day: content[day.day] for day in state.days}


@dataclass
class ModelNight:
    """A nightly run on a world; whoever comes may take its lease over, as if it stood still for long."""

    world: World
    name: str
    days: frozenset[int]
    failing: frozenset[int] = frozenset()
    done: bool = False
    versions: list[int] = field(default_factory=list)
    before: Certified | None = None
    epoch: Epoch | None = None
    reads: int | None = None

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Takes the lease."""
        self.world.epoch = next_epoch(self.world.epoch, [])
        self.epoch = Epoch("flights", self.name, self.world.epoch)
        yield

    def plan_days(self) -> Iterator[Point]:
        """Claims the ledger, as `pipelines.ledger.leases.lease` does, and reads it."""
        yield from self._commit(self.world.ledger, Point.LEASE_WRITTEN, lambda read: {}, frozenset(), ())
        yield Point.LEASE_HELD
        self.before = certified_in(standing(_CONFIG, self.world.verdicts))

    def restore_base(self) -> Iterator[Point]:
        """Puts the table back."""
        everything = frozenset(range(1, 6))

        def back(read: int) -> Content:
            was = self.world.batch.versions[self.before.version].content if self.before else {}
            return {day: was.get(day, "") for day in self.world.batch.versions[read].content.keys() | was}

        yield from self._commit(self.world.batch, Point.DAYS_DUE, back, everything, self.versions)

    def build(self) -> Iterator[Point]:
        """Writes the days."""
        built = dict.fromkeys(self.days, self.name)
        yield from self._commit(
            self.world.batch, Point.BATCH_CLAIMED, lambda read: built, self.days, self.versions
        )

    def audit(self) -> Iterator[Point]:
        """Takes its time."""
        yield Point.DAYS_BUILT

    def restore_failed_days(self) -> Iterator[Point]:
        """Takes back what failed."""
        base = self.world.batch.versions[self.versions[0]].content
        back = {day: base.get(day, "") for day in self.failing}
        if back:
            yield from self._commit(
                self.world.batch, Point.DAYS_AUDITED, lambda read: back, self.failing, self.versions
            )

    def certify(self) -> Iterator[Point]:
        """Writes the verdicts."""
        commits = [Commit(at, "WRITE") for at in range(self.world.batch.newest + 1)]
        base, *own = self.versions
        if self.world.looks and commits_of_others(commits, base, own[-1], own):
            raise Conflict
        yield from self._commit(self.world.ledger, Point.DAYS_KEPT, lambda read: {}, frozenset(), ())
        self.world.verdicts += [self._verdict(day) for day in sorted(self.days - self.failing)]
        self.done = True
        yield Point.VERDICTS_WRITTEN

    def _commit(
        self,
        table: Table,
        point: Point,
        change: Callable[[int], Content],
        seen: frozenset[int],
        made: "list[int] | tuple[()]",
    ) -> Iterator[Point]:
        """A commit in its two parts, tried again after a conflict.

        The run stops at the point before it, and once more where it is under way: others may commit between.
        """
        assert self.epoch is not None
        self.epoch, stamp = self.epoch.after(point)
        while True:
            yield point
            self.reads = read = table.begin(stamp)
            changed = change(read)
            yield point
            try:
                version = table.commit(read, stamp, changed, seen, self.name)
            except Conflict:
                continue
            self.reads = None
            if isinstance(made, list):
                made.append(version)
            return

    def _verdict(self, day: int) -> Verdict:
        assert self.epoch is not None
        return Verdict(
            pipeline="flights",
            day=date(2013, 1, day),
            status="certified",
            run_id=self.name,
            batch_version=self.versions[-1],
            bronze_version=0,
            decided_at=_WHEN,
            base_version=self.before.version if self.before else -1,
            epoch=self.epoch.epoch,
            records=0,
            rows=0,
            duplicates=0,
            conflicts=0,
            late=0,
            quarantined=0,
            other_days=0,
            bronze=0,
        )
