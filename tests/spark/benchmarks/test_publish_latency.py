"""What the benchmark of publishing says of micro-batches, it says of all of them."""

from pyspark.sql import SparkSession

from benchmarks.publish_latency import Durations
from pipelines.spark.query_listener import listening

REMEMBERED = 100
"""Of how many micro-batches a query has the progress (`spark.sql.streaming.numRecentProgressUpdates`)."""


def test_more_micro_batches_are_kept_than_a_query_remembers(spark: SparkSession) -> None:
    durations = Durations()
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    with listening(spark, durations):
        query = rows.writeStream.format("noop").start()
        while (progress := query.lastProgress) is None or progress["batchId"] <= REMEMBERED + 5:
            query.awaitTermination(1)
        query.stop()
        took = durations.all()
    assert len(query.recentProgress) <= REMEMBERED
    assert len(took) > REMEMBERED + 5
