"""The signals that stop a process, and the processes that must not outlive it."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final

import psutil

PARENT_VARIABLE: Final = "ONCELAKE_ENDS_WITH_STDIN"
"""Set for a child process that is to end when the other end of its standard input is closed."""

ORPHAN_WITHIN_S: Final = 120.0
"""Seconds after which such a child is killed; a stream needs no longer to abandon its micro-batch."""

_STANDARD_INPUT: Final = 0
_STOP_WITHIN_S: Final = 30.0
# What Python or the system has put there; whatever else handles a signal has its reason.
_DEFAULTS: Final = (signal.SIG_DFL, signal.default_int_handler)


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that stop this process.

    Returns:
        SIGTERM and SIGINT (Ctrl-C); SIGHUP (the terminal is gone) as well, unless it is ignored, as under
        `nohup`.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return (signal.SIGTERM, signal.SIGINT)
    return (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def end_processes(processes: Iterable[psutil.Process], within_s: float) -> None:
    """Ask processes to end, kill those that do not, and wait for all.

    Args:
        processes: Known by id and start time, so an id that was given away since is left alone.
        within_s: Seconds until they are killed, and again until it is given up.
    """
    terminated = list(processes)
    for process in terminated:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _, alive = psutil.wait_procs(terminated, timeout=within_s)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=within_s)


def end_with_parent() -> None:
    """Let this process end when its parent is gone, if the parent has asked for it by `PARENT_VARIABLE`.

    The parent holds the other end of this process' standard input, which the system closes whatever the
    parent died of. This process then gets SIGTERM, and is killed if that does not end it in time.
    """
    # What this process starts has another standard input.
    if os.environ.pop(PARENT_VARIABLE, None):
        threading.Thread(target=_watch_parent, name="parent", daemon=True).start()


def _watch_parent() -> None:
    with suppress(OSError):
        while os.read(_STANDARD_INPUT, 1):
            pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(ORPHAN_WITHIN_S)
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def graceful_shutdown() -> Iterator[None]:
    """Let SIGTERM, SIGHUP and Ctrl-C unwind the stack, then end every process that is still below this one.

    The first signal interrupts the block as `KeyboardInterrupt`; later ones are ignored, so that nothing
    interrupts the clearing up. A signal that is ignored or handled by somebody else is left as it is. Outside
    the main thread, where no handler can be set, and inside another such block nothing is done.

    Raises:
        SystemExit: A signal has come; the code is 128 + its number, as a shell has it.
    """
    received: list[int] = []
    below: set[psutil.Process] = set()

    def leave(number: int, frame: FrameType | None) -> None:
        del frame
        if not received:
            received.append(number)
            # Later the children of a process that ended first would no longer be found below this one.
            below.update(_below())
            raise KeyboardInterrupt

    with _handled_by(leave) as is_handled:
        if not is_handled:
            yield
            return
        try:
            yield
        except KeyboardInterrupt:
            # Spark has a handler of its own for Ctrl-C, and raises the same.
            if not received:
                received.append(signal.SIGINT)
        finally:
            if received:
                end_processes(below | _below(), _STOP_WITHIN_S)
                raise SystemExit(128 + received[0])


def _below() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[bool]:
    """Set a handler where there is none; yield whether it was set for any signal."""
    before: dict[signal.Signals, Any] = {}
    # Only the main thread may set one.
    with suppress(ValueError):
        for number in stop_signals():
            if signal.getsignal(number) in _DEFAULTS:
                before[number] = signal.signal(number, handler)
    try:
        yield bool(before)
    finally:
        for number, previous in before.items():
            # Who has taken a signal over meanwhile keeps it until the process ends.
            if signal.getsignal(number) is handler:
                signal.signal(number, previous)
