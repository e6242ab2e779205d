"""Settings for sessions and processes that live so briefly that compiling does not pay."""

from typing import Final

BRIEF_JAVA: Final = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -XX:MetaspaceSize=256m"
)
"""Options for Java: it compiles once, and quickly."""
BRIEF_SPARK: Final = (
    "spark.conf.spark.sql.codegen.wholeStage=false",
    "spark.conf.spark.sql.codegen.factoryMode=NO_CODEGEN",
    # A query is then a job or two, not one for each of its stages; and Delta lists all files of a table,
    # which are few, without reading their statistics first.
    "spark.conf.spark.sql.adaptive.enabled=false",
    "spark.conf.spark.databricks.delta.stats.skipping=false",
    "spark.conf.spark.databricks.delta.snapshotPartitions=1",
    # What is made from few rows is one task and one file.
    "spark.conf.spark.default.parallelism=1",
    # Spark's own are up to 64 MB, and 4 MB: they are cleared for each sort, aggregate and broadcast.
    "spark.conf.spark.buffer.pageSize=1m",
    "spark.conf.spark.broadcast.blockSize=256k",
)
"""Settings, as `--set` takes them: Spark does not compile its plans, Delta's logs and all rows are few."""
