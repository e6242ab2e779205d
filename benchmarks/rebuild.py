"""`python -m benchmarks.rebuild`: the nightly run of one large day, beside DuckDB on the same files."""

import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from benchmarks.events import PARTITIONS, Truth
from benchmarks.peers.catalogue import Peer, delta_files, visible_files
from benchmarks.peers.environment import python_of, variables_of
from benchmarks.peers.trial import Task, outcome
from benchmarks.runner import Setup, run_items
from benchmarks.topic import fill_topic
from demo.topic import create_topic, delete_topic
from pipelines.errors import InfrastructureError
from pipelines.runtime.local_broker import broker
from pipelines.runtime.processes import graceful_shutdown

_OUT: Final = Path(__file__).parent / "out"
_DUCKDB: Final = Peer("DuckDB", "duckdb_rebuild", visible_files, "duckdb")
_WITHIN_S: Final = 3600.0
_LABELS: Final = {"build": "rebuild alone", "rebuild": "rebuild with audit"}


@click.command("rebuild")
@click.option("--events", default=10_000_000, show_default=True, type=click.IntRange(min=1_000))
@click.option("--cores", default=2, show_default=True)
@click.option("--seed", default=1, show_default=True, help="The same seed gives the same events.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting. Repeatable.")
@graceful_shutdown()
def main(events: int, cores: int, seed: int, settings: tuple[str, ...]) -> None:
    """Rebuild one day with all events, by Oncelake and by DuckDB; both results are checked."""
    # Before the long work: it may not be had.
    python_of(_DUCKDB)
    _OUT.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="rebuild-", dir=_OUT))
    found: dict[str, dict[str, Any]] = {}
    try:
        with (
            broker(folder / "broker") as running,
            _topic(running.bootstrap_servers, events, seed) as (topic, truth),
        ):
            setup = Setup(folder, running.bootstrap_servers, topic, truth, cores, 0, settings)
            for result in run_items(setup, ["ingest", "speed", "rebuild"], 1):
                _say(f"{result.item}: {result.wall_s:.1f} s, {result.cpu_s:.1f} CPU s")
                if result.item in _LABELS:
                    cost = {"wall_s": result.wall_s, "cpu_s": result.cpu_s, "peak_mb": result.peak_mb}
                    found[_LABELS[result.item]] = cost
                if result.item == "rebuild":
                    bronze = next(folder.glob("run-*/steps/bronze/*"))
                    found[_DUCKDB.label] = _by_duckdb(folder, delta_files(bronze), cores, truth)
    finally:
        if found:
            Console().print(_table(found, events))
        _say(f"logs: {folder}")


@contextmanager
def _topic(servers: str, events: int, seed: int) -> Iterator[tuple[str, Truth]]:
    topic = f"oncelake-rebuild-{uuid.uuid4().hex[:8]}"
    create_topic(servers, topic, PARTITIONS)
    try:
        yield topic, fill_topic(servers, topic, events, seed)
    finally:
        delete_topic(servers, topic)


def _by_duckdb(folder: Path, files: list[Path], cores: int, truth: Truth) -> dict[str, Any]:
    _say("DuckDB ...")
    place = folder / "duckdb"
    place.mkdir()
    order = {"files": list(map(str, files)), "folder": str(place), "cores": cores}
    log = str(folder / "duckdb.log")
    task = Task(str(python_of(_DUCKDB)), _DUCKDB.program, order, variables_of(_DUCKDB), log, _WITHIN_S)
    run = task.run()
    if run["exit"]:
        raise InfrastructureError(f"DuckDB: exit code {run['exit']}: {task.complaint()}")
    rows = outcome(_DUCKDB, place, truth)
    if rows.duplicates or rows.missing:
        raise InfrastructureError(f"DuckDB: {rows}")
    return dict(run["cost"])


def _table(found: dict[str, dict[str, Any]], events: int) -> Table:
    table = Table(
        "work",
        "wall s",
        "CPU s",
        "peak MB",
        "times DuckDB's wall",
        title=f"One day of {events:,} records; of Oncelake without the start of Spark",
    )
    reference = found.get(_DUCKDB.label)
    for label, cost in found.items():
        times = cost["wall_s"] / reference["wall_s"] if reference else None
        table.add_row(
            label,
            f"{cost['wall_s']:.1f}",
            f"{cost['cpu_s']:.1f}",
            f"{cost['peak_mb']:,.0f}",
            "" if times is None else f"{times:.1f}",
        )
    return table


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
