"""Spark without state: each micro-batch is merged into the Delta table, which inserts the keys it lacks."""

import json
import sys

from delta.tables import DeltaTable
from pyspark.sql import DataFrame

from benchmarks.peers.programs._spark import EVENT, KEY, events, session

order = json.loads(sys.stdin.readline())
spark = session(
    order,
    {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
)
path = f"{order['folder']}/table"
if not DeltaTable.isDeltaTable(spark, path):
    spark.createDataFrame([], EVENT).write.format("delta").save(path)


def merge(batch: DataFrame, _: int) -> None:
    """Insert the events that the table does not have."""
    same = " AND ".join(f"old.{column} = new.{column}" for column in KEY)
    merged = DeltaTable.forPath(spark, path).alias("old").merge(batch.dropDuplicates(KEY).alias("new"), same)
    merged.whenNotMatchedInsertAll().execute()


writer = events(spark, order).writeStream.foreachBatch(merge)
writer = writer.option("checkpointLocation", f"{order['folder']}/checkpoint")
writer.trigger(availableNow=True).start().awaitTermination()
spark.stop()
