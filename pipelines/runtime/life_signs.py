"""Signs of life that a process gives its parent, through a pipe that the parent has made.

Neither waits for the other: a child that is stopped says nothing, and what a parent does not read in time is
lost. A sign has no time, so that no clocks are compared.
"""

import os
import struct
import threading
import time
from contextlib import suppress
from functools import cache
from typing import Final, NamedTuple

SIGNS_VARIABLE: Final = "ONCELAKE_SIGNS_TO"
"""Set for a child process that is to give signs: the file descriptor of its end of the pipe."""

TOLD_EVERY_S: Final = 10.0
"""Seconds between two signs."""

# All of one length, so that a part of one is never read, nor written: a pipe takes so few bytes as a whole.
_LAYOUT: Final = struct.Struct("<qqd")
_READ_AT_ONCE: Final = 1_000
_NO_WORK: Final = -1


class Motion(NamedTuple):
    """How far the work of a process is.

    Attributes:
        moves: A number that is another one whenever something has moved since the last sign.
        done: How often it had nothing left to do, or was done with a part that is not begun anew.
        interval_s: Seconds that it may rest between two parts.
    """

    moves: int
    done: int
    interval_s: float


Sign = Motion | None
"""What a process says: how far its work is, or, None, only that it lives."""


class SignPipe:
    """The parent's end of a pipe, and until `hand_over` the child's as well."""

    def __init__(self) -> None:
        self._read_end, self.write_end = os.pipe()
        for end in (self._read_end, self.write_end):
            os.set_blocking(end, False)

    def hand_over(self) -> None:
        """Close the child's end, once the child has inherited it or cannot be started."""
        os.close(self.write_end)

    def received(self) -> list[Sign]:
        """Return the signs since the last call, the oldest first."""
        found = list[Sign]()
        # There is nothing to read now.
        with suppress(BlockingIOError):
            while signs := os.read(self._read_end, _READ_AT_ONCE * _LAYOUT.size):
                found += [
                    None if moves == _NO_WORK else Motion(moves, done, interval_s)
                    for moves, done, interval_s in _LAYOUT.iter_unpack(signs)
                ]
        return found

    def close(self) -> None:
        """Close the parent's end."""
        os.close(self._read_end)


class SignSender:
    """Gives signs to the parent.

    Args:
        descriptor: The child's end of the pipe.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def send(self, sign: Sign) -> None:
        """Give a sign; if the parent is gone, or reads none, nothing happens."""
        with suppress(OSError):
            os.write(self._descriptor, _LAYOUT.pack(*(sign or Motion(_NO_WORK, 0, 0.0))))


@cache
def sign_sender() -> SignSender | None:
    """Return what gives signs to the parent; None if the parent has not asked for any."""
    # What this process starts has no such descriptor.
    descriptor = os.environ.pop(SIGNS_VARIABLE, None)
    return SignSender(int(descriptor)) if descriptor else None


def tell_parent_of_life(every_s: float = TOLD_EVERY_S) -> None:
    """Let this process give signs that it lives, from now until it ends, if the parent has asked for it.

    Args:
        every_s: Seconds between two signs.
    """
    if sender := sign_sender():
        threading.Thread(target=_tell, args=(sender, every_s), name="life-signs", daemon=True).start()


def _tell(sender: SignSender, every_s: float) -> None:
    while True:
        sender.send(None)
        time.sleep(every_s)
