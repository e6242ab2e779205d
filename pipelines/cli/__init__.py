"""The command `oncelake`; the scripts in `jobs/` are the same entry points for spark-submit."""

import signal
from collections.abc import Sequence
from contextlib import suppress


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and leave the process with its exit code.

    Args:
        arguments: The words after the program's name; None for those of the command line.
    """
    # Ctrl-C while modules are imported would show where; `run` handles it. Only the main thread may set this.
    with suppress(ValueError):
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    # `python -m pipelines.cli` imports this package before it sets up `__main__`; PySpark, asked for its
    # Connect part in that state (by Great Expectations), takes it for a doctest and exits.
    from pipelines.cli.app import run

    run(arguments)
