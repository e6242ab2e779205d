"""`python -m benchmarks.aged_lake`: what a night costs on a lake of three years, against one on a new lake.

Both lakes hold the same events of the last days. The aged one has years of micro-batches, verdicts, checks
and broken records before them, its own and those of the other pipelines that share its ledgers.
"""

import json
import logging
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Literal

import click
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from benchmarks.aged_tables import Age, Aged
from benchmarks.volume import Volume
from benchmarks.work import PIPELINE
from pipelines.config.loader import load_config
from pipelines.formats.contract_files import load_contract
from pipelines.runtime.processes import graceful_shutdown
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.session import spark_session
from pipelines.steps.maintain import maintain
from pipelines.steps.nightly import nightly

_HERE: Final = Path(__file__).parent
_SETTINGS: Final = (
    # Nobody asks it: what bronze holds is enough.
    "kafka.bootstrap_servers=localhost:9092",
    "batch.seal_by=bronze",
    "speed.watermark_delay=2 days",
    "spark.master=local[2]",
)
Step = Literal["fill", "upkeep", "night"]
_STEPS: Final[tuple[Step, ...]] = ("fill", "upkeep", "night")
_FIGURES: Final = {
    "wall_s": "a night, seconds",
    "read_mb": "read from files, MB",
    "jvm_peak_mb": "peak memory of the driver's JVM, MB",
    "heap_mb": "its heap after a collection, MB",
    "python_peak_mb": "peak memory of the driver's Python, MB",
}


@click.command("aged_lake")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--days", default=1095, show_default=True, help="How old the aged lake is.")
@click.option("--pipelines", default=200, show_default=True, help="How many share its ledgers.")
@click.option("--trigger", default=10, show_default=True, help="Seconds from one micro-batch to the next.")
@click.option("--records", default=5, show_default=True, help="Records of a micro-batch of the last days.")
@click.option("--only", multiple=True, type=click.Choice(["new", "aged"]), help="Only this lake.")
@click.option("--upkeep/--no-upkeep", default=True, show_default=True, help="Whether `maintain` has run.")
@click.option("--step", type=click.Choice(_STEPS), hidden=True)
@graceful_shutdown()
def main(folder: Path, only: tuple[str, ...], step: Step | None, *, upkeep: bool, **age_options: int) -> None:
    """Measure a night on a new and on an aged lake in FOLDER, each step in a process of its own.

    Lakes that are in FOLDER already are taken as they are, and get another night of the same day.
    """
    age = Age(**age_options)
    if step:
        print(json.dumps(_work(folder, step, age)), flush=True)
        return
    console = Console()
    for name, days in (("new", 0), ("aged", age.days)):
        for each in _STEPS:
            told = folder / f"{name}.{each}.json"
            is_done = each != "night" and told.exists()
            if (only and name not in only) or is_done or (each == "upkeep" and not upkeep):
                continue
            found = _in_a_process(folder / name, each, {**asdict(age), "days": days})
            told.write_text(json.dumps(found), encoding="utf-8")
            console.print(f"{name}: {each}: {found}", highlight=False)
    _show(console, folder)


def _in_a_process(lake: Path, step: Step, options: dict[str, int]) -> dict[str, Any]:
    lake.mkdir(parents=True, exist_ok=True)
    words = [f"--{name}={value}" for name, value in options.items()]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.aged_lake", str(lake), f"--step={step}", *words],
        cwd=_HERE.parent,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _work(lake: Path, step: Step, age: Age) -> dict[str, Any]:
    """Do a step on a lake; what it cost."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    settings = (f"lake.root={lake.resolve()}", *_SETTINGS)
    config = load_config(PIPELINE, conf_dir=_HERE / "conf", settings=settings, environ={})
    contract = load_contract(_HERE / "contracts" / config.contract)
    spark = spark_session(config, step)
    began = time.monotonic()
    with Volume(spark, lake) as volume:
        if step == "fill":
            Aged(Pipeline(spark, config, contract), age).fill()
        elif step == "upkeep":
            maintain(Pipeline(spark, config, contract), "upkeep", dry_run=False)
        else:
            nightly(Pipeline(spark, config, contract), "night", [age.last], "late and missed")
        wall_s = round(time.monotonic() - began, 1)
    cost = {"wall_s": wall_s, "read_mb": round(volume.read_mb, 1), **_memory(spark)}
    spark.stop()
    return cost


def _memory(spark: SparkSession) -> dict[str, int]:
    """Return megabytes that the driver's processes took at most, and what its heap holds."""
    java: Any = spark.sparkContext._jvm.java.lang  # type: ignore[union-attr]
    pid = java.ProcessHandle.current().pid()
    runtime = java.Runtime.getRuntime()
    java.System.gc()
    return {
        "jvm_peak_mb": _peak_mb(str(pid)),
        "heap_mb": (runtime.totalMemory() - runtime.freeMemory()) >> 20,
        "python_peak_mb": _peak_mb("self"),
    }


def _peak_mb(process: str) -> int:
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) >> 10


def _show(console: Console, folder: Path) -> None:
    files = {name: folder / f"{name}.night.json" for name in ("new", "aged")}
    if not all(path.exists() for path in files.values()):
        return
    found = {name: json.loads(path.read_text(encoding="utf-8")) for name, path in files.items()}
    table = Table("", "new", "aged", "ratio")
    for figure, words in _FIGURES.items():
        new, aged = (found[name][figure] for name in ("new", "aged"))
        table.add_row(words, f"{new:g}", f"{aged:g}", f"{aged / new:.2f}")
    console.print(table)


if __name__ == "__main__":
    main()
