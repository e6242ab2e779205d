"""`python -m benchmarks`: how fast the steps are, against a raw append in the same run."""

import shutil
import sys
import tempfile
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import Progress

from benchmarks.events import PARTITIONS
from benchmarks.items import ITEMS
from benchmarks.results import show, show_nights, summarize, write
from benchmarks.runner import Result, Setup, chosen, run_items
from benchmarks.topic import fill_topic
from demo.topic import create_topic, delete_topic
from pipelines.errors import OncelakeError
from pipelines.runtime.local_broker import broker
from pipelines.runtime.processes import graceful_shutdown

_OUT: Final = Path(__file__).parent / "out"


@click.command("benchmarks")
@click.option("--events", default=2_000_000, show_default=True, type=click.IntRange(min=1_000))
@click.option(
    "--repeat", default=1, show_default=True, type=click.IntRange(min=1), help="Then medians are shown."
)
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(sorted(ITEMS)),
    help="Only this, what it needs, and the raw append. Repeatable.",
)
@click.option("--seed", default=1, show_default=True, help="The same seed gives the same events.")
@click.option("--cores", default=2, show_default=True, help="For each of Spark's processes.")
@click.option(
    "--batch-records",
    default=0,
    show_default=True,
    help="The most records that a micro-batch takes from Kafka; 0: all that are there.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting for Oncelake's own work, not for the raw append. Repeatable.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to write the results as JSON. [default: benchmarks/out/TIME.json]",
)
@graceful_shutdown()
def main(
    events: int,
    repeat: int,
    only: tuple[str, ...],
    seed: int,
    out: Path | None,
    **setup_options: Any,
) -> None:
    """Measure the steps on generated events, each in a fresh process once Spark is up; check their results.

    A Kafka broker is started for it, unless KAFKA_BOOTSTRAP_SERVERS names a cluster.
    """
    console = Console(stderr=True)
    _OUT.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="work-", dir=_OUT))
    try:
        with broker(folder / "broker") as running:
            topic = f"oncelake-benchmark-{uuid.uuid4().hex[:8]}"
            create_topic(running.bootstrap_servers, topic, PARTITIONS)
            try:
                with Progress(console=console, transient=True) as progress:
                    task = progress.add_task(f"sending {events:,} events", total=events)
                    truth = fill_topic(
                        running.bootstrap_servers, topic, events, seed, lambda n: progress.advance(task, n)
                    )
                setup = Setup(folder, running.bootstrap_servers, topic, truth, **setup_options)
                runs = [_one_run(console, setup, chosen(only), number) for number in range(1, repeat + 1)]
            finally:
                delete_topic(running.bootstrap_servers, topic)
    except OncelakeError as error:
        # The logs that the message names stay.
        console.print(f"[bold red]error:[/] {error}", highlight=False)
        sys.exit(error.exit_code)
    shutil.rmtree(folder)
    summary = summarize(runs, truth.records)
    path = out or _OUT / f"{datetime.now(UTC):%Y%m%dT%H%M%S}.json"
    write(path, setup, runs, summary)
    show(Console(), summary)
    show_nights(Console(), runs[-1])
    console.print(f"every result was right; all figures: {path}", highlight=False)


def _one_run(console: Console, setup: Setup, names: list[str], number: int) -> list[Result]:
    results = []
    with console.status(f"run {number}: {', '.join(names)}"):
        for result in run_items(setup, names, number):
            console.print(f"run {number}: {result.item} took {result.wall_s:.1f} s", highlight=False)
            results.append(result)
    return results


if __name__ == "__main__":
    main()
