"""Events as Kafka records: what the publisher makes of rows of the speed and the batch layer."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.contract import DataContract
from pipelines.sql_text import name

HEADER: Final = "oncelake."
# Spark's own format drops what is below a millisecond.
_JSON: Final = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
_COORDINATES: Final = ("topic", "partition", "offset")


def messages(rows: DataFrame, contract: DataContract) -> DataFrame:
    """Rows as records for `pipelines.sinks.kafka_transactional`.

    Args:
        rows: with the contract's columns and `_topic`, `_partition`, `_offset`.
        contract: tells the columns and the dedup key.

    Returns:
        `key binary`: the dedup key as a JSON object, its parts in the contract's order; `value binary`: the
        contract's columns as a JSON object that the contract accepts, nulls included; `headers`:
        `oncelake.topic`, `oncelake.partition` and `oncelake.offset`, where the record came from, as text.
    """
    parts = [F.expr(name(path)).alias(path) for path in contract.key]
    columns = [F.expr(name(field.name)) for field in contract.schema]
    return rows.select(
        F.to_json(F.struct(*parts), _JSON).cast("binary").alias("key"),
        F.to_json(F.struct(*columns), _JSON).cast("binary").alias("value"),
        F.array(*map(_header, _COORDINATES)).alias("headers"),
    )


def _header(coordinate: str) -> Column:
    value = F.col(f"_{coordinate}").cast("string").cast("binary")
    return F.struct(F.lit(f"{HEADER}{coordinate}").alias("key"), value.alias("value"))
