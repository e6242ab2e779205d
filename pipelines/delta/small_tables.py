"""Read the rows that a pipeline has in a table under `ops/`, without a job of Spark's where they are few.

A query on a Delta table costs two or three jobs, however small the table is, and a nightly run asks a dozen
such questions. The rows of a small table are read by the driver.
"""

from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.delta.io import read
from pipelines.spark.pipeline import Pipeline

_OWNER: Final = "pipeline"
_NEWEST: Final = -1


def own_rows(pipeline: Pipeline, name: str, at: int | None = None) -> DataFrame:
    """Return the rows that a pipeline has in a table under `ops/`, in the table's columns.

    Of a small table they are in memory when this returns. Of any other, and of one that is damaged, the frame
    is Spark's own, and reads or fails when it is asked.

    Args:
        pipeline: The pipeline.
        name: The table.
        at: The version of the table, if not the newest.
    """
    spark, table, owner = pipeline.spark, pipeline.ops_table(name), pipeline.config.name
    jvm: Any = spark.sparkContext._jvm
    session: Any = spark._jsparkSession
    version = _NEWEST if at is None else at
    small = jvm.oncelake.tables.SmallTable.read(session, table, _OWNER, owner, version)
    # One partition, so that nothing is shuffled.
    rows = read(spark, table, at) if small is None else DataFrame(small, spark).coalesce(1)
    return rows.where(F.col(_OWNER) == owner)
