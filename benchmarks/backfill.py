"""`python -m benchmarks.backfill`: how much longer events take while a backfill runs beside the streams.

A topic has history that ingest has not read, as it began with the newest records. Events come at a rate, at
first without a backfill and then beside one, and each one's delay is measured as `benchmarks.latency` does.
"""

import json
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any, Final

import click
import numpy as np
from rich.console import Console

from benchmarks.events import PARTITIONS
from benchmarks.latency import Seconds, Sender, Streams, delays
from benchmarks.results import machine
from benchmarks.work import PIPELINE
from demo.processes import Job
from demo.topic import create_topic
from pipelines.runtime.local_broker import broker
from pipelines.runtime.processes import graceful_shutdown

_WARM_UP: Final = 50_000
_FIGURES: Final = (50, 95, 99)
_FROM_NOW_ON: Final = ("kafka.starting_offsets=latest", "accept_risks=[starting_offsets_latest]")


@click.command("backfill")
@click.option("--rate", default=2_000, show_default=True, help="Events a second.")
@click.option("--seconds", default=60, show_default=True, help="How long they come, each time.")
@click.option(
    "--backfill-rate", default=10_000, show_default=True, help="Offsets that the backfill reads a second."
)
@click.option("--seed", default=1, show_default=True, help="The same seed gives the same events.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Of all jobs. Repeatable.")
@graceful_shutdown()
def main(rate: int, seconds: int, backfill_rate: int, seed: int, settings: tuple[str, ...]) -> None:
    """Measure the delay of events without and with a backfill; print JSON."""
    console = Console(stderr=True)
    # It is to be at work until the last event has come.
    history = backfill_rate * (seconds + 60)
    with (
        tempfile.TemporaryDirectory(prefix="oncelake-backfill-") as folder,
        broker(Path(folder) / "broker") as running,
    ):
        topic = f"backfill-{uuid.uuid4().hex[:8]}"
        create_topic(running.bootstrap_servers, topic, PARTITIONS)
        streams = Streams(running.bootstrap_servers, topic, Path(folder) / "lake")
        sender = Sender(streams, history + _WARM_UP + 2 * rate * seconds + 1_000_000, seed)
        console.print(f"sending {history:,} events of history", highlight=False)
        sender.flood(history)
        before = sender.rows
        with streams.running((*_FROM_NOW_ON, *settings)):
            began = streams.root / f"ops/checkpoints/{PIPELINE}/ingest/sources/0/0"
            streams.wait_until(began.exists, "ingest begins")
            sender.flood(_WARM_UP)
            streams.wait_for(sender.rows - before)
            console.print(f"{rate:,} events a second for {seconds} s, without a backfill", highlight=False)
            alone = _paced(streams, sender, rate, seconds)
            options = ("--to", "2100-01-01", "--max-offsets-per-second", str(backfill_rate))
            job = streams.job("backfill", settings, *options, "--log-format", "json")
            try:
                job.start()
                streams.wait_until(lambda: _read_by(job) > 0, "the backfill reads")
                console.print("and with one", highlight=False)
                at = _read_by(job)
                beside = _paced(streams, sender, rate, seconds)
                read, is_running = _read_by(job) - at, job.exit_code() is None
            finally:
                job.end()
    told = {
        "machine": machine(),
        "settings": list(settings),
        "rate_per_s": rate,
        "without": _figures(alone),
        "with": _figures(beside),
        "p95_ratio": round(float(np.percentile(beside, 95) / np.percentile(alone, 95)), 2),
        "backfilled": read,
        "was_at_work": is_running,
    }
    print(json.dumps(told, indent=1))


def _paced(streams: Streams, sender: Sender, rate: int, seconds: int) -> Seconds:
    """Send events at a rate, and return their delays."""
    since_ms, before = time.time_ns() // 1_000_000, sender.rows
    sender.pace(rate * seconds, rate)
    streams.wait_until(
        lambda: len(delays(streams.speed, since_ms)) >= sender.rows - before, "the speed layer has the events"
    )
    return delays(streams.speed, since_ms)


def _read_by(job: Job) -> int:
    """Return how many offsets a backfill has read, by the last line of its log that says so."""
    lines = job.log.read_text(encoding="utf-8").splitlines() if job.log.exists() else []
    objects: list[dict[str, Any]] = [json.loads(line) for line in lines if line.startswith("{")]
    return next((each["progress"]["offsets"] for each in reversed(objects) if "progress" in each), 0)


def _figures(found: Seconds) -> dict[str, float | int]:
    figures = zip(_FIGURES, np.percentile(found, _FIGURES), strict=True)
    return {"rows": len(found), **{f"p{name}_s": round(float(value), 2) for name, value in figures}}


if __name__ == "__main__":
    main()
