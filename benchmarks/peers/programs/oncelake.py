"""Oncelake: `ingest_stream` and then `speed_stream`, both with `--once`; bronze and quarantine are kept."""

import json
import sys
from pathlib import Path

from benchmarks.work import loaded
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.session import spark_session
from pipelines.steps.ingest import ingest
from pipelines.steps.speed import speed


def bytes_of(table: str) -> int:
    """Return the bytes of a table's files."""
    return sum(path.stat().st_size for path in Path(table).glob("*.parquet"))


order = json.loads(sys.stdin.readline())
settings = (
    f"lake.root={order['folder']}",
    f"spark.master=local[{order['cores']}]",
    f"kafka.bootstrap_servers={order['servers']}",
    f"kafka.topic={order['topic']}",
    f"kafka.max_offsets_per_trigger={order['batch_records']}",
    "spark.conf.spark.driver.memory=4g",
)
config, contract = loaded(settings)
spark = spark_session(config, "peer")
pipeline = Pipeline(spark, config, contract)
records = ingest(pipeline, once=True).records
# Speed reads bytes of bronze, not records: those of about as many records as the others take at once.
limit = bytes_of(config.table("bronze")) * order["batch_records"] // max(records, 1)
batches = config.speed.model_copy(update={"max_bytes_per_trigger": f"{limit}b"}) if records else config.speed
limited = config.model_copy(update={"speed": batches})
speed(Pipeline(spark, limited, contract), once=True)
spark.stop()
