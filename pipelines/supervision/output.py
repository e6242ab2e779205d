"""The lines that streams print, with the name of the stream: of several streams in one log."""

import json
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Condition, Lock, Thread
from typing import BinaryIO, Final, Protocol

STANDARD_OUTPUT: Final = 1
STANDARD_ERROR: Final = 2
"""The file descriptors to which processes print."""

_LONGEST_LINE: Final = 1 << 20
_MOST_WAITING: Final = 8 << 20
_FLUSHED_WITHIN_S: Final = 5.0
_SAID_ERROR: Final = "error: "


@dataclass(frozen=True)
class ProgramName:
    """Which stream it is.

    Attributes:
        pipeline: The name of its pipeline.
        stream: `ingest`, `speed` or `publish`; the ingest of a further cluster is `ingest@CLUSTER`.
    """

    pipeline: str
    stream: str

    def __str__(self) -> str:
        return f"{self.pipeline}/{self.stream}"


LineLabel = Callable[[ProgramName, str], str]
"""Puts the name of a stream into a line that it printed."""


def label_text(name: ProgramName, line: str) -> str:
    """Return a line for people, behind the name of its stream."""
    return f"{name} | {line}"


def label_json(name: ProgramName, line: str) -> str:
    """Return a line as one JSON object that has `pipeline` and `stream`.

    A line that is no JSON object, such as one of Java, becomes the `message` of one.
    """
    marks = {"pipeline": name.pipeline, "stream": name.stream}
    try:
        said = json.loads(line)
        # To Python NaN is JSON, and a number that is too large is another one.
        return json.dumps(
            {**(said if isinstance(said, dict) else {"message": line}), **marks}, allow_nan=False
        )
    except (ValueError, RecursionError):
        return json.dumps({"message": line, **marks})


@dataclass
class LastError:
    """The last error that a stream has told, for those who are notified.

    Attributes:
        text: What it said; None if it has said nothing.
    """

    text: str | None = None

    def look_at(self, line: str) -> None:
        """Take a line into account: a message on a terminal, or the JSON summary of a job."""
        if line.startswith(_SAID_ERROR):
            self.text = line.removeprefix(_SAID_ERROR)
        elif line.startswith("{") and '"error"' in line:
            try:
                error = json.loads(line).get("error")
            except (ValueError, RecursionError):
                return
            self.text = error if isinstance(error, str) else self.text


class LineTaker(Protocol):
    """Takes the lines that a child process prints."""

    def pass_on(self, lines: BinaryIO, to: int, name: ProgramName, last_error: LastError) -> None:
        """Take lines until the process closes its output; as `Printer.pass_on`."""


class _Outlet:
    """Writes lines to a file descriptor in a thread of its own, as fast as they are read there."""

    def __init__(self, to: int, mark: LineLabel, most_bytes: int) -> None:
        self._to, self._mark, self._most_bytes = to, mark, most_bytes
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self._dropped: dict[ProgramName, int] = {}
        self._changed = Condition()
        Thread(target=self._write, name=f"output-{to}", daemon=True).start()

    def put(self, name: ProgramName, line: str) -> None:
        """Have a line written; if too many wait already, it is dropped and counted."""
        text = f"{line}\n".encode()
        with self._changed:
            if self._bytes + len(text) > self._most_bytes:
                self._dropped[name] = self._dropped.get(name, 0) + 1
                return
            self._tell_dropped(name)
            self._append(text)

    def flush(self, within_s: float) -> None:
        """Wait until all lines are written, for so many seconds at most."""
        with self._changed:
            for name in [*self._dropped]:
                self._tell_dropped(name)
            self._changed.wait_for(lambda: not self._bytes, within_s)

    def _tell_dropped(self, name: ProgramName) -> None:
        if count := self._dropped.pop(name, 0):
            words = f"{count} lines were dropped here, since nobody read them in time"
            self._append(f"{self._mark(name, words)}\n".encode())

    def _append(self, text: bytes) -> None:
        self._lines.append(text)
        self._bytes += len(text)
        self._changed.notify_all()

    def _write(self) -> None:
        is_open = True
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._lines))
                text = self._lines.popleft()
            is_open = is_open and _is_written(self._to, text)
            with self._changed:
                # Counted until it is written, so that who waits for that waits for all of it.
                self._bytes -= len(text)
                self._changed.notify_all()


def _is_written(to: int, text: bytes) -> bool:
    """Write a text; return whether there is still somebody who can read."""
    rest = memoryview(text)
    try:
        while rest:
            rest = rest[os.write(to, rest) :]
    except OSError:
        return False
    return True


@dataclass
class Printer:
    """Prints whole lines of several streams, each to where the stream printed it.

    Attributes:
        label: Names the stream in a line.
        most_bytes: Lines of so many bytes wait for whoever reads them; more are dropped and counted.
    """

    label: LineLabel
    most_bytes: int = _MOST_WAITING
    _outlets: dict[int, _Outlet] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def pass_on(self, lines: BinaryIO, to: int, name: ProgramName, last_error: LastError) -> None:
        """Print the lines of a stream until it closes its output.

        A stream never waits for whoever reads this: what cannot be written in time, or no longer, is dropped.

        Args:
            lines: What the stream prints.
            to: The file descriptor to write to.
            name: The stream.
            last_error: Notes its errors.
        """
        with self._lock:
            outlet = self._outlets.get(to) or _Outlet(to, self.label, self.most_bytes)
            self._outlets[to] = outlet
        with lines:
            while line := lines.readline(_LONGEST_LINE):
                text = line.decode(errors="replace").rstrip("\r\n")
                last_error.look_at(text)
                outlet.put(name, self.label(name, text))

    def flush(self, within_s: float = _FLUSHED_WITHIN_S) -> None:
        """Wait until the lines so far are written, for so many seconds at most if nobody reads them."""
        with self._lock:
            outlets = [*self._outlets.values()]
        for each in outlets:
            each.flush(within_s)


@dataclass
class ResultTaker:
    """Keeps the last line that a process prints, its result; what it says beside that is printed.

    Attributes:
        printer: Prints what comes by standard error.
        last_line: The last line of standard output; empty if there is none.
    """

    printer: Printer
    last_line: str = ""

    def pass_on(self, lines: BinaryIO, to: int, name: ProgramName, last_error: LastError) -> None:
        """Take lines until the process closes its output; as `Printer.pass_on`."""
        if to == STANDARD_ERROR:
            self.printer.pass_on(lines, to, name, last_error)
            return
        with lines:
            for line in lines:
                self.last_line = line.decode(errors="replace")
