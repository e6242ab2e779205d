"""Simulate the protocols: `make simulate SEED=0 RUNS=5000`."""

import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.sharedctypes import Synchronized
from typing import Final

import click

from simulation.backfill import BackfillWorld
from simulation.index import IndexWorld
from simulation.nightly import NightlyWorld
from simulation.publishing import PublishingWorld
from simulation.replay import ReplayWorld
from simulation.retention import RetentionWorld
from simulation.retention_overtaken import OvertakenUpkeepWorld
from simulation.runs import MakeWorld, Outcome, Totals, play, shortest_history
from simulation.sealing import SealingWorld

PROTOCOLS: Final[dict[str, MakeWorld]] = {
    "nightly": NightlyWorld,
    "publishing": PublishingWorld,
    "sealing": SealingWorld,
    "backfill": BackfillWorld,
    "retention": RetentionWorld,
    "upkeep": OvertakenUpkeepWorld,
    "index": IndexWorld,
    "replay": ReplayWorld,
}
_CHUNK: Final = 250
_SHOWN: Final = 3


def simulated(protocol: str, seeds: range) -> Totals:
    """Play a run of a protocol for each seed."""
    logging.disable(logging.CRITICAL)
    totals = Totals()
    for seed in seeds:
        totals.add(seed, play(PROTOCOLS[protocol], seed))
    return totals


def keep_to_a_core(started: "Synchronized[int]") -> None:
    """Let a process run on one core: its threads take turns, and hand over sooner there.

    Args:
        started: how many processes have been started.
    """
    with started.get_lock():
        number = started.value
        started.value += 1
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[number % len(cores)]})


def chunks(seeds: range) -> Iterator[range]:
    """Divide seeds among processes."""
    for first in range(seeds.start, seeds.stop, _CHUNK):
        yield range(first, min(first + _CHUNK, seeds.stop))


@click.command()
@click.option("--seed", default=0, show_default=True, help="The first seed; each run has one, in a row.")
@click.option("--runs", default=5_000, show_default=True, help="How many runs of each protocol.")
@click.option("--protocol", type=click.Choice(list(PROTOCOLS)), multiple=True, help="Default: all of them.")
@click.option("--processes", default=os.cpu_count() or 1, show_default=True, help="How many at a time.")
def simulate(seed: int, runs: int, protocol: tuple[str, ...], processes: int) -> None:
    """Play random histories of the protocols, and check their invariants after each step.

    A seed replays its run. Of a run that fails, the shortest history that can be found is printed.
    """
    seeds, failed = range(seed, seed + runs), False
    started = multiprocessing.Value("i", 0)
    with ProcessPoolExecutor(processes, initializer=keep_to_a_core, initargs=(started,)) as pool:
        for name in protocol or PROTOCOLS:
            began, totals = time.monotonic(), Totals()
            parts = list(chunks(seeds))
            for part in pool.map(simulated, [name] * len(parts), parts):
                totals += part
            click.echo(_summary(name, seeds, totals, time.monotonic() - began))
            for failing in sorted(totals.violations)[:_SHOWN]:
                click.echo(_history(name, failing))
            failed = failed or bool(totals.violations)
    sys.exit(1 if failed else 0)


def _summary(name: str, seeds: range, totals: Totals, elapsed_s: float) -> str:
    lines = [
        f"{name}: {totals.runs:,} runs (seeds {seeds.start} to {seeds.stop - 1}), {totals.steps:,} steps",
        f"  {totals.runs / max(elapsed_s, 0.001) * 3600:,.0f} runs an hour",
        *(f"  {count:>9,}  {kind}" for kind, count in sorted(totals.faults.items())),
        f"  {len(totals.violations):>9,}  violations",
    ]
    return "\n".join(lines)


def _history(name: str, seed: int) -> str:
    logging.disable(logging.CRITICAL)
    make = PROTOCOLS[name]
    found: Outcome = play(make, seed)
    shortest = shortest_history(make, seed, found)
    title = f"\n{name}, seed {seed}: {shortest.violation}\nThe shortest history found:"
    again = f"Again: python -m simulation --protocol {name} --seed {seed} --runs 1"
    return "\n".join([title, *shortest.trace, again])


if __name__ == "__main__":
    simulate()
