"""`python -m benchmarks.cost_model`: what the streams cost at another size, from results of a benchmark.

The CPU time of a stream is taken to be the sum of three parts: one for the process (starting, compiling), one
for each event, one for each micro-batch. They are fitted by least squares of the relative errors.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
import numpy as np
from rich.console import Console
from rich.table import Table

STREAMS: Final = ("ingest", "speed")
_DAY_S: Final = 86_400
_MONTH_H: Final = 730
_SCALE: Final = np.array([1.0, 1e6, 10.0])
_RESULT: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


@dataclass(frozen=True)
class Run:
    """What one measured run of a stream cost.

    Attributes:
        stream: a name of `STREAMS`.
        events: how many events it processed.
        batches: in how many micro-batches.
        cpu_s: CPU seconds of all its processes.
    """

    stream: str
    events: int
    batches: int
    cpu_s: float


@dataclass(frozen=True)
class Cost:
    """The cost of a stream.

    Attributes:
        start_s: CPU seconds for each start of the process.
        event_us: CPU microseconds for each event.
        batch_s: CPU seconds for each micro-batch.
    """

    start_s: float
    event_us: float
    batch_s: float

    def cpu_s(self, events: float, batches: float, starts: int = 1) -> float:
        """Return the CPU seconds for so many events in so many micro-batches."""
        return starts * self.start_s + events * self.event_us / 1e6 + batches * self.batch_s


@dataclass(frozen=True)
class Load:
    """What a pipeline processes.

    Attributes:
        events_per_s: events for each second, on average.
        interval_s: trigger interval of both streams, in seconds.
        keys: dedup keys in the state at once.
        key_bytes: bytes of state for each key, on the disks of the executors.
        stored_bytes: bytes of bronze and speed layer for each event.
        retention_days: how long bronze keeps records, in days.
    """

    events_per_s: float
    interval_s: float
    keys: float
    key_bytes: float
    stored_bytes: float
    retention_days: float

    def cores(self, cost: Cost) -> float:
        """Return how many cores a stream keeps busy on average."""
        return cost.cpu_s(self.events_per_s, 1 / self.interval_s, starts=0)

    def state_gb(self) -> float:
        """Return the size of the state, in gigabytes."""
        return self.keys * self.key_bytes / 1e9

    def stored_gb(self) -> float:
        """Return the size of bronze and of as many days of the speed layer, in gigabytes."""
        return self.events_per_s * _DAY_S * self.retention_days * self.stored_bytes / 1e9


def runs_of(path: Path) -> list[Run]:
    """Return the runs of single streams in a file of results.

    Args:
        path: the JSON that `python -m benchmarks` has written.
    """
    return [
        Run(each["item"], each["events"], each["details"]["queries"][each["item"]]["batches"], each["cpu_s"])
        for each in json.loads(path.read_text(encoding="utf-8"))["results"]
        if each["item"] in STREAMS
    ]


def fit(runs: Sequence[Run]) -> Cost:
    """Return the cost of a stream, fitted to its runs.

    Raises:
        ValueError: the runs do not tell the cost of an event from that of a micro-batch or of the start.
    """
    terms = np.array([(1, run.events, run.batches) for run in runs], dtype=float).reshape(-1, 3) / _SCALE
    rows = terms / np.array([run.cpu_s for run in runs])[:, None]
    # Batches of one size grow with the events, but for one in which Spark finds the topic empty.
    if len(runs) < 3 or np.linalg.cond(rows) > 500:
        raise ValueError(
            f"found {len(runs)} runs; expected at least two sizes, and two values of --batch-records for each"
        )
    start_s, event_s, batch_s = np.linalg.lstsq(rows, np.ones(len(runs)), rcond=None)[0] / _SCALE
    return Cost(float(start_s), float(event_s) * 1e6, float(batch_s))


def _show_check(console: Console, costs: dict[str, Cost], paths: Sequence[Path]) -> None:
    table = Table("stream", "events", "micro-batches", "measured CPU s", "expected", "error", title="Check")
    for run in (run for path in paths for run in runs_of(path)):
        expected = costs[run.stream].cpu_s(run.events, run.batches)
        # A difference of almost nothing has a sign, which differs by processor.
        error = f"{round(expected / run.cpu_s - 1, 4) + 0.0:+.0%}"
        cells = (f"{run.events:,}", f"{run.batches:,}", f"{run.cpu_s:.1f}", f"{expected:.1f}", error)
        table.add_row(run.stream, *cells)
    console.print(table)


def _show_load(console: Console, costs: dict[str, Cost], load: Load, prices: tuple[float, float]) -> None:
    core_hour, gb_month = prices
    cores = {stream: load.cores(cost) for stream, cost in costs.items()}
    gigabytes = {"state, on local disks": load.state_gb(), "bronze and speed layer": load.stored_gb()}
    table = Table(
        "what", "amount", "a month", title=f"{load.events_per_s:,.0f} events/s, {load.keys:,.0f} keys"
    )
    for stream, amount in cores.items():
        table.add_row(stream, f"{amount:,.1f} cores", f"{amount * core_hour * _MONTH_H:,.0f}")
    for name, amount in gigabytes.items():
        table.add_row(name, f"{amount:,.0f} GB", f"{amount * gb_month:,.0f}")
    console.print(table)


@click.command("cost_model")
@click.argument("results", nargs=-1, required=True, type=_RESULT)
@click.option("--check", "checked", multiple=True, type=_RESULT, help="Results to predict, not to fit.")
@click.option("--events-per-second", "events_per_s", default=1e6, show_default=True)
@click.option(
    "--interval", "interval_s", default=10.0, show_default=True, help="Trigger interval, in seconds."
)
@click.option("--keys", default=1e10, show_default=True, help="Dedup keys in the state at once.")
@click.option(
    "--key-bytes",
    type=float,
    required=True,
    help="State for each key: disk MB of benchmarks.state, times a million, divided by its keys.",
)
@click.option(
    "--stored-bytes",
    type=float,
    required=True,
    help="Bronze and speed layer for each event.",
)
@click.option("--retention-days", default=30.0, show_default=True, help="How long bronze keeps records.")
@click.option("--core-hour", type=float, required=True, help="Price of a core for an hour.")
@click.option("--gb-month", type=float, required=True, help="Price of a gigabyte for a month.")
def main(
    results: tuple[Path, ...], checked: tuple[Path, ...], core_hour: float, gb_month: float, **load: float
) -> None:
    """Fit the cost of ingest and speed to RESULTS, and say what a load needs.

    RESULTS are JSON files of `python -m benchmarks --only speed`: two sizes or more, each with two values of
    --batch-records or more.
    """
    console = Console()
    runs = [run for path in results for run in runs_of(path)]
    try:
        costs = {stream: fit([run for run in runs if run.stream == stream]) for stream in STREAMS}
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    table = Table("stream", "µs CPU an event", "CPU s a micro-batch", "CPU s a start", title="Fitted")
    for stream, cost in costs.items():
        table.add_row(stream, f"{cost.event_us:.1f}", f"{cost.batch_s:.2f}", f"{cost.start_s:.1f}")
    console.print(table)
    if checked:
        _show_check(console, costs, checked)
    _show_load(console, costs, Load(**load), (core_hour, gb_month))


if __name__ == "__main__":
    main()
