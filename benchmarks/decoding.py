"""How fast values are decoded, against reading their bytes: bronze as it is, and the same events in Avro."""

from dataclasses import replace
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.config.model import PipelineConfig
from pipelines.contracts.contract import DataContract
from pipelines.delta.io import read
from pipelines.records.decode import VALID, decode, valid
from pipelines.registry.wire_format import NO_WRITERS, Writers, WriterSchema

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
_WRITERS: Final[Writers] = {_ID: WriterSchema(_ID, "AVRO", _AVRO)}


def avro_table(config: PipelineConfig) -> str:
    """Where the events in Avro are."""
    return f"{config.root}/bronze/in_avro"


def write_in_avro(spark: SparkSession, config: PipelineConfig, contract: DataContract) -> None:
    """Writes the valid events of bronze again, as Avro in the wire format of a registry."""
    bronze = read(spark, config.table("bronze"))
    decoded = decode(bronze, contract, config.decode.max_future).where(F.col(VALID))
    fields = ", ".join(f"`{name}`" for name in contract.columns)
    value = f"concat(X'00{_ID:08X}', to_avro(struct({fields}), '{_AVRO}')) AS value"
    changed = {"value": value, "key": "_key AS key", "headers": "_headers AS headers"}
    columns = [changed.get(name, name) for name in bronze.columns]
    decoded.selectExpr(*columns).write.format("delta").save(avro_table(config))


def read_bytes(spark: SparkSession, config: PipelineConfig, contract: DataContract) -> DataFrame:
    """Bronze as it is."""
    return read(spark, config.table("bronze"))


def from_json(spark: SparkSession, config: PipelineConfig, contract: DataContract) -> DataFrame:
    """The events of bronze."""
    decoded = decode(read(spark, config.table("bronze")), contract, config.decode.max_future, NO_WRITERS)
    return valid(decoded, contract)


def from_avro(spark: SparkSession, config: PipelineConfig, contract: DataContract) -> DataFrame:
    """The events of the table in Avro."""
    in_avro = replace(contract, value_format="avro")
    decoded = decode(read(spark, avro_table(config)), in_avro, config.decode.max_future, _WRITERS)
    return valid(decoded, in_avro)
