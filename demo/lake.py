"""What the demo asks of the lake: cheaply while it fills, and as a reader at the end."""

import json
import math
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from demo.compare import Served
from demo.source import FlightKey, FlightPayload
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.serving import read_serving

PUT_BACK = "put back"
_ORIGIN = ("_topic", "_partition", "_offset")


def count_rows(table: Path, before: float = math.inf) -> int:
    """Count the rows of a small Delta table from its log alone, without Spark.

    Args:
        table: A local Delta table whose whole log is still there; it need not exist yet.
        before: Versions from this one on do not count.

    Returns:
        The number of rows of the files that its newest version has.
    """
    files: dict[str, int] = {}
    for commit in sorted((table / "_delta_log").glob("*.json")):
        if int(commit.stem) >= before:
            break
        for line in commit.read_text(encoding="utf-8").splitlines():
            action = json.loads(line)
            if add := action.get("add"):
                files[add["path"]] = json.loads(add["stats"])["numRecords"]
            elif remove := action.get("remove"):
                files.pop(remove["path"], None)
    return sum(files.values())


def rows_read(checkpoint: Path, table: Path) -> int:
    """Count the rows of a Delta table that a streaming query has read and committed, without Spark.

    Args:
        checkpoint: A local checkpoint of a query that reads the table alone; it need not exist yet.
        table: An append-only table, otherwise as for `count_rows`.

    Returns:
        The number of rows of the commits that the query is done with.
    """
    batches = [int(path.name) for path in (checkpoint / "commits").glob("*") if path.name.isdigit()]
    if not batches:
        return 0
    # The last line of a batch's offsets is the source's; it names the version that will be read next.
    offset = (checkpoint / "offsets" / str(max(batches))).read_text(encoding="utf-8").splitlines()[-1]
    return count_rows(table, before=json.loads(offset)["reservoirVersion"])


def served_rows(pipeline: Pipeline) -> list[Served]:
    """Read flights as any reader does: certified days from the batch layer, later ones from the speed layer.

    Returns:
        Every row.
    """
    columns = [*FlightKey._fields, *FlightPayload._fields, "_event_date"]
    return [_served(row) for row in _rows(read_serving(pipeline).select(columns))]


def quarantined(pipeline: Pipeline) -> dict[str, int]:
    """Count the records in quarantine, each once, however often it was put there.

    Returns:
        Number of records by reason; those that a replay has put back stand under `PUT_BACK`.
    """
    rows = pipeline.spark.read.format("delta").load(pipeline.table("quarantine"))
    reason = F.when(F.col("_status") == "replayed", PUT_BACK).otherwise(F.col("_reason")).alias("reason")
    counts = _rows(rows.select(reason, *_ORIGIN).distinct().groupBy("reason").count())
    return dict(counts)


def brought_in_at_night(pipeline: Pipeline) -> int:
    """Count the events that only the nightly run brought in: too late for the speed layer.

    Returns:
        Rows of the batch layer whose key the speed layer does not have.
    """
    batch, speed = (
        pipeline.spark.read.format("delta").load(pipeline.table(layer)) for layer in ("batch", "speed")
    )
    return batch.join(speed, on=list(FlightKey._fields), how="left_anti").count()


def added_by_repairs(pipeline: Pipeline) -> int:
    """Sum up the rows that runs added to days which had been certified before.

    Returns:
        Number of rows, as the verdicts say it.
    """
    verdicts = pipeline.spark.read.format("delta").load(pipeline.ops_table("certifications"))
    ((added,),) = _rows(verdicts.agg(F.coalesce(F.sum("added"), F.lit(0))))
    return int(added)


def _rows(frame: DataFrame) -> Iterator[tuple[Any, ...]]:
    for batch in frame.toArrow().to_batches():
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _served(row: tuple[Any, ...]) -> Served:
    carrier, flight, origin, departure, *rest = row
    return Served(
        FlightKey(carrier, flight, origin, departure.astimezone(UTC)),
        FlightPayload(*rest[:-1]),
        rest[-1],
    )
