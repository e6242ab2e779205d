"""Events as Kafka records: what the publisher makes of rows of the speed and the batch layer."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.config.publish import Retraction
from pipelines.contracts.contract import DataContract
from pipelines.publishing.corrections import CORRECTION
from pipelines.registry.event_schema import AvroValues
from pipelines.sql import name

RECORDS_VERSION: Final = 1
"""Which rows become which records, and which corrections: another number for each change of that."""
HEADER: Final = "oncelake."
# Spark's own format drops what is below a millisecond.
_JSON: Final = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
_COORDINATES: Final = ("topic", "partition", "offset")


def messages(
    rows: DataFrame,
    contract: DataContract,
    *,
    avro: AvroValues | None = None,
    retraction: Retraction = "tombstone",
) -> DataFrame:
    """Return rows as records for `pipelines.publishing.transactional_sink`.

    Args:
        rows: With the contract's columns and `_topic`, `_partition`, `_offset`; and `_correction`, if some
            of them correct what was published before (`pipelines.publishing.corrections`).
        contract: Names the columns and the dedup key.
        avro: Writes values; without it they are JSON.
        retraction: What stands for an event that is gone: a record without a value, or one with the columns
            that the event had.

    Returns:
        `key binary`: the dedup key as a JSON object, its parts in the contract's order; `value binary`: the
        contract's columns as a JSON object that the contract accepts, nulls included, or in Avro; `headers`
        by name (`pipelines.publishing.headers`): `oncelake.topic`, `oncelake.partition` and
        `oncelake.offset`, where the record came from; and, for one that corrects, `oncelake.correction`:
        `added`, `changed` or `removed`.
    """
    parts = [F.expr(name(path)).alias(path) for path in contract.key]
    columns = [F.expr(name(field.name)) for field in contract.schema]
    event, headers = F.struct(*columns), [_header(column) for column in _COORDINATES]
    value = avro.of(event) if avro else F.to_json(event, _JSON).cast("binary")
    if CORRECTION in rows.columns:
        kind = F.col(CORRECTION)
        headers.append(_header("correction"))
        if retraction == "tombstone":
            value = F.when(kind.isNull() | (kind != "removed"), value)
    key = F.to_json(F.struct(*parts), _JSON).cast("binary")
    return rows.select(key.alias("key"), value.alias("value"), F.struct(*headers).alias("headers"))


def _header(column: str) -> Column:
    return F.col(f"_{column}").alias(f"{HEADER}{column}")
