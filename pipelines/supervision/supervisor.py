"""Starts streams, starts those again that failed or are stuck, and stops all of them together."""

import logging
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from random import SystemRandom
from typing import Final, Literal

from pipelines.errors import InfrastructureError, OncelakeError
from pipelines.supervision.child import Child, Program
from pipelines.supervision.ending import Ending
from pipelines.supervision.output import Printer, ProgramName
from pipelines.supervision.restarts import (
    REFUSALS,
    GivenUp,
    Restart,
    RestartHistory,
    RestartPolicy,
    Stopped,
    StreamExit,
    decide_restart,
    describe_end,
)
from pipelines.supervision.stuck import Patience, Stuck

_STOP_WITHIN_S: Final = 120.0
_KILLED_WITHIN_S: Final = 10.0
_LOOK_EVERY_S: Final = 5.0
# Of a process that was asked to end before it could say that it does so in good order.
_STOPPED_BY: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_WELL: Final = frozenset({0, *(-each for each in _STOPPED_BY), *(128 + each for each in _STOPPED_BY)})

_UNKILLABLE: Final = (
    "it does not end by SIGKILL either: a call to the system holds it, such as one to a file system that does"
    " not answer; it is started again once it has ended"
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StreamOutcome:
    """What became of a stream.

    Attributes:
        name: The stream.
        status: `stopped`, or `failed` if it was given up, or did not end when it was asked to; `stuck` only
            in what people are told meanwhile.
        exit_code: Of the stream, or 1 if it ended by a signal or in another way that Oncelake does not know.
        restarts: How often it was started again.
        error: Why it failed; None if it did not.
    """

    name: ProgramName
    status: Literal["stopped", "failed", "stuck"]
    exit_code: int
    restarts: int
    error: str | None = None


@dataclass
class _Stream:
    """A stream: it runs, or waits for its next start, or has an outcome."""

    program: Program
    patience: Patience
    due_s: float | None = None
    child: Child | None = None
    history: RestartHistory = field(default_factory=RestartHistory)
    restarts: int = 0
    outcome: StreamOutcome | None = None
    ending: Ending | None = None

    def drop(self, child: Child | None) -> None:
        """Forget a run that has ended."""
        self.child, self.ending = None, None
        if child:
            child.close()


@dataclass(frozen=True)
class _Ended:
    child: Child | None
    exit: StreamExit


@dataclass
class Supervisor:
    """Keeps streams running until each has an outcome.

    A stream that is given up leaves the others alone: they exchange data through tables alone, and records
    that ingest does not read may be deleted by Kafka.

    Attributes:
        policy: How often a stream is started again.
        printer: Prints the lines of the streams.
        alarm: Told of each stream that is given up or stuck, at once; must not block.
        stop_within_s: Seconds that streams have to end, once they are asked to, until they are killed.
        chance: Returns a number from 0 to 1, for the jitter of pauses.
        look_every_s: Seconds between two looks at streams that give signs of life.
    """

    policy: RestartPolicy
    printer: Printer
    alarm: Callable[[StreamOutcome], None]
    stop_within_s: float = _STOP_WITHIN_S
    chance: Callable[[], float] = SystemRandom().random
    look_every_s: float = _LOOK_EVERY_S
    _looked_s: float = field(default_factory=time.monotonic)
    _events: "SimpleQueue[tuple[_Stream, _Ended] | None]" = field(default_factory=SimpleQueue)

    def request_stop(self) -> None:
        """Ask for an end of all streams; may be called by a signal handler, and more than once."""
        # The one queue that a signal handler may put into while the main thread takes from it.
        self._events.put(None)

    def run(self, programs: Sequence[Program]) -> list[StreamOutcome]:
        """Run streams until all have an outcome: they were stopped, or given up.

        Args:
            programs: The streams.

        Returns:
            What became of each, in the same order.
        """
        now = time.monotonic()
        streams = [
            _Stream(each, Patience(each.stuck_after_s), now, history=RestartHistory(supervised_s=now))
            for each in programs
        ]
        while any(each.outcome is None for each in streams):
            self._start_due(streams)
            self._look(streams)
            try:
                event = self._events.get(timeout=self._until_next(streams))
            except Empty:
                continue
            if event is None:
                self._stop(streams)
                break
            self._take_end(*event)
        return [each.outcome for each in streams if each.outcome]

    def _start_due(self, streams: Sequence[_Stream]) -> None:
        now = time.monotonic()
        for each in streams:
            if each.due_s is not None and each.due_s <= now:
                each.due_s = None
                self._start(each)

    def _start(self, stream: _Stream) -> None:
        def at_end(child: Child, ended: StreamExit) -> None:
            self._events.put((stream, _Ended(child, ended)))

        try:
            stream.patience.begin()
            stream.child = Child(stream.program, self.printer, at_end)
            _log.info("%s: started, process %d", stream.program.name, stream.child.pid)
        except InfrastructureError as error:
            _log.warning("%s", error)
            now = time.monotonic()
            self._events.put((stream, _Ended(None, StreamExit(OncelakeError.exit_code, now, now))))

    def _look(self, streams: Sequence[_Stream]) -> None:
        """Look whether streams are stuck, and go on with the end of those that are."""
        now = time.monotonic()
        # If this process did not run, as while the machine was suspended, streams could give no signs.
        passed_s = min(now - self._looked_s, 2 * self.look_every_s)
        self._looked_s = now
        for each in streams:
            if each.ending:
                if each.ending.go_on(now):
                    self._tell(each, each.ending.stuck.evidence, _UNKILLABLE)
            elif each.child and (stuck := each.patience.look(each.child.signs(), passed_s)):
                self._end_stuck(each, each.child, stuck)

    def _end_stuck(self, stream: _Stream, child: Child, stuck: Stuck) -> None:
        since_s = max(time.monotonic() - stuck.for_s, child.began_s)
        stream.ending = Ending(child, stuck, since_s, self.stop_within_s)
        self._tell(stream, stuck.evidence, "it is ended and started again")
        stream.ending.go_on(time.monotonic())

    def _tell(self, stream: _Stream, evidence: str, what: str) -> None:
        name, said = stream.program.name, f"{evidence}; {what}"
        _log.error("%s: stuck: %s", name, said)
        self.alarm(StreamOutcome(name, "stuck", OncelakeError.exit_code, stream.restarts, said))

    def _until_next(self, streams: Sequence[_Stream]) -> float | None:
        """Return the seconds until something is to be done; None if nothing is."""
        seconds = [max(each.due_s - time.monotonic(), 0) for each in streams if each.due_s is not None]
        if any(each.child and each.program.stuck_after_s for each in streams):
            seconds.append(self.look_every_s)
        return min(seconds, default=None)

    def _take_end(self, stream: _Stream, ended: _Ended) -> None:
        name, said = stream.program.name, ended.child.last_error.text if ended.child else None
        exit_ = ended.exit
        if ending := stream.ending:
            exit_, said = replace(exit_, stuck_s=exit_.ended_s - ending.since_s), ending.stuck.evidence
        stream.drop(ended.child)
        decision = decide_restart(self.policy, stream.history, exit_, self.chance())
        match decision:
            case Restart():
                stream.history, stream.restarts = decision.history, stream.restarts + 1
                stream.due_s = time.monotonic() + decision.pause_s
                _log.warning(
                    "%s: %s%s; it is started again in %.1f s",
                    *(name, describe_end(exit_), f": {said}" if said else "", decision.pause_s),
                )
            case Stopped():
                stream.outcome = StreamOutcome(name, "stopped", 0, stream.restarts)
                _log.info("%s: ended with exit code 0; it is not started again", name)
            case GivenUp():
                reason = f"{decision.reason}{f': {said}' if said else ''}"
                is_refusal = exit_.stuck_s is None and exit_.code in REFUSALS
                code = exit_.code if is_refusal else OncelakeError.exit_code
                stream.outcome = StreamOutcome(name, "failed", code, stream.restarts, reason)
                _log.error("%s: not restarted any more; other streams keep running: %s", name, reason)
                self.alarm(stream.outcome)
        if stream.outcome and stream.program.lock:
            # Whoever has fixed the cause may run this stream alone, beside the others.
            stream.program.lock.release()

    def _stop(self, streams: Sequence[_Stream]) -> None:
        """Ask all streams to end, and kill those that do not."""
        running = [each for each in streams if each.child]
        _log.info("stopping %d streams, for at most %g s", len(running), self.stop_within_s)
        for each in streams:
            if each.child:
                each.child.stop()
            elif each.outcome is None:
                each.outcome = StreamOutcome(each.program.name, "stopped", 0, each.restarts)
        self._take_last_ends(running, self.stop_within_s)
        for each in running:
            if each.child:
                error = f"did not end within {self.stop_within_s:g} s of SIGTERM, and was killed"
                code = OncelakeError.exit_code
                each.outcome = StreamOutcome(each.program.name, "failed", code, each.restarts, error)
                _log.error("%s: %s", each.program.name, error)
                each.child.kill()
        self._take_last_ends(running, _KILLED_WITHIN_S)

    def _take_last_ends(self, running: Sequence[_Stream], within_s: float) -> None:
        deadline = time.monotonic() + within_s
        while any(each.child for each in running):
            try:
                event = self._events.get(timeout=max(deadline - time.monotonic(), 0))
            except Empty:
                return
            if event:
                stream, ended = event
                stream.outcome = stream.outcome or _of_stopped(stream, ended)
                stream.drop(ended.child)


def _of_stopped(stream: _Stream, ended: _Ended) -> StreamOutcome:
    name, code = stream.program.name, ended.exit.code
    if code in _WELL:
        return StreamOutcome(name, "stopped", 0, stream.restarts)
    if stream.ending:
        error = f"stuck: {stream.ending.stuck.evidence}"
        return StreamOutcome(name, "failed", OncelakeError.exit_code, stream.restarts, error)
    said = ended.child.last_error.text if ended.child else None
    known = code if code in REFUSALS else OncelakeError.exit_code
    return StreamOutcome(
        name,
        "failed",
        known,
        stream.restarts,
        f"exit code {code} when it was asked to end: {said or 'see the log'}",
    )
