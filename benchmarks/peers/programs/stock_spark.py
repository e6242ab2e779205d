"""Spark in the tutorial's way: `from_json`, `dropDuplicatesWithinWatermark`, Delta."""

import json
import sys

from benchmarks.peers.programs._spark import KEY, events, session

order = json.loads(sys.stdin.readline())
spark = session(
    order,
    {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state."
        "RocksDBStateStoreProvider",
    },
)
rows = events(spark, order).withWatermark("measured_at", "1 day").dropDuplicatesWithinWatermark(KEY)
writer = rows.writeStream.format("delta").option("checkpointLocation", f"{order['folder']}/checkpoint")
writer.trigger(availableNow=True).start(f"{order['folder']}/table").awaitTermination()
spark.stop()
