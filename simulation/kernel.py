"""Lets actors take turns at their effects, by a schedule that also says what goes wrong.

An actor is the code of a job in a thread of its own. Only one of them runs at a time: each stops before an
effect, and the kernel decides who goes on, and with which fault. So a run depends on its schedule alone.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, Protocol, TypeVar

from pipelines.errors import InfrastructureError, OncelakeError

Result = TypeVar("Result")

_EPOCH: Final = datetime(2013, 1, 6, tzinfo=UTC)
_MOST_STEPS: Final = 3_000
_LONGER_THAN_ANY_TERM: Final = 10_000


class Fault(StrEnum):
    """What goes wrong at an effect."""

    CRASH_BEFORE = "crash before"
    """The process dies, and the effect does not happen."""
    CRASH_AFTER = "crash after"
    """The effect happens, and the process dies before it knows."""
    REFUSED = "no connection"
    """The effect does not happen, and the process is told so."""
    LOST = "answer lost"
    """The effect happens, and the process is told that it is not known whether it has."""
    ECHO = "sent twice"
    """The effect happens, its answer is lost, and the client sends it again by itself."""
    LATE = "late"
    """The process is told that there is no answer, and the request arrives later."""
    CRASH_LATE = "crash, request late"
    """The process dies with the request under way, which arrives later."""
    STOP = "process stops"
    """The process stands still before the effect, until it is woken."""


ON_READS: Final = (Fault.CRASH_BEFORE, Fault.REFUSED, Fault.STOP)
ON_WRITES: Final = tuple(Fault)
_CRASHES: Final = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.CRASH_LATE)


@dataclass(frozen=True)
class Move:
    """One entry of a schedule.

    Attributes:
        who: an actor, which goes on with its next effect; or an accident of the world.
        fault: what goes wrong at that effect.
    """

    who: str
    fault: Fault | None = None

    def __str__(self) -> str:
        return f"{self.who} ({self.fault})" if self.fault else self.who


class Violation(Exception):
    """An invariant does not hold.

    Attributes:
        invariant: its name.
    """

    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(invariant, message)
        self.invariant = invariant

    def __str__(self) -> str:
        return ": ".join(self.args)


class NoAnswer(InfrastructureError):
    """What a client says when a request has failed, or nobody knows."""


class Killed(BaseException):
    """The process of an actor has died."""


@dataclass
class Process:
    """A process: it dies, stands still, and has a clock of its own.

    Attributes:
        name: its name.
        number: stands for its process id.
        skew: by how many seconds its clock is ahead.
    """

    name: str
    number: int
    is_dead: bool = False
    is_stopped: bool = False
    skew: float = 0.0


@dataclass
class Actor:
    """A thread of a process."""

    name: str
    process: Process
    gate: threading.Lock = field(default_factory=threading.Lock)
    label: str = "start"
    faults: tuple[Fault, ...] = ()
    fault: Fault | None = None
    wake_at: float = 0.0
    has_ended: bool = False
    failure: BaseException | None = None


class Schedule(Protocol):
    """Decides who goes on, and with which fault."""

    def next(self, kernel: "Kernel") -> Move | None:
        """Return the next move; None if it has no opinion."""


class Kernel:
    """The actors of one run, its time and what it has done.

    Args:
        schedule: decides.
        check: looks after each step whether the invariants hold; raises `Violation`.

    Attributes:
        now: the time, in seconds.
        accidents: what can happen to the world, by name.
        in_flight: requests that arrive later.
        is_quiet: whether nothing goes wrong any more.
        expected: how an actor may fail; anything else is a violation.
    """

    def __init__(self, schedule: Schedule, check: Callable[[], None]) -> None:
        self._schedule, self._check = schedule, check
        self._turn = threading.Lock()
        self._turn.acquire()
        self._running: Actor | None = None
        self._threads: list[threading.Thread] = []
        self.actors: dict[str, Actor] = {}
        self.accidents: dict[str, Callable[[], None]] = {}
        self.in_flight: list[tuple[str, Callable[[], object]]] = []
        self.now = 0.0
        self.steps = 0
        self.moves: list[Move] = []
        self.trace: list[str] = []
        self.is_quiet = False
        self.expected: tuple[type[BaseException], ...] = (OncelakeError,)

    def spawn(self, name: str, process: Process, body: Callable[[], object]) -> Actor:
        """Add an actor, which waits for its first turn."""
        actor = Actor(name, process)
        actor.gate.acquire()
        self.actors[name] = actor

        def live() -> None:
            actor.gate.acquire()
            try:
                if not process.is_dead:
                    body()
            except Killed:
                pass
            except BaseException as failure:  # noqa: BLE001 - the kernel decides what a failure means
                actor.failure = failure
            actor.has_ended = True
            self._turn.release()

        thread = threading.Thread(target=live, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()
        return actor

    def effect(
        self,
        label: str,
        action: Callable[[], Result],
        *,
        is_write: bool = False,
        again: Callable[[], Result] | None = None,
    ) -> Result:
        """Take a turn: what an actor calls for each effect on the world.

        Args:
            label: says what it is.
            action: does it, at once.
            is_write: whether it changes anything.
            again: what happens if the client sends it again after it has happened; None if it does not.
        """
        faults = ON_WRITES if is_write else ON_READS
        if is_write and again is None:
            faults = tuple(fault for fault in faults if fault is not Fault.ECHO)
        fault = self._wait(label, faults)
        if fault in (Fault.CRASH_BEFORE, Fault.CRASH_LATE, Fault.REFUSED, Fault.LATE):
            if fault in (Fault.LATE, Fault.CRASH_LATE):
                self.in_flight.append((label, action))
            raise Killed if fault in _CRASHES else NoAnswer(f"{label}: {fault}")
        result = action()
        if fault is Fault.ECHO and again is not None:
            return again()
        if fault in (Fault.LOST, Fault.CRASH_AFTER):
            raise Killed if fault in _CRASHES else NoAnswer(f"{label}: {fault}")
        return result

    def sleep(self, seconds: float, why: str) -> None:
        """Let an actor wait."""
        actor = self.current
        actor.wake_at = self.now + seconds
        self._wait(why, (Fault.CRASH_BEFORE, Fault.STOP))

    def work(self, job: Callable[[], object], times: int) -> None:
        """Do a job, and after a refusal again, as a supervisor starts it again.

        Args:
            job: the job.
            times: how often it is started at most.

        Raises:
            OncelakeError: it was refused each time.
        """
        for left in reversed(range(times)):
            try:
                job()
            except OncelakeError:
                if not left:
                    raise
                self.sleep(20, "is started again")
            else:
                return

    @property
    def current(self) -> Actor:
        """The actor whose turn it is."""
        if self._running is None:
            raise RuntimeError("it is nobody's turn")
        return self._running

    def clock(self, process: Process) -> datetime:
        """Return what the clock of a process says."""
        return _EPOCH + timedelta(seconds=self.now + process.skew)

    def _wait(self, label: str, faults: tuple[Fault, ...]) -> Fault | None:
        actor = self.current
        if actor.process.is_dead:
            raise Killed
        actor.label, actor.faults = label, faults
        self._turn.release()
        actor.gate.acquire()
        if actor.process.is_dead:
            raise Killed
        fault, actor.fault = actor.fault, None
        return fault

    def ready(self) -> list[Actor]:
        """Return the actors that can go on."""
        return [
            actor
            for actor in self.actors.values()
            if not actor.has_ended and not actor.process.is_stopped and actor.wake_at <= self.now
        ]

    def run(self) -> None:
        """Let all actors come to their end.

        Raises:
            Violation: an invariant does not hold.
        """
        while self._any_left():
            if self.steps >= _MOST_STEPS:
                raise Violation("ends", f"no end after {_MOST_STEPS} steps")
            move = self._schedule.next(self) or self._default()
            if self._apply(move):
                self.moves.append(move)
                self._check()

    def settle(self) -> None:
        """Let what is under way arrive, and those that stand still go on, without further faults."""
        self.is_quiet = True
        while self.in_flight:
            self._arrive(0)
            self._check()
        self.run()

    def come_to_rest(self) -> None:
        """Let all end and all arrive, and leases and transactions run out."""
        self.run()
        self.settle()
        self.now += _LONGER_THAN_ANY_TERM

    def close(self) -> None:
        """End all threads."""
        for actor in self.actors.values():
            actor.process.is_dead = True
            while not actor.has_ended:
                self._resume(actor)
        for thread in self._threads:
            thread.join()

    def _any_left(self) -> bool:
        return any(not actor.has_ended for actor in self.actors.values())

    def _default(self) -> Move:
        """Return what happens where the schedule says nothing: one after the other, and those that wait."""
        if ready := self.ready():
            # Two that wait in turns must not keep away what both wait for.
            return Move(min(ready, key=lambda actor: actor.wake_at).name)
        sleeping = [a for a in self.actors.values() if not a.has_ended and not a.process.is_stopped]
        if sleeping:
            return Move("time")
        stopped = next(a for a in self.actors.values() if not a.has_ended)
        return Move(f"wake {stopped.process.name}")

    def _apply(self, move: Move) -> bool:
        """Make a move; return False, with nothing done, if it cannot be made."""
        if move.who in self.actors:
            return self._step(self.actors[move.who], move.fault)
        kind, _, what = move.who.partition(" ")
        if kind == "time":
            return self._pass_time(float(what) if what else None)
        if kind == "wake":
            return self._wake(what)
        if kind == "arrive":
            return self._arrive(int(what or 0))
        if action := self.accidents.get(move.who):
            self._say(f"!! {move.who}")
            action()
            return True
        return False

    def _step(self, actor: Actor, fault: Fault | None) -> bool:
        if actor not in self.ready() or (fault and fault not in actor.faults):
            return False
        self.steps += 1
        self.now += 1.0
        self._say(f"{actor.name:<9} {actor.label}" + (f"   <-- {fault}" if fault else ""))
        if fault is Fault.STOP:
            actor.process.is_stopped = True
            return True
        actor.fault = fault
        if fault in _CRASHES:
            self._resume(actor)
            actor.process.is_dead = True
            for other in self.actors.values():
                while other.process is actor.process and not other.has_ended:
                    self._resume(other)
            return True
        self._resume(actor)
        if actor.has_ended and actor.failure is not None:
            self._say(f"{actor.name:<9} failed: {actor.failure}"[:160])
            if isinstance(actor.failure, Violation):
                raise actor.failure
            if not isinstance(actor.failure, self.expected):
                raise Violation("no surprise", repr(actor.failure)) from actor.failure
        return True

    def _resume(self, actor: Actor) -> None:
        self._running = actor
        actor.gate.release()
        self._turn.acquire()
        self._running = None

    def _pass_time(self, seconds: float | None) -> bool:
        if seconds is None:
            sleeping = [
                a.wake_at
                for a in self.actors.values()
                if not a.has_ended and not a.process.is_stopped and a.wake_at > self.now
            ]
            if not sleeping:
                return False
            seconds = min(sleeping) - self.now
        self.now += seconds
        self._say(f"!! {seconds:.0f} s pass")
        return True

    def _wake(self, name: str) -> bool:
        stopped = [a.process for a in self.actors.values() if a.process.name == name and a.process.is_stopped]
        for process in stopped:
            process.is_stopped = False
        if stopped:
            self._say(f"!! {name} goes on")
        return bool(stopped)

    def _arrive(self, number: int) -> bool:
        if number >= len(self.in_flight):
            return False
        label, action = self.in_flight.pop(number)
        self._say(f"!! arrives late: {label}")
        try:
            action()
        except self.expected as refused:
            # Nobody hears of it.
            self._say(f"!! refused: {refused}")
        return True

    def _say(self, text: str) -> None:
        self.trace.append(f"{self.now:7.0f} s  {text}")


def failures(actors: Iterable[Actor]) -> list[BaseException]:
    """Return how actors have failed."""
    return [actor.failure for actor in actors if actor.failure is not None]
