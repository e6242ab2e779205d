"""All commands in one group, each imported when it is asked for."""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Final

import click

import pipelines
from pipelines.cli.jobs import JOBS
from pipelines.cli.terminal import print_error
from pipelines.errors import ConfigError, OncelakeError
from pipelines.runtime.life_signs import tell_parent_of_life
from pipelines.runtime.processes import end_with_parent, graceful_shutdown

COMMANDS: Final[Mapping[str, str]] = {
    **JOBS,
    "run": "supervisor:run_streams",
    "checkpoint": "checkpoint:checkpoint",
    "quarantine": "quarantine:quarantine",
    "explain": "explain:explain",
    "forget": "forget:forget",
    "lag": "lag:lag",
    "console": "console:console",
    "reconcile": "reconcile:reconcile",
    "backfill": "backfill:backfill",
    "publish": "publish:publish",
    "rack": "rack:rack",
    "doctor": "doctor:doctor",
    "plan": "plan:plan",
    "contract": "contract:contract",
    "deploy": "deploy:deploy",
    "expectations": "expectations:expectations",
    "init": "init:init",
    "broker": "broker:broker",
    "catalog": "catalog:catalog",
    "jars": "jars:jars",
    "warm": "warm:warm",
}
"""Where each command is defined: the module in `pipelines.cli`, and its name there."""


class LazyCommands(click.Group):
    """Commands that are imported by name; after "Lazily Loading Subcommands" in click's documentation.

    A command starts in half the time: it does not import what others need.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, sorted."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(f"pipelines.cli.{module}"), name)
        return command


@click.group(
    cls=LazyCommands,
    epilog="Exit codes: 0 done, 1 retry, 2 invalid input, 3 audit or doctor failed, 4 source and lake differ."
    " See docs/runbook.md.",
)
@click.version_option(pipelines.__version__, prog_name="oncelake")
def oncelake() -> None:
    """Ingest Kafka into Delta; rebuild days nightly so that each certified day holds each event once."""
    try:
        Path.cwd()
    except OSError:
        raise ConfigError(
            "the folder in which this command runs is gone, or may not be read; change to the folder that has"
            " conf/, and start it again"
        ) from None


def run(arguments: Sequence[str] | None) -> None:
    """Run a command and leave the process with its exit code.

    Args:
        arguments: The words after the program's name; None for those of the command line.
    """
    end_with_parent()
    tell_parent_of_life()
    _escape_what_cannot_be_encoded()
    with graceful_shutdown():
        try:
            oncelake.main(args=arguments, prog_name="oncelake")
        except OncelakeError as error:
            print_error(str(error))
            sys.exit(error.exit_code)
        except OSError as error:
            # Such as a full disk behind standard output.
            print_error(
                f"a file, or standard output, cannot be read or written: {error}; fix that, and start again"
            )
            sys.exit(OncelakeError.exit_code)


def _escape_what_cannot_be_encoded() -> None:
    """Let no output end a command, whatever the encoding of the terminal or of the file that takes it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")
