"""`python -m benchmarks.state`: what a small micro-batch costs with many keys in the state.

The same stream runs with Spark's own state store and with Oncelake's, each in a process of its own. It does
nothing but deduplicate, so the figures are not those of `speed_stream`.
"""

import json
import subprocess
import sys
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any, Final

import click
from pyspark.sql import DataFrame, SparkSession
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


@click.command("state")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--keys", default="1000000,3000000", show_default=True, help="How many keys, with commas between."
)
@click.option("--store", type=click.Choice(list(_STORES)), hidden=True)
@graceful_shutdown()
def main(folder: Path, keys: str, store: str | None) -> None:
    """Measure micro-batches of 58 records in FOLDER, which is filled."""
    if store:
        print(json.dumps(_measured(folder, int(keys), store)), flush=True)
        return
    table = Table("keys", "state store", "wall s", "CPU s", "of it eviction, s", title="One micro-batch")
    try:
        for number in map(int, keys.split(",")):
            for name in _STORES:
                found = _in_a_process(folder / f"{number}-{_STORES[name].rpartition('.')[2]}", number, name)
                figures = [f"{found[figure]:.3f}" for figure in ("wall_s", "cpu_s", "eviction_s")]
                table.add_row(f"{number:,}", name, *figures)
                print(f"{number:,} keys, {name}: {', '.join(figures)}", file=sys.stderr, flush=True)
    finally:
        Console().print(table)


def _in_a_process(folder: Path, keys: int, store: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.state", str(folder), f"--keys={keys}", f"--store={store}"],
        cwd=_HERE.parent,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _measured(folder: Path, keys: int, store: str) -> dict[str, float]:
    """Fill a state and run small micro-batches on it; return what one of them costs."""
    settings = (
        f"lake.root={folder.resolve()}",
        "kafka.bootstrap_servers=localhost:9092",
        "speed.watermark_delay=1 day",
        "spark.master=local[2]",
        f"spark.conf.{PROVIDER}={_STORES[store]}",
    )
    config = load_config(PIPELINE, conf_dir=_HERE / "conf", settings=settings, environ={})
    spark = spark_session(config, "state")
    source = f"{folder.resolve()}/source"
    _fill(spark, source, keys)
    with ExitStack() as stack:
        meter, rows = Meter(), 0

        def look(batch: DataFrame, number: int) -> None:
            nonlocal rows
            rows += batch.count()
            if number == _WARM:
                stack.enter_context(meter)
            elif number == _WARM + _MEASURED:
                stack.close()

        progress = _run(spark, config, source, look)
    expected = keys + _RECORDS * (_WARM + _MEASURED)
    if rows != expected:
        raise SystemExit(f"{store}: expected {expected:,} rows, got {rows:,}: the figures mean nothing")
    spark.stop()
    cost = meter.cost()
    evictions = [each["stateOperators"][0]["allRemovalsTimeMs"] / 1000 for each in progress[-_MEASURED:]]
    return {
        "wall_s": cost.wall_s / _MEASURED,
        "cpu_s": cost.cpu_s / _MEASURED,
        # Of all partitions together.
        "eviction_s": median(evictions),
    }


def _fill(spark: SparkSession, source: str, keys: int) -> None:
    """Write one commit with many keys, and then a few with few."""
    # Far less than the watermark's delay, so that all of them stay.
    at = "timestamp_millis(1356998400000 + id * 60000 DIV {keys}) AS at"
    columns = ("uuid() AS key", at.format(keys=keys))
    spark.range(keys).selectExpr(*columns).coalesce(1).write.format("delta").save(source)
    for _ in range(_WARM + _MEASURED):
        # Each frame has keys of its own.
        spark.range(_RECORDS).selectExpr(*columns).coalesce(1).write.format("delta").mode("append").save(
            source
        )


def _run(spark: SparkSession, config: PipelineConfig, source: str, look: Any) -> list[dict[str, Any]]:
    """Deduplicate all commits, each in a micro-batch of its own; return what each said."""
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", _WARM + _MEASURED + 1)
    use_state_store(spark, config)
    query = (
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
    query.awaitTermination()
    return [json.loads(each.json) for each in query.recentProgress]


if __name__ == "__main__":
    main()
