"""How fast values are decoded, against reading their bytes: bronze as it is, and the same events in Avro."""

from dataclasses import replace
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.config.model import PipelineConfig
from pipelines.delta.io import read
from pipelines.records.decode import VALID, decode, valid
from pipelines.registry.confluent import CONFLUENT
from pipelines.registry.wire_format import NO_WRITERS, Writers, WriterSchema
from pipelines.spark.pipeline import Pipeline

_ID: Final = 1
_AVRO: Final = """
{"type": "record", "name": "Reading", "fields": [
  {"name": "site", "type": ["null", "string"]},
  {"name": "device", "type": ["null", "string"]},
  {"name": "sequence", "type": ["null", "long"]},
  {"name": "measured_at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
  {"name": "status", "type": ["null", "string"]},
  {"name": "voltage", "type": ["null", "double"]},
  {"name": "current", "type": ["null", "double"]},
  {"name": "power", "type": ["null", "double"]},
  {"name": "temperature", "type": ["null", "double"]},
  {"name": "firmware", "type": ["null", "string"]},
  {"name": "channel", "type": ["null", "string"]}
]}
"""
_WRITERS: Final = Writers({str(_ID): WriterSchema(str(_ID), "AVRO", _AVRO)}, CONFLUENT)


def avro_table(config: PipelineConfig) -> str:
    """Return where the events in Avro are."""
    return f"{config.root}/bronze/in_avro"


def write_in_avro(pipeline: Pipeline) -> None:
    """Write the valid events of bronze again, as Avro in the wire format of a registry."""
    bronze = read(pipeline.spark, pipeline.table("bronze"))
    decoded = decode(bronze, pipeline.contract, pipeline.config.decode.max_future).where(F.col(VALID))
    fields = ", ".join(f"`{name}`" for name in pipeline.contract.columns)
    value = f"concat(X'00{_ID:08X}', to_avro(struct({fields}), '{_AVRO}')) AS value"
    changed = {"value": value, "key": "_key AS key", "headers": "_headers AS headers"}
    columns = [changed.get(name, name) for name in bronze.columns]
    decoded.selectExpr(*columns).write.format("delta").save(avro_table(pipeline.config))


def read_bytes(pipeline: Pipeline) -> DataFrame:
    """Bronze as it is."""
    return read(pipeline.spark, pipeline.table("bronze"))


def from_json(pipeline: Pipeline) -> DataFrame:
    """Return the events of bronze."""
    decoded = decode(
        read(pipeline.spark, pipeline.table("bronze")),
        pipeline.contract,
        pipeline.config.decode.max_future,
        NO_WRITERS,
    )
    return valid(decoded, pipeline.contract)


def from_avro(pipeline: Pipeline) -> DataFrame:
    """Return the events of the table in Avro."""
    in_avro = replace(pipeline.contract, value_format="avro")
    decoded = decode(
        read(pipeline.spark, avro_table(pipeline.config)),
        in_avro,
        pipeline.config.decode.max_future,
        _WRITERS,
    )
    return valid(decoded, in_avro)
