"""What the programs on Spark share: the session, the source, and the columns of an event."""

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

EVENT = (
    "site string, device string, sequence bigint, measured_at timestamp, status string, voltage double,"
    " current double, power double, temperature double, firmware string"
)
KEY = ["site", "device", "sequence"]


def session(order: dict[str, Any], settings: dict[str, str]) -> SparkSession:
    """Return a session with the jars of the order."""
    builder = SparkSession.builder.appName("peer").master(f"local[{order['cores']}]")
    common = {
        "spark.jars": ",".join(order["jars"]),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "4g",
        "spark.sql.session.timeZone": "UTC",
        # As Oncelake has it here: what any user would set on one machine.
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.shuffle.partitions": str(2 * order["cores"]),
    }
    for name, value in {**common, **settings}.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def events(spark: SparkSession, order: dict[str, Any]) -> DataFrame:
    """Return the events of the topic as a stream, without those that are not JSON."""
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", order["servers"])
        .option("subscribe", order["topic"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", order["batch_records"])
        .load()
    )
    parsed = records.select(F.from_json(F.col("value").cast("string"), EVENT).alias("event"))
    return parsed.select("event.*").where("sequence IS NOT NULL")
