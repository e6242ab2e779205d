"""The lines that streams print, with the name of the stream: of several streams in one log."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import BinaryIO, Final

_LONGEST_LINE: Final = 1 << 20
_SAID_ERROR: Final = "error: "


@dataclass(frozen=True)
class StreamName:
    """Which stream it is.

    Attributes:
        pipeline: the name of its pipeline.
        stream: `ingest`, `speed` or `publish`.
    """

    pipeline: str
    stream: str

    def __str__(self) -> str:
        return f"{self.pipeline}/{self.stream}"


Mark = Callable[[StreamName, str], str]
"""Puts the name of a stream into a line that it printed."""


def mark_text(name: StreamName, line: str) -> str:
    """Return a line for people, behind the name of its stream."""
    return f"{name} | {line}"


def mark_json(name: StreamName, line: str) -> str:
    """Return a line as one JSON object that has `pipeline` and `stream`.

    A line that is no JSON object, such as one of Java, becomes the `message` of one.
    """
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        said = None
    fields = said if isinstance(said, dict) else {"message": line}
    return json.dumps({**fields, "pipeline": name.pipeline, "stream": name.stream})


@dataclass
class LastError:
    """The last error that a stream has told, for those who are notified.

    Attributes:
        text: what it said; None if it has said nothing.
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


@dataclass
class Printer:
    """Prints whole lines of several streams, each to where the stream printed it.

    Attributes:
        mark: names the stream in a line.
    """

    mark: Mark
    _lock: Lock = field(default_factory=Lock)

    def pass_on(self, lines: BinaryIO, to: int, name: StreamName, last_error: LastError) -> None:
        """Print the lines of a stream until it closes its output.

        A stream never waits for whoever reads this: what can no longer be written is dropped.

        Args:
            lines: what the stream prints.
            to: the file descriptor to write to.
            name: the stream.
            last_error: notes its errors.
        """
        with lines:
            while line := lines.readline(_LONGEST_LINE):
                text = line.decode(errors="replace").rstrip("\r\n")
                last_error.look_at(text)
                self.print(self.mark(name, text), to)

    def print(self, text: str, to: int) -> None:
        """Print a line as it is."""
        rest = memoryview(f"{text}\n".encode())
        with self._lock:
            try:
                while rest:
                    rest = rest[os.write(to, rest) :]
            except OSError:
                return
