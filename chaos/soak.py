"""Run a pipeline for hours without faults, and see that nothing grows and nothing is lost: `make soak`."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from chaos.run import Plan, play
from chaos.schedule import Fault, Kind, schedule
from chaos.traffic import Burst
from demo.cast import ROOT
from pipelines.errors import OncelakeError
from pipelines.runtime.processes import graceful_shutdown

_UPKEEP_S: Final = 1800.0
_BURST_S: Final = 60.0
_BURST_TIMES: Final = 10


def _every(seconds: float) -> Iterator[float]:
    """Yield the moments of a run at which `maintain` is started."""
    at_s = min(_UPKEEP_S, seconds) / 2
    while at_s < seconds:
        yield at_s
        at_s += _UPKEEP_S


def _burst(seconds: float) -> Burst:
    """Return when producers send ten times as much: long before what streams hold is compared."""
    return Burst(seconds / 10, seconds / 10 + min(_BURST_S, seconds / 30), _BURST_TIMES)


@click.command()
@click.option("--hours", default=1.0, show_default=True, help="How long records are sent.")
@click.option("--rate", default=200.0, show_default=True, help="Records a second.")
@click.option("--seed", default=0, show_default=True, help="Decides what is sent.")
@click.option(
    "--record", type=click.Path(dir_okay=False, path_type=Path), help="Where the report is written, too."
)
@click.option(
    "--folder", type=click.Path(path_type=Path), default=ROOT / "out" / "soak", help="Where everything goes."
)
def soak(hours: float, rate: float, seed: int, record: Path | None, folder: Path) -> None:
    """Run ingest, speed, publishing, nightly runs and maintain with the settings of production.

    For a minute, producers send ten times as much. Memory, open files, threads and checkpoints of the streams
    are sampled. The exit code is 1 if one of these has grown all the time, if ingest is behind at the end, or
    if anything was lost, doubled or changed, see `python -m chaos`.
    """
    seconds, names = hours * 3600, ("north",)
    upkeep = [Fault(at_s, Kind.MAINTAIN, each) for each in names for at_s in _every(seconds)]
    nights = [each for each in schedule(seed, seconds, names, ()) if each.kind is Kind.NIGHTLY]
    faults = sorted(nights + upkeep, key=lambda each: each.at_s)
    plan = Plan(seed, seconds, rate, names, faults, is_soak=True, burst=_burst(seconds))
    try:
        with graceful_shutdown():
            report = play(plan, folder.absolute())
    except OncelakeError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    for file in filter(None, (folder / "report.json", record)):
        report.write(file)
    click.echo("\n".join(report.lines()))
    click.echo(f"{folder}/report.json")
    sys.exit(0 if report.is_good else 1)


if __name__ == "__main__":
    soak()
