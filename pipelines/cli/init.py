"""`oncelake init`: lay out a new project."""

import shlex
from pathlib import Path

import click

from pipelines.errors import ConfigError
from pipelines.runtime.scaffold import lay_out

_NEXT = """
A project is in {folder}. Next:

  cd {quoted}
  make plan                                 # check contract and configuration, and show what would run
  eval "$(make broker | grep '^export')"    # start a local Kafka broker, and export its address
  make sample                               # send one day of synthetic flights
  make run                                  # ingest, speed layer, nightly rebuild with its audit, report
"""


@click.command()
@click.argument("name", metavar="DIR", type=click.Path())
def init(name: str) -> None:
    """Create a project in DIR, a new or empty folder.

    It has contracts, configuration, jobs and a Makefile.
    """
    if not name:
        raise ConfigError("DIR: expected the name of a new or empty folder, got nothing.")
    folder = Path(name)
    try:
        _require_empty(folder)
        paths = lay_out(folder)
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be written: {error}. Name a folder that you may write to."
        ) from None
    for path in paths:
        click.echo(f"  {path.relative_to(folder)}")
    click.echo(_NEXT.format(folder=folder, quoted=shlex.quote(str(folder))))


def _require_empty(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; name a new or empty folder for the project.")
    if folder.is_dir() and (present := sorted(path.name for path in folder.iterdir())):
        raise ConfigError(
            f"{folder} is not empty (it has {', '.join(present[:3])}{', …' if len(present) > 3 else ''}); "
            "name a new or empty folder, so that nothing of yours is overwritten."
        )
