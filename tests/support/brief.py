"""Settings for sessions and processes that live so briefly that compiling does not pay."""

from typing import Final

BRIEF_JAVA: Final = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -XX:MetaspaceSize=256m"
)
"""Options for Java: it compiles once, and quickly."""
BRIEF_SPARK: Final = (
    "spark.conf.spark.sql.codegen.wholeStage=false",
    "spark.conf.spark.sql.codegen.factoryMode=NO_CODEGEN",
    "spark.conf.spark.databricks.delta.snapshotPartitions=1",
)
"""Settings, as `--set` takes them: Spark does not compile its plans, and Delta's logs are short."""
