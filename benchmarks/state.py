"""`python -m benchmarks.state`: what a small micro-batch costs with many keys in the state.

The same stream runs with Spark's own state store and with Oncelake's, each in a process of its own. It does
nothing but deduplicate, so the figures are not those of `speed_stream`. The process is killed with `kill -9`
in the middle of a micro-batch, and a second one goes on from the checkpoint.
"""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any, Final

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.table import Table

from benchmarks.meter import Meter
from benchmarks.work import PIPELINE
from pipelines.config.loader import load_config
from pipelines.config.model import PipelineConfig
from pipelines.durations import format_interval
from pipelines.runtime.processes import graceful_shutdown
from pipelines.spark.session import spark_session
from pipelines.spark.state_store import NOT_SCANNED, PROVIDER, SPARKS_OWN, use_state_store

_HERE: Final = Path(__file__).parent
_STORES: Final = {"Spark's own": SPARKS_OWN, "Oncelake's": NOT_SCANNED}
_RECORDS: Final = 58
# The first micro-batches fill the state, see the first watermark, and are compiled.
_WARM: Final = 12
_MEASURED: Final = 20
# The process is killed in the next one.
_KILLED: Final = _WARM + _MEASURED + 1
# Spark looks every minute whether one is due.
_SNAPSHOT_WITHIN_S: Final = 600.0
_FIGURES: Final = {
    "wall_s": "wall s",
    "cpu_s": "CPU s",
    "eviction_s": "evict s",
    "peak_mb": "mem MB",
    "checkpoint_mb": "disk MB",
    "restart_s": "restart s",
}


@click.command("state")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--keys", default="1000000,3000000", show_default=True, help="How many keys, with commas between."
)
@click.option(
    "--store", "stores", type=click.Choice(list(_STORES)), multiple=True, help="Measure this store alone."
)
@click.option("--part", type=click.Choice(["until killed", "after it"]), hidden=True)
@graceful_shutdown()
def main(folder: Path, keys: str, stores: tuple[str, ...], part: str | None) -> None:
    """Measure micro-batches of 58 records in FOLDER, which is filled."""
    if part:
        ((store,), number) = stores, int(keys)
        print(
            json.dumps(_restarted(folder, store) if part == "after it" else _measured(folder, number, store))
        )
        return
    table = Table("keys", "state store", *_FIGURES.values(), title="One micro-batch")
    try:
        for number in map(int, keys.split(",")):
            for name in stores or _STORES:
                place = folder / f"{number}-{_STORES[name].rpartition('.')[2]}"
                found = _in_processes(place, number, name)
                figures = [f"{found[figure]:,.{2 if figure.endswith('_s') else 0}f}" for figure in _FIGURES]
                table.add_row(f"{number:,}", name, *figures)
                print(f"{number:,} keys, {name}: {found}", file=sys.stderr, flush=True)
    finally:
        Console().print(table)


def _in_processes(folder: Path, keys: int, store: str) -> dict[str, float]:
    """Measure in a process that is killed, and in one that starts again; return the figures of both."""
    told = [_in_a_process(folder, keys, store, part) for part in ("until killed", "after it")]
    rows, expected = sum(each.pop("rows") for each in told), keys + _RECORDS * _KILLED
    if rows != expected:
        raise SystemExit(f"{store}: expected {expected:,} rows, got {rows:,}: the figures mean nothing")
    return {name: figure for each in told for name, figure in each.items()}


def _in_a_process(folder: Path, keys: int, store: str, part: str) -> dict[str, float]:
    command = ["-m", "benchmarks.state", str(folder), f"--keys={keys}", f"--store={store}", f"--part={part}"]
    # A process that was killed has done what it is for.
    done = subprocess.run(
        [sys.executable, *command], check=False, cwd=_HERE.parent, stdout=subprocess.PIPE, text=True
    )
    if done.returncode not in (0, -signal.SIGKILL):
        raise SystemExit(f"{store}: the process that measures has ended with exit code {done.returncode}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _session(folder: Path, store: str) -> tuple[SparkSession, PipelineConfig, str]:
    """Return a session, the configuration, and the path of the table that the stream reads."""
    settings = (
        f"lake.root={folder.resolve()}",
        "kafka.bootstrap_servers=localhost:9092",
        "speed.watermark_delay=1 day",
        "spark.master=local[2]",
        f"spark.conf.{PROVIDER}={_STORES[store]}",
    )
    config = load_config(PIPELINE, conf_dir=_HERE / "conf", settings=settings, environ={})
    return spark_session(config, "state"), config, f"{folder.resolve()}/source"


def _measured(folder: Path, keys: int, store: str) -> dict[str, float]:
    """Fill a state and run small micro-batches on it; print what one of them costs, and die in the next."""
    spark, config, source = _session(folder, store)
    java: Any = spark.sparkContext._jvm
    java_pid = java.java.lang.ProcessHandle.current().pid()
    _fill(spark, source, keys)
    meter, stack, rows = Meter(), ExitStack(), 0

    def look(batch: DataFrame, number: int) -> None:
        nonlocal rows
        seen = batch.count()
        if number == _WARM:
            # The first one copies the whole state; later ones copy only what is new.
            _wait_for_snapshots(Path(config.checkpoint("speed")))
            stack.enter_context(meter)
        elif number == _WARM + _MEASURED:
            stack.close()
        elif number == _KILLED:
            print(json.dumps(_cost(meter, config, query) | {"rows": rows}), flush=True)
            os.kill(java_pid, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        rows += seen

    query = _start(spark, config, source, look)
    query.awaitTermination()
    raise SystemExit("the stream has ended before it was killed")


def _wait_for_snapshots(checkpoint: Path) -> None:
    """Wait until each partition has a snapshot, as it has in a stream that runs for more than a minute."""
    partitions = [place for place in (checkpoint / "state/0").iterdir() if place.name.isdigit()]
    deadline = time.monotonic() + _SNAPSHOT_WITHIN_S
    while not all(any(partition.glob("*.zip")) for partition in partitions):
        if time.monotonic() > deadline:
            raise SystemExit(f"{checkpoint}: no snapshot of the state after {_SNAPSHOT_WITHIN_S:.0f} s")
        time.sleep(1)


def _cost(meter: Meter, config: PipelineConfig, query: StreamingQuery) -> dict[str, float]:
    """Return what one micro-batch costs, and what the state takes."""
    cost = meter.cost()
    progress = [json.loads(each.json) for each in query.recentProgress][-_MEASURED:]
    stored = (path.stat().st_size for path in Path(config.checkpoint("speed")).rglob("*") if path.is_file())
    return {
        "wall_s": cost.wall_s / _MEASURED,
        "cpu_s": cost.cpu_s / _MEASURED,
        # Of all partitions together.
        "eviction_s": median(each["stateOperators"][0]["allRemovalsTimeMs"] / 1000 for each in progress),
        "peak_mb": cost.peak_mb,
        "checkpoint_mb": sum(stored) / 1e6,
    }


def _restarted(folder: Path, store: str) -> dict[str, float]:
    """Go on from the checkpoint; return how long it takes from the start of the query to the first rows."""
    spark, config, source = _session(folder, store)
    found: dict[str, float] = {"rows": 0}

    def look(batch: DataFrame, _: int) -> None:
        found["rows"] += batch.count()
        found.setdefault("restart_s", time.monotonic() - began)

    began = time.monotonic()
    _start(spark, config, source, look).awaitTermination()
    spark.stop()
    return found


def _fill(spark: SparkSession, source: str, keys: int) -> None:
    """Write one commit with many keys, and then some with few."""
    # Far less than the watermark's delay, so that all of them stay.
    at = "timestamp_millis(1356998400000 + id * 60000 DIV {keys}) AS at"
    columns = ("uuid() AS key", at.format(keys=keys))
    spark.range(keys).selectExpr(*columns).coalesce(1).write.format("delta").save(source)
    for _ in range(_KILLED):
        # Each frame has keys of its own.
        spark.range(_RECORDS).selectExpr(*columns).coalesce(1).write.format("delta").mode("append").save(
            source
        )


def _start(spark: SparkSession, config: PipelineConfig, source: str, look: Any) -> StreamingQuery:
    """Start a query that deduplicates all commits, each in a micro-batch of its own."""
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", _KILLED)
    use_state_store(spark, config)
    return (
        spark.readStream.format("delta")
        .option("maxFilesPerTrigger", 1)
        .load(source)
        .withWatermark("at", format_interval(timedelta(days=1)))
        .dropDuplicatesWithinWatermark(["key"])
        .writeStream.foreachBatch(look)
        .option("checkpointLocation", config.checkpoint("speed"))
        .trigger(availableNow=True)
        .start()
    )


if __name__ == "__main__":
    main()
