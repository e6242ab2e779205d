"""All commands in one group."""

import sys
from collections.abc import Sequence

import click

import pipelines
from pipelines.cli.backfill import backfill
from pipelines.cli.broker import broker
from pipelines.cli.catalog import catalog
from pipelines.cli.checkpoint import checkpoint
from pipelines.cli.console import console
from pipelines.cli.contract import contract
from pipelines.cli.deploy import deploy
from pipelines.cli.doctor import doctor
from pipelines.cli.expectations import expectations
from pipelines.cli.explain import explain
from pipelines.cli.forget import forget
from pipelines.cli.init import init
from pipelines.cli.jars import jars
from pipelines.cli.jobs import JOBS
from pipelines.cli.lag import lag
from pipelines.cli.plan import plan
from pipelines.cli.publish import publish
from pipelines.cli.quarantine import quarantine
from pipelines.cli.rack import rack
from pipelines.cli.reconcile import reconcile
from pipelines.cli.supervisor import run_streams
from pipelines.cli.terminal import harmless_lines
from pipelines.cli.warm import warm
from pipelines.errors import OncelakeError
from pipelines.runtime.processes import end_with_parent, graceful_shutdown


@click.group()
@click.version_option(pipelines.__version__, prog_name="oncelake")
def oncelake() -> None:
    """Ingest Kafka into Delta; rebuild days nightly so that each certified day holds each event once."""


for command in (
    *JOBS,
    run_streams,
    checkpoint,
    quarantine,
    explain,
    forget,
    lag,
    console,
    reconcile,
    backfill,
    publish,
    catalog,
    rack,
    doctor,
    plan,
    contract,
    deploy,
    expectations,
    init,
    broker,
    jars,
    warm,
):
    oncelake.add_command(command)


def run(arguments: Sequence[str] | None) -> None:
    """Run a command and leave the process with its exit code.

    Args:
        arguments: the words after the program's name; None for those of the command line.
    """
    end_with_parent()
    with graceful_shutdown():
        try:
            oncelake.main(args=arguments, prog_name="oncelake")
        except OncelakeError as error:
            print(f"error: {harmless_lines(str(error))}", file=sys.stderr)
            sys.exit(error.exit_code)
