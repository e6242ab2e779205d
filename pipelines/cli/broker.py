"""`oncelake broker`: a real Kafka broker on this machine."""

import sys
from pathlib import Path

import click

from pipelines.cli.parameter_types import Folder
from pipelines.runtime.local_broker import BOOTSTRAP_VARIABLE, running_broker, start_broker

_KAFKA_PORT = 9092
_folder = click.option(
    "--folder",
    type=Folder(),
    default=Path(".lake/broker"),
    show_default=True,
    help="Where the broker's data, configuration and log are.",
)


@click.group()
def broker() -> None:
    """Start and stop a local Kafka broker for development."""


@broker.command()
@_folder
def start(folder: Path) -> None:
    """Start a broker in the background, or show the running one. Its topics stay in the folder.

    It listens on localhost:9092, or on another port if that is taken.
    """
    running = start_broker(folder, _KAFKA_PORT)
    click.echo(f"broker runs: {running.bootstrap_servers} (pid {running.pid}, folder {running.folder})")
    click.echo(f"export {BOOTSTRAP_VARIABLE}={running.bootstrap_servers}")


@broker.command()
@_folder
def stop(folder: Path) -> None:
    """Stop the broker that was started in the folder; its topics stay."""
    running = running_broker(folder)
    if running is None:
        click.echo(f"no broker runs in {folder}")
        return
    running.stop()
    click.echo(f"broker stopped: {running.bootstrap_servers} (pid {running.pid})")


@broker.command()
@_folder
def status(folder: Path) -> None:
    """Show whether a broker runs in the folder: exit code 0 if so, otherwise 1."""
    running = running_broker(folder)
    if running is None:
        click.echo(f"no broker runs in {folder}")
        sys.exit(1)
    click.echo(f"broker runs: {running.bootstrap_servers} (pid {running.pid}, folder {running.folder})")
