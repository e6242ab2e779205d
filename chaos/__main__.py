"""Run real processes under random faults: `make chaos MINUTES=3 SEED=1`."""

import sys
from pathlib import Path
from typing import Final

import click

from chaos.planted import OUTSIDE, PATCHED
from chaos.report import Report
from chaos.run import Plan, play
from chaos.schedule import OF_EXECUTORS, RANDOM, Kind, schedule, with_upgrade
from demo.cast import ROOT
from pipelines.errors import OncelakeError
from pipelines.runtime.processes import graceful_shutdown

_PIPELINES: Final = ("north", "south")
_OUTSIDE: Final = "outside"
_RATE: Final = 40.0


@click.command()
@click.option(
    "--seed", default=0, show_default=True, help="Decides what is sent, and which faults happen when."
)
@click.option("--minutes", default=3.0, show_default=True, help="How long faults happen.")
@click.option("--pipelines", default=1, show_default=True, type=click.IntRange(1, len(_PIPELINES)))
@click.option(
    "--pipeline",
    "named",
    multiple=True,
    type=click.Choice(_PIPELINES),
    help="Which pipelines; overrides --pipelines. Values of south name a schema of a registry.",
)
@click.option(
    "--executors",
    default=0,
    show_default=True,
    type=click.IntRange(0, 4),
    help="How many processes run the tasks of each job; they are killed and stopped, too. 0: its JVM does.",
)
@click.option(
    "--upgrade-from",
    "upgraded_from",
    default="",
    metavar="COMMIT",
    help="Begin with the code of an earlier commit, and upgrade in the middle of the run.",
)
@click.option(
    "--fault", "faults", multiple=True, type=click.Choice([kind.name for kind in (*RANDOM, *OF_EXECUTORS)])
)
@click.option("--quiet", is_flag=True, help="No faults but nightly runs and maintain.")
@click.option("--plant", type=click.Choice([_OUTSIDE, *PATCHED]), help="A fault that the oracle has to find.")
@click.option(
    "--record",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the report is written, too, as JSON; python -m chaos.ledger sums such files.",
)
@click.option("--show", is_flag=True, help="Print the schedule alone.")
@click.option(
    "--folder", type=click.Path(path_type=Path), default=ROOT / "out" / "chaos", help="Where everything goes."
)
def chaos(  # noqa: PLR0913, PLR0917 - options of a command
    seed: int,
    minutes: float,
    pipelines: int,
    named: tuple[str, ...],
    executors: int,
    upgraded_from: str,
    faults: tuple[str, ...],
    quiet: bool,
    plant: str | None,
    show: bool,
    record: Path | None,
    folder: Path,
) -> None:
    """Run pipelines under random faults, and hold what they hold against what was sent.

    The same seed and minutes give the same records and the same schedule. The exit code is 1 if something
    is violated; with --plant, if the planted fault is not found.
    """
    if upgraded_from and plant in PATCHED:
        raise click.UsageError("--upgrade-from and --plant: a planted job has the code of this checkout")
    names = named or _PIPELINES[:pipelines]
    if not executors and {*faults} & {kind.name for kind in OF_EXECUTORS}:
        raise click.UsageError("a fault of executors needs some: add --executors 2")
    every = (*RANDOM, *OF_EXECUTORS) if executors else RANDOM
    kinds = () if quiet else tuple(Kind[name] for name in faults) or every
    seconds = minutes * 60
    planned = schedule(seed, seconds, names, kinds)
    planned = with_upgrade(planned, seconds) if upgraded_from else planned
    click.echo("\n".join(map(str, planned)))
    if show:
        return
    plan = Plan(
        seed,
        seconds,
        _RATE,
        names,
        planned,
        patch=plant if plant in PATCHED else None,
        outside=OUTSIDE if plant == _OUTSIDE else (),
        executors=executors,
        upgraded_from=upgraded_from,
    )
    report = _played(plan, folder)
    for file in filter(None, (folder / "report.json", record)):
        report.write(file)
    click.echo("\n".join(report.lines()))
    click.echo(f"{folder}/report.json; again: python -m chaos {' '.join(sys.argv[1:])}")
    sys.exit(0 if report.is_good else 1)


def _played(plan: Plan, folder: Path) -> Report:
    try:
        with graceful_shutdown():
            return play(plan, folder.absolute())
    except OncelakeError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    chaos()
