"""What a row of `ops/leases` says, without Spark."""

import ast
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import click

from pipelines.cli.app import oncelake
from pipelines.ledger.lease_holders import HeldLease, Holder
from pipelines.steps import checkpoints, quarantine


def test_a_row_says_who_holds_the_lease_also_one_of_code_without_epochs() -> None:
    since = datetime(2013, 1, 1, 12, tzinfo=UTC)
    process = Holder("host", None, None, 7, 12.5)
    held = HeldLease("run", process, since, since + timedelta(minutes=5), epoch=3, job="maintain")
    row = held.row("flights@backfill")
    assert row == {
        "pipeline": "flights@backfill",
        "holder": "run",
        "since": since,
        "until": since + timedelta(minutes=5),
        "epoch": 3,
        "job": "maintain",
        "host": "host",
        "boot": None,
        "pid_namespace": None,
        "pid": 7,
        "process_started": 12.5,
    }
    assert HeldLease.of_row(row) == held
    assert held.words == "run run of maintain on host (pid 7)"
    # Times are read in the time zone of the session.
    there = row["until"].astimezone(timezone(timedelta(hours=9)))
    told = {name: value for name, value in row.items() if name != "job"}
    older = HeldLease.of_row({**told, "until": there, "epoch": None})
    assert (older.until.utcoffset(), older.epoch, older.job) == (timedelta(), None, None)
    assert older.words == "run run on host (pid 7)"


def calls_of(*functions: str) -> Iterator[tuple[str, ast.Call]]:
    """The calls of functions in the package, with where they are."""
    for path in sorted(Path("pipelines").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in functions:
                yield f"{path}:{node.lineno}", node


def is_command(words: str) -> bool:
    """Whether `oncelake WORDS` is a command."""
    command: click.Command | None = oncelake
    for word in words.split():
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)
    return command is not None


def test_each_run_that_takes_a_lease_says_which_command_it_is_of() -> None:
    calls = dict(calls_of("lease", "backfill_lease"))
    assert len(calls) >= 11
    assert [where for where, call in calls.items() if len(call.args) != 3] == []
    names = [call.args[2].value for call in calls.values() if isinstance(call.args[2], ast.Constant)]
    names += [checkpoints._JOB, *quarantine._JOBS.values()]
    assert [name for name in names if not is_command(str(name))] == []
