"""`python -m benchmarks.work`: one piece of work in a process of its own.

Takes its order as one line of JSON on standard input, says `ready` when Spark is up, begins at the line `go`,
and ends with one line of JSON.
"""

import json
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from benchmarks.checks import sizes
from benchmarks.events import Truth
from benchmarks.given import Work
from benchmarks.items import ITEMS, built_at, steps
from benchmarks.meter import Meter
from benchmarks.progress import watch
from benchmarks.volume import Volume
from pipelines.config.loader import load_config
from pipelines.config.model import PipelineConfig
from pipelines.contracts.contract import DataContract
from pipelines.formats.contract_files import load_contract
from pipelines.runtime.java import use_java
from pipelines.runtime.own_jar import spark_jars
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.session import spark_session

PIPELINE: Final = "events"
_HERE: Final = Path(__file__).parent


@dataclass(frozen=True)
class Order:
    """What a process is to do.

    Attributes:
        item: a name of `ITEMS`.
        settings: `key=value` pairs of the configuration.
        truth: what the topic holds.
        check: whether to check the result; when two processes share the work, the last one does.
    """

    item: str
    settings: tuple[str, ...]
    truth: dict[str, int]
    check: bool = True


def main() -> None:
    """Do what the order says."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    # Java writes to standard output as it likes, a recorder for instance: that goes to the log.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    order = Order(**json.loads(sys.stdin.readline()))
    item = ITEMS[order.item]
    # No environment: the address is in the settings.
    config, contract = loaded(order.settings)
    spark = _plain_session(config) if item.reference else spark_session(config, order.item)
    work = Work(Pipeline(spark, config, contract), Truth(**order.truth), watch(spark))
    if item.prepare:
        item.prepare(work)
    print("ready", file=answers, flush=True)
    if sys.stdin.readline().strip() != "go":
        sys.exit(1)
    with Volume(spark, Path(config.root)) as volume, Meter() as meter:
        item.run(work)
    result: dict[str, Any] = {"cost": asdict(meter.cost()), "queries": work.progress.summary()}
    result["mb"] = {"read": round(volume.read_mb, 1), "written": round(volume.written_mb, 1)}
    if order.item == "rebuild":
        result["build"] = asdict(meter.cost(until=built_at(work)))
    print("done", file=answers, flush=True)
    if order.check:
        sys.stdin.readline()
        item.check(work)
        result["tables"] = sizes(work)
        result["steps"] = steps(work) if item.night else []
    print(json.dumps(result), file=answers, flush=True)
    spark.stop()


def loaded(settings: Sequence[str]) -> tuple[PipelineConfig, DataContract]:
    """Return the configuration and the contract of the benchmarks' pipeline, under `key=value` settings."""
    config = load_config(PIPELINE, conf_dir=_HERE / "conf", settings=settings, environ={})
    return config, load_contract(_HERE / "contracts" / config.contract)


def _plain_session(config: PipelineConfig) -> SparkSession:
    """Return a session with what Delta's and Spark's own manuals ask for, and nothing of Oncelake."""
    use_java()
    builder = SparkSession.builder.appName("raw").master(config.spark.master or "local[*]")
    settings = {
        "spark.jars": ",".join(map(str, spark_jars())),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **config.spark.conf,
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


if __name__ == "__main__":
    main()
