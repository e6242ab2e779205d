"""Programs that write or read tables on S3 in a process and a JVM of their own."""

import json
import sys
import time
from pathlib import Path

from pyspark.sql import functions as F

from pipelines.delta.io import append
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.session import stop_session
from pipelines.steps.loading import open_pipeline
from pipelines.steps.serving import read_serving

ROWS = 10


def write(pipeline: Pipeline, commits: str, *starts: str) -> None:
    """Appends rows at the first start, says that it is ready, and at the second goes on, commit by commit."""
    rows, table = pipeline.spark.range(ROWS).coalesce(1), f"{pipeline.config.root}/table"
    for number, start in enumerate(starts):
        while not Path(start).exists():
            time.sleep(0.01)
        if number == 0:
            append(rows, table)
            print("ready", flush=True)
    for _ in range(int(commits)):
        append(rows, table)


def serve(pipeline: Pipeline) -> None:
    """Prints what readers find: origin and hour of each record."""
    hour = F.date_format("time_hour", "yyyy-MM-dd HH:mm")
    print(json.dumps([list(row) for row in read_serving(pipeline).select("origin", hour).collect()]))


def main(program: str, given: str, *arguments: str) -> None:
    """Runs one of them with settings that have spaces between them."""
    pipeline = open_pipeline("weather", settings=given.split())
    if program == "write":
        write(pipeline, *arguments)
    else:
        serve(pipeline)
    stop_session()


if __name__ == "__main__":
    main(*sys.argv[1:])
