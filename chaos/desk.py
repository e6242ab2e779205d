"""Commands of an operator in one process, whose Java they share: a repair is not to wait for a cold start."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from chaos.jobs import ENVIRONMENT
from chaos.releases import Release
from pipelines.errors import InfrastructureError
from testbed.waiting import wait_until

PROGRAM: Final = str(Path(__file__).resolve().parents[1] / "tests" / "support" / "command_server.py")
_WITHIN_S: Final = 60.0


@dataclass
class Desk:
    """What runs commands one after the other, as those who call them would alone.

    Attributes:
        served: what Python runs to serve.
        folder: where its socket and its log are.
        release: the code that it runs from its next start on.
    """

    served: Sequence[str]
    folder: Path
    release: Release = field(default_factory=Release)
    _process: "subprocess.Popen[bytes] | None" = None

    @property
    def entry(self) -> tuple[str, ...]:
        """What Python runs as `oncelake` to have it done here."""
        return ("-S", "-P", PROGRAM, "ask", str(self._socket), "oncelake")

    @property
    def _socket(self) -> Path:
        return self.folder / "desk"

    def open(self) -> None:
        """Start it.

        Raises:
            InfrastructureError: it cannot be asked in time.
        """
        self._socket.unlink(missing_ok=True)
        log = self.folder / "desk.log"
        with log.open("ab") as said:
            self._process = process = subprocess.Popen(
                [sys.executable, *self.served, "serve", str(self._socket)],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
                env={**ENVIRONMENT, "PYTHONPATH": self.release.python_path},
            )
        wait_until(
            lambda: process.poll() is not None or self._socket.exists(), "commands can be run", _WITHIN_S
        )
        if process.poll() is not None:
            raise InfrastructureError(f"the process that runs commands has ended; see {log}")

    def close(self) -> None:
        """End it and its Java, whatever they are doing."""
        if self._process:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(_WITHIN_S)

    def open_again(self) -> None:
        """End what does not come to its end, and start another one."""
        self.close()
        self.open()


@contextmanager
def open_desk(served: Sequence[str], release: Release | None = None) -> Iterator[Desk]:
    """Run commands in one process for the length of a block.

    Args:
        served: what Python runs to serve, before `serve SOCKET`.
        release: the code that it runs; None for that of this checkout.
    """
    # The path of a socket has a hundred characters at most.
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        desk = Desk(served, Path(folder), release or Release())
        desk.open()
        try:
            yield desk
        finally:
            desk.close()
