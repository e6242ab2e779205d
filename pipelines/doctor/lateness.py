"""How late records come, by the bronze index."""

from datetime import timedelta
from typing import Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from pipelines.delta.io import small_rows
from pipelines.delta.small_tables import read_small
from pipelines.delta.tables import exists
from pipelines.doctor.pipeline_facts import LatenessFacts
from pipelines.ledger.bronze_index import RECORDS
from pipelines.spark.pipeline import Pipeline
from pipelines.sql import literal

_MOST: Final = 0.99
_RECENT: Final = "30 days"


def observed_lateness(pipeline: Pipeline) -> LatenessFacts | None:
    """Return how far records of the last month were behind; None if the index knows none.

    The index knows the event day of a record and not its event time, so a record counts as late only from
    the end of its day on.
    """
    table = pipeline.ops_table("bronze_index")
    if not exists(pipeline.spark, table):
        return None
    rows = read_small(pipeline.spark, table).where(
        f"pipeline = {literal(pipeline.name)} AND kind = {literal(RECORDS)} AND day IS NOT NULL"
        f" AND ingested_at > current_timestamp() - INTERVAL {_RECENT}"
    )
    by_batch = rows.groupBy("commit").agg(F.max("clock").alias("clock"))
    before = Window.orderBy("commit").rowsBetween(Window.unboundedPreceding, -1)
    clocks = by_batch.select("commit", F.max("clock").over(before).alias("reached"))
    zone = literal(pipeline.contract.day_time_zone)
    end = f"to_utc_timestamp(CAST(date_add(day, 1) AS timestamp), {zone})"
    behind = F.greatest(F.expr(f"unix_seconds(reached) - unix_seconds({end})"), F.lit(0))
    delay = pipeline.config.speed.watermark_delay.total_seconds()
    late = rows.join(clocks, "commit").select("records", F.coalesce(behind, F.lit(0)).alias("behind"))
    (found,) = small_rows(
        late.agg(
            F.sum("records").alias("records"),
            F.sum(F.when(F.col("behind") > delay, F.col("records")).otherwise(0)).alias("late"),
            F.expr(f"percentile(behind, {_MOST}, records)").alias("most"),
        )
    )
    if not found["records"]:
        return None
    return LatenessFacts(found["records"], found["late"], timedelta(seconds=round(found["most"])))
