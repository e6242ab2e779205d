"""Programs that write or read tables on S3 in a process and a JVM of their own."""

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.config.loader import load_config
from pipelines.config.model import PipelineConfig
from pipelines.delta.io import append
from pipelines.spark.session import spark_session, stop_session
from pipelines.steps.serving import read_serving

ROWS = 10


def write(spark: SparkSession, config: PipelineConfig, commits: str, start: str) -> None:
    """Says that it is ready, waits for the start, and appends rows, each time by a commit."""
    rows, table = spark.range(ROWS).coalesce(1), f"{config.root}/table"
    append(rows, table)
    print("ready", flush=True)
    while not Path(start).exists():
        time.sleep(0.01)
    for _ in range(int(commits)):
        append(rows, table)


def serve(spark: SparkSession, config: PipelineConfig) -> None:
    """Prints what readers find: origin and hour of each record."""
    hour = F.date_format("time_hour", "yyyy-MM-dd HH:mm")
    print(json.dumps([list(row) for row in read_serving(spark, config).select("origin", hour).collect()]))


if __name__ == "__main__":
    program, given, *arguments = sys.argv[1:]
    its_config = load_config("weather", environ={}, settings=given.split())
    its_session = spark_session(its_config, program)
    if program == "write":
        write(its_session, its_config, *arguments)
    else:
        serve(its_session, its_config)
    stop_session()
