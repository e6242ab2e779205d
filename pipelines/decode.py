"""Bronze envelopes -> typed events, each with the reason when it breaks its contract.

The stream and the nightly rebuild call this same function, and it looks at nothing but the record
itself (no clock, no other record), so both come to the same verdict for the same record.
"""

from datetime import timedelta
from functools import reduce
from typing import Final, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pipelines.contract import DataContract
from pipelines.contract_rules import RowRule

Reason = Literal[
    "null_value",
    "malformed_json",
    "not_an_object",
    "wrong_type",
    "missing_field",
    "event_time_future",
    "rule_failed",
]

_ENVELOPE: Final = ("key", "value", "headers")
ORIGIN: Final = ("_topic", "_partition", "_offset", "_kafka_timestamp", "_ingested_at")
EVENT_DATE: Final = "_event_date"
ERROR: Final = "_error"

_CORRUPT: Final = "_corrupt"
_END: Final = "_end"
_FOUND_LENGTH: Final = 200
_TIMESTAMP: Final = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}:?\d{2})?$"
_DATE: Final = r"^\d{4}-\d{2}-\d{2}$"
_JSON_OPTIONS: Final = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    # NaN and Infinity are not JSON, and no rule on a range would hold them.
    "allowNonNumericNumbers": "false",
}


def decode(bronze: DataFrame, contract: DataContract, max_future: timedelta) -> DataFrame:
    """Decodes JSON values by the contract.

    Args:
        bronze: rows of a bronze table, streaming or not.
        contract: what the records ought to be.
        max_future: how far an event time may lie after the record's Kafka timestamp. Beyond that the
            record is bad, so that it never moves a watermark.

    Returns:
        All columns of `bronze`, where `key`, `value` and `headers` are called `_key`, `_value` and
        `_headers` + the contract's columns + `_event_date date` (the event day in the
        contract's zone) + `_error struct<reason string, column string, found string>`, which is null
        for a record that keeps its contract. Contract columns of a bad record have no meaning.
    """
    # A contract may have columns of these names, but none that begin with _.
    envelopes = bronze.withColumnsRenamed({name: f"_{name}" for name in _ENVELOPE})
    parsed = envelopes.withColumn("_json", F.from_json(_text(), _wire_schema(contract.schema), _JSON_OPTIONS))
    typed = parsed.withColumns(
        {field.name: _convert(_wire(field.name), field.dataType) for field in contract.schema.fields}
    )
    local_time = F.from_utc_timestamp(F.col(contract.event_time), contract.day_time_zone)
    return (
        typed.withColumn(EVENT_DATE, F.to_date(local_time))
        .withColumn(ERROR, _error(contract, max_future))
        .drop("_json")
    )


def valid(decoded: DataFrame, contract: DataContract) -> DataFrame:
    """The events that keep their contract: its columns + `_event_date` + the columns of `ORIGIN`."""
    return decoded.where(F.col(ERROR).isNull()).select(*contract.columns, EVENT_DATE, *ORIGIN)


def invalid(decoded: DataFrame, contract: DataContract) -> DataFrame:
    """The records that break their contract, whole, as the quarantine table keeps them.

    Returns:
        `key, value, headers`, the columns of `ORIGIN`, `_reason string` (one of `Reason`),
        `_column string` (the column at fault, if one is), `_found string` (its value, cut to 200
        characters), `_contract_version string`.
    """
    return decoded.where(F.col(ERROR).isNotNull()).select(
        *(F.col(f"_{name}").alias(name) for name in _ENVELOPE),
        *ORIGIN,
        F.col(f"{ERROR}.reason").alias("_reason"),
        F.col(f"{ERROR}.column").alias("_column"),
        F.col(f"{ERROR}.found").alias("_found"),
        F.lit(contract.version).alias("_contract_version"),
    )


def sent_at() -> Column:
    """When a record was sent, as far as it can be believed: never after it was read.

    A record without a Kafka timestamp carries one before 1970; it counts as sent when it was read.
    """
    claimed = F.col("_kafka_timestamp")
    return F.least(F.when(claimed >= F.timestamp_seconds(F.lit(0)), claimed), F.col("_ingested_at"))


def payload_hash(contract: DataContract) -> Column:
    """A 64-bit hash of the contract's columns: equal for retries of one event, whatever their layout."""
    return F.xxhash64(*contract.columns)


def _wire_schema(schema: StructType) -> StructType:
    # Spark's own reading of timestamps takes "10:30" for today and 1357 for seconds: both would
    # decode to another instant than was meant, so text is read first and converted strictly.
    fields = [
        StructField(f.name, StringType() if isinstance(f.dataType, TimestampType | DateType) else f.dataType)
        for f in schema.fields
    ]
    wrapped = [StructField("r", StructType(fields)), StructField(_END, BooleanType())]
    return StructType([*wrapped, StructField(_CORRUPT, StringType())])


def _text() -> Column:
    # Spark stops reading at the end of the first JSON value. Inside a wrapper it must go on to our own
    # end mark, so that a second event or garbage behind the first is found, not lost.
    return F.concat(F.lit('{"r":'), F.col("_value").cast("string"), F.lit(f',"{_END}":true}}'))


def _wire(name: str) -> Column:
    return F.col("_json.r")[name]


def _convert(column: Column, kind: DataType) -> Column:
    if isinstance(kind, TimestampType):
        return F.when(column.rlike(_TIMESTAMP), column.try_cast("timestamp"))
    if isinstance(kind, DateType):
        return F.when(column.rlike(_DATE), column.try_cast("date"))
    return column


def _error(contract: DataContract, max_future: timedelta) -> Column:
    no_error = F.lit(None).cast("struct<reason:string,column:string,found:string>")
    steps: list[tuple[Column, Column]] = [
        (F.col("_value").isNull(), _reason("null_value")),
        (~F.is_valid_utf8(F.col("_value")) | F.col("_json").isNull(), _reason("malformed_json")),
        (F.col(f"_json.{_CORRUPT}").isNotNull(), _corrupt_reason(contract)),
        (F.col(f"_json.{_END}").isNull(), _reason("malformed_json")),
        (F.col("_json.r").isNull(), _reason("not_an_object")),
    ]
    for field in contract.schema.fields:
        wire = _wire(field.name)
        if isinstance(field.dataType, TimestampType | DateType):
            broken = wire.isNotNull() & F.col(field.name).isNull()
            steps.append((broken, _reason("wrong_type", field.name, wire)))
        if isinstance(field.dataType, FloatType | DoubleType):
            # A number too large for its type is read as infinite.
            infinite = F.abs(wire) == F.lit(float("inf"))
            steps.append((infinite, _reason("wrong_type", field.name, wire)))
    steps += [(F.col(name).isNull(), _reason("missing_field", name)) for name in contract.required]
    event_time = F.col(contract.event_time)
    steps.append(
        (
            event_time > sent_at() + F.lit(max_future),
            _reason("event_time_future", contract.event_time, event_time),
        )
    )
    steps += [
        (_broken(rule), _reason("rule_failed", rule.column, F.col(rule.column)))
        for rule in contract.row_rules
    ]
    return reduce(lambda rest, step: F.when(step[0], step[1]).otherwise(rest), reversed(steps), no_error)


def _reason(reason: Reason, column: str | None = None, found: Column | None = None) -> Column:
    value = F.lit(None) if found is None else F.left(found.cast("string"), F.lit(_FOUND_LENGTH))
    return F.struct(
        F.lit(reason).alias("reason"),
        F.lit(column).cast("string").alias("column"),
        value.cast("string").alias("found"),
    )


def _corrupt_reason(contract: DataContract) -> Column:
    document = F.try_parse_json(_text())
    record = F.try_variant_get(document, "$.r", "variant")
    at_fault = _reason("malformed_json")
    for field in reversed(contract.schema.fields):
        found = F.try_variant_get(document, f"$.r['{_quote(field.name)}']", "string")
        broken = found.isNotNull() & _wire(field.name).isNull()
        at_fault = F.when(broken, _reason("wrong_type", field.name, found)).otherwise(at_fault)
    return (
        F.when(document.isNull(), _reason("malformed_json"))
        .when(~F.schema_of_variant(record).startswith("OBJECT"), _reason("not_an_object"))
        .otherwise(at_fault)
    )


def _quote(name: str) -> str:
    return name.replace("\\", "\\\\").replace("'", "\\'")


def _broken(rule: RowRule) -> Column:
    column = F.col(rule.column)
    match rule.kind:
        case "minimum":
            return column < F.lit(rule.value)
        case "maximum":
            return column > F.lit(rule.value)
        case "pattern":
            return ~column.rlike(str(rule.value))
        case "min_length":
            return F.length(column) < F.lit(rule.value)
        case "max_length":
            return F.length(column) > F.lit(rule.value)
        case "values":
            return ~column.isin(list(rule.value))
