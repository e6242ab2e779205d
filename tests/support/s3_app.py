"""Programs that write or read tables on S3 in a process and a JVM of their own."""

import json
import sys
import time
from pathlib import Path

from pyspark.sql import functions as F

from pipelines.delta.io import append
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.session import open_pipeline, stop_session
from pipelines.steps.serving import read_serving

ROWS = 10


def write(pipeline: Pipeline, commits: str, start: str) -> None:
    """Says that it is ready, waits for the start, and appends rows, each time by a commit."""
    rows, table = pipeline.spark.range(ROWS).coalesce(1), f"{pipeline.config.root}/table"
    append(rows, table)
    print("ready", flush=True)
    while not Path(start).exists():
        time.sleep(0.01)
    for _ in range(int(commits)):
        append(rows, table)


def serve(pipeline: Pipeline) -> None:
    """Prints what readers find: origin and hour of each record."""
    hour = F.date_format("time_hour", "yyyy-MM-dd HH:mm")
    print(json.dumps([list(row) for row in read_serving(pipeline).select("origin", hour).collect()]))


if __name__ == "__main__":
    program, given, *arguments = sys.argv[1:]
    its_pipeline = open_pipeline("weather", settings=given.split())
    if program == "write":
        write(its_pipeline, *arguments)
    else:
        serve(its_pipeline)
    stop_session()
