"""Hudi on Spark 3.5: each micro-batch is upserted by its key."""

import json
import sys

from benchmarks.peers.programs._spark import KEY, events, session

order = json.loads(sys.stdin.readline())
spark = session(
    order,
    {
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
    },
)
writer = events(spark, order).writeStream.format("hudi").outputMode("append")
options = {
    "hoodie.table.name": "events",
    "hoodie.datasource.write.recordkey.field": ",".join(KEY),
    "hoodie.datasource.write.precombine.field": "measured_at",
    "hoodie.datasource.write.operation": "upsert",
    "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
    "hoodie.datasource.write.partitionpath.field": "",
    "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
    "checkpointLocation": f"{order['folder']}/checkpoint",
}
writer = writer.options(**options).trigger(availableNow=True)
writer.start(f"{order['folder']}/table").awaitTermination()
# For whoever checks the result: its files hold rows of older versions, too.
spark.read.format("hudi").load(f"{order['folder']}/table").select("sequence").coalesce(1).write.mode(
    "overwrite"
).parquet(f"{order['folder']}/newest")
spark.stop()
