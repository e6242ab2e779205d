"""Broken records are taken out of a micro-batch while its events are written, so that it is computed once."""

from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from pipelines.records.decode import BAD
from pipelines.sql import name

# What the driver takes at most, of all tasks together; bytes of keys, values and headers.
_MOST_ROWS: Final = 4_000
_MOST_BYTES: Final = 32 * 1024 * 1024


class SetAside:
    """The broken records of one micro-batch.

    Each task sends its own to the driver, with its result. What would be more than its share of what the
    driver takes, a task only counts.

    Args:
        spark: The session.
        schema: The schema of the micro-batch, as `pipelines.records.decode.routed` makes it.
        tasks: How many tasks compute it.
    """

    def __init__(self, spark: SparkSession, schema: StructType, tasks: int) -> None:
        self._spark, self._schema = spark, schema
        jvm: Any = spark.sparkContext._jvm
        self._inner = jvm.oncelake.decode.SetAside(
            spark.sparkContext._jsc.sc(), max(1, _MOST_ROWS // tasks), _MOST_BYTES // tasks
        )

    def take_out_unless_event(self) -> Column:
        """Return a condition that holds for events, and takes out each row for which it does not hold.

        Use it in one action, and once: each action takes the broken records out again.
        """
        row = f"struct({', '.join(_with_timestamps(self._schema, 'unix_micros'))})"
        columns = map(F.expr, (f"{BAD} IS NULL", row, f"{BAD}.reason"))
        return Column(self._inner.takeOutUnless(*(column._jc for column in columns)))

    def count(self) -> int:
        """Return how many were taken out."""
        return int(self._inner.count())

    def reasons(self) -> dict[str, int]:
        """Return how many were taken out, by reason; only reasons that occurred."""
        return {str(reason): int(count) for reason, count in dict(self._inner.counts()).items()}

    def rows(self) -> DataFrame | None:
        """Return what was taken out, in the schema of the micro-batch; None if some were only counted."""
        if not self._inner.isComplete():
            return None
        jvm: Any = self._spark.sparkContext._jvm
        sent = StructType(
            [StructField(each.name, LongType()) if _is_timestamp(each) else each for each in self._schema]
        )
        shape = jvm.org.apache.spark.sql.types.DataType.fromJson(sent.json())
        rows = DataFrame(self._inner.rows(self._spark._jsparkSession, shape), self._spark)
        return rows.selectExpr(*_with_timestamps(self._schema, "timestamp_micros"))


def _with_timestamps(schema: StructType, converted: str) -> Iterator[str]:
    """Return SQL for the columns of a schema, each timestamp converted by a function."""
    for column, field in ((name(field.name), field) for field in schema):
        yield f"{converted}({column}) AS {column}" if _is_timestamp(field) else column


def _is_timestamp(field: StructField) -> bool:
    """Return whether a column is a timestamp, which Java gets as a number.

    Spark gives Java one by the calendar before 1582, which reaches less far back than what a record may have.
    """
    return isinstance(field.dataType, TimestampType)
