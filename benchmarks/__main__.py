"""`python -m benchmarks`: how fast the steps are, against a raw append in the same run."""

import shutil
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks.events import PARTITIONS
from benchmarks.items import ITEMS
from benchmarks.results import Report, show
from benchmarks.runner import Result, Setup, chosen, run_items
from benchmarks.topic import fill_topic
from demo.topic import create_topic, delete_topic
from pipelines.errors import OncelakeError
from pipelines.runtime.local_broker import broker
from pipelines.runtime.processes import graceful_shutdown

_OUT: Final = Path(__file__).parent / "out"
_LEAST: Final = 1_000
# Starting Spark and checking the result take about as long as appending so many records.
_START: Final = 1_000_000


def _sizes(context: click.Context, option: click.Parameter, value: str) -> tuple[int, ...]:
    del context, option
    texts = value.replace("_", "").split(",")
    if not all(text.isdigit() and int(text) >= _LEAST for text in texts):
        raise click.BadParameter(f"found {value}; expected numbers from {_LEAST:,}, with commas between them")
    return tuple(sorted(set(map(int, texts))))


@dataclass(frozen=True)
class Bench:
    """What is measured, and where that is told.

    Attributes:
        console: for people.
        sizes: how many events each topic gets, the fewest first.
        names: of the items, in order.
        repeat: how often everything is measured.
        seed: of the events.
        options: the rest of each `Setup`.
    """

    console: Console
    sizes: tuple[int, ...]
    names: Sequence[str]
    repeat: int
    seed: int
    options: dict[str, Any]

    def measure(self, folder: Path) -> Iterator[Result]:
        """Measure everything, and yield each result as soon as it is there."""
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("left:"), TimeRemainingColumn())
        with (
            broker(folder / "broker") as running,
            # The speed is that of the whole run: a piece of work may take longer than rich looks back.
            Progress(*columns, console=self.console, transient=True, speed_estimate_period=3600) as progress,
        ):
            task = progress.add_task("", total=self.repeat * sum(map(self._cost, self.sizes)))
            for events in self.sizes:
                topic = f"oncelake-benchmark-{uuid.uuid4().hex[:8]}"
                create_topic(running.bootstrap_servers, topic, PARTITIONS)
                try:
                    progress.update(task, description=f"{events:,} events: sending")
                    truth = fill_topic(running.bootstrap_servers, topic, events, self.seed)
                    setup = Setup(folder, running.bootstrap_servers, topic, truth, **self.options)
                    for repetition in range(1, self.repeat + 1):
                        progress.update(task, description=f"{events:,} events, run {repetition}")
                        for result in run_items(setup, self._names(events), repetition):
                            yield result
                            if result.item in ITEMS:
                                progress.advance(task, self._cost_of(result.item, events))
                finally:
                    delete_topic(running.bootstrap_servers, topic)

    def _cost(self, events: int) -> float:
        """Return about how long a run takes, in raw appends of one record."""
        return sum(self._cost_of(name, events) for name in self._names(events))

    def _names(self, events: int) -> list[str]:
        most = max(self.sizes)
        return [name for name in self.names if events == most or not ITEMS[name].with_most_alone]

    def _cost_of(self, name: str, events: int) -> float:
        return _START + ITEMS[name].weight * events


@click.command("benchmarks")
@click.option(
    "--events",
    "sizes",
    default="500000,2000000",
    show_default=True,
    callback=_sizes,
    help="How many events: two or more sizes, with commas between, show what one more event costs. With"
    " a few hundred thousand at most, compiling counts for more than events.",
)
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
    help="The most records that a micro-batch takes, of speed about; 0: all that are there.",
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
    help="Where to write the results as JSON; a page and Markdown go beside it."
    " [default: benchmarks/out/TIME.json]",
)
@graceful_shutdown()
def main(
    sizes: tuple[int, ...],
    repeat: int,
    only: tuple[str, ...],
    seed: int,
    out: Path | None,
    **options: Any,
) -> None:
    """Measure the steps on generated events, each in a fresh process once Spark is up; check their results.

    What was measured is written at once, so a run that is ended keeps it. A Kafka broker is started, unless
    KAFKA_BOOTSTRAP_SERVERS names a cluster.
    """
    console = Console(stderr=True)
    report = Report(
        out or _OUT / f"{datetime.now(UTC):%Y%m%dT%H%M%S}.json",
        {"events": list(sizes), "repetitions": repeat, "seed": seed, **options},
    )
    _OUT.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="work-", dir=_OUT))
    results: list[Result] = []
    try:
        for result in Bench(console, sizes, chosen(only), repeat, seed, options).measure(folder):
            results.append(result)
            report.write(results)
            console.print(
                f"{result.events:,} events, run {result.repetition}: {result.item}"
                f" took {result.wall_s:.1f} s, {result.cpu_s:.1f} CPU s",
                highlight=False,
            )
        console.print("every result was right")
    except OncelakeError as error:
        # The logs that the message names stay.
        console.print(f"[bold red]error:[/] {error}", highlight=False)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        if results:
            show(Console(), results)
            console.print(f"written: {report.path}, .html and .md", highlight=False, soft_wrap=True)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
