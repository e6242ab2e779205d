"""The Avro schema of a contract's events, and values as it writes them."""

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro
from pyspark.sql.types import StructField, StructType

from pipelines.contracts.contract import DataContract
from pipelines.schema_paths import optional

NAMESPACE: Final = "oncelake"


@dataclass(frozen=True)
class AvroValues:
    """How values are written in Avro.

    Attributes:
        header: What names the schema in a value, in the wire format of the registry.
        schema: Its text.
    """

    header: bytes
    schema: str

    def of(self, row: Column) -> Column:
        """Return a struct as Avro behind what names its schema."""
        return F.concat(F.lit(self.header), to_avro(row, self.schema))


def avro_schema(spark: SparkSession, contract: DataContract, record: str) -> str:
    """Return the schema of a contract's events.

    What may be absent is null unless said otherwise, so that a contract that gets an optional column stays
    readable both ways.

    Args:
        spark: The session, which knows how its types are written.
        contract: Tells the columns.
        record: The record's name, before it is made one that Avro takes.
    """
    fields = [StructField(f.name, optional(f.dataType), f.nullable) for f in contract.schema]
    jvm: Any = spark.sparkContext._jvm
    session: Any = spark._jsparkSession
    kind = session.parseDataType(StructType(fields).json())
    name = re.sub(r"[^A-Za-z0-9_]|^(?=[0-9])", "_", record)
    avro_type = jvm.org.apache.spark.sql.avro.SchemaConverters.toAvroType(kind, False, name, NAMESPACE)
    return json.dumps(_null_first(json.loads(avro_type.toString())))


def _null_first(schema: Any) -> Any:
    """Return the schema with null first in each union that has it, and as the default of such fields."""
    match schema:
        case list():
            return sorted((_null_first(member) for member in schema), key=lambda member: member != "null")
        case {"fields": fields}:
            return {**schema, "fields": [_field(field) for field in fields]}
        case dict():
            return {key: _null_first(part) for key, part in schema.items()}
        case _:
            return schema


def _field(field: dict[str, Any]) -> dict[str, Any]:
    kind = _null_first(field["type"])
    return {**field, "type": kind, **({"default": None} if isinstance(kind, list) else {})}
