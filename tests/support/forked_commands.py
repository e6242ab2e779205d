"""Commands in processes of their own that need not start Python and import all of it each time."""

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final

_WITHIN_S: Final = 60.0


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    returncode: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Commands:
    """Forks a process for each command from one that has imported `oncelake`, and has done nothing else."""

    process: "subprocess.Popen[str]"
    folder: Path

    def run(self, *words: str, script: str = "", **environment: str) -> Done:
        """Run `oncelake WORDS`, or a script in place of `oncelake`, with additions to the environment."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        asked = {"words": words, "script": script, "environment": environment, "folder": str(self.folder)}
        print(json.dumps(asked), file=self.process.stdin, flush=True)
        code = self.process.stdout.readline()
        assert code, "the process that forks has died"
        said = [(self.folder / name).read_text(encoding="utf-8") for name in ("stdout", "stderr")]
        return Done(int(code), *said)


@contextmanager
def commands(folder: Path) -> Iterator[Commands]:
    """What runs commands; it ends with the block."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.forked_commands"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Commands(process, folder)
        assert process.stdin is not None
        process.stdin.close()


def _run(words: Sequence[str], script: str, folder: str) -> int:
    """Run a command in this process, which does nothing else; return its exit code."""
    import runpy

    from pipelines.cli import main

    for number, name in enumerate(("stdout", "stderr"), 1):
        os.dup2(os.open(Path(folder, name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    try:
        if script:
            sys.argv = [script, *words]
            runpy.run_path(script, run_name="__main__")
        else:
            main(words)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - as Python does with what nobody catches
        traceback.print_exc()
        return 1
    return 0


def _fork_for_each() -> None:
    import signal

    from pipelines.cli.app import COMMANDS

    for module in {place.partition(":")[0] for place in COMMANDS.values()}:
        import_module(f"pipelines.cli.{module}")

    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            # One that hangs ends, with an exit code that no command has.
            signal.setitimer(signal.ITIMER_REAL, _WITHIN_S)
            os.environ.update(asked["environment"])
            code = _run(asked["words"], asked["script"], asked["folder"])
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    _fork_for_each()
