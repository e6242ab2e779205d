"""Bronze envelopes -> typed events, each with the reason when it breaks its contract.

The stream and the nightly rebuild call this same function, and it looks at nothing but the record
itself (no clock, no other record), so both come to the same verdict for the same record.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from pipelines.contracts.contract import DataContract
from pipelines.formats.catalog import format_of
from pipelines.formats.value_format import DOCUMENT, VALUE
from pipelines.records.exact_keys import SENT_KEY, one_zero, sent_key
from pipelines.records.fingerprints import fingerprint
from pipelines.records.json_types import typed, wire_type
from pipelines.records.unsafe_decimals import UNSAFE, unsafe
from pipelines.records.validation import (
    CORRUPT,
    PARSED,
    SENT_AT,
    SENT_BY,
    condition_column,
    faults_of,
    first_fault,
    no_fault,
    wire,
)
from pipelines.registry.wire_format import NO_WRITERS, Writers
from pipelines.sql import literal, name

ENVELOPE: Final = ("key", "value", "headers")
COORDINATES: Final = ("_topic", "_partition", "_offset")
PLACE: Final = (*COORDINATES, "_ingested_at")
"""What tells a row of bronze from every other: Kafka's coordinates, and when it was read."""
ORIGIN: Final = (*COORDINATES, "_kafka_timestamp", "_ingested_at")
EVENT_DATE: Final = "_event_date"
VALID: Final = "_valid"
ERROR: Final = "_error"
ERROR_PARTS: Final = ("reason", "column", "found")
BAD: Final = "_bad"

# Without strict mode the size of nothing would be -1.
_LENIENT: Final = {"spark.sql.ansi.enabled": "false", "spark.sql.legacy.sizeOfNull": "false"}
_JSON_OPTIONS: Final = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": CORRUPT,
    # NaN and Infinity are not JSON, and no rule on a range would hold them.
    "allowNonNumericNumbers": "false",
    "allowSingleQuotes": "false",
}


def decode(
    bronze: DataFrame, contract: DataContract, max_future: timedelta, writers: Writers = NO_WRITERS
) -> DataFrame:
    """Decode values by the contract.

    Args:
        bronze: rows of a bronze table, streaming or not.
        contract: what the records ought to be.
        max_future: how far an event time may lie after the record's Kafka timestamp. Beyond that the
            record is bad, so that it never moves a watermark.
        writers: the schemas that producers wrote by, where values name one by its id. A record with an id
            that is not among them is bad.

    Returns:
        All columns of `bronze`, where `key`, `value` and `headers` are called `_key`, `_value` and
        `_headers` + the contract's columns + `_event_date date` (the event day in the
        contract's zone) + `_valid boolean`, whether the record keeps its contract, never null +
        `_error struct<reason string, column string, found string>`, null for a valid record. Contract
        columns of a bad record have no meaning.
    """
    # A contract may have columns of these names, but none that begin with _.
    envelopes = bronze.withColumnsRenamed({name: f"_{name}" for name in ENVELOPE})
    value_format = format_of(contract)
    documents = value_format.with_document(envelopes, writers)
    json = F.from_json(DOCUMENT, _wire_schema(contract.schema), _JSON_OPTIONS)
    if guard := unsafe(contract.schema, DOCUMENT):
        documents = documents.selectExpr("*", f"{guard} AS {UNSAFE}")
        json = F.when(F.expr(f"NOT {UNSAFE}"), json)
    if numbers := sent_key(contract):
        documents = documents.selectExpr("*", f"{numbers} AS {SENT_KEY}")
    columns = (f"{typed(wire(f.name), f.dataType)} AS {name(f.name)}" for f in contract.schema)
    typed_rows = documents.withColumn(PARSED, json).selectExpr("*", *columns).withColumns(one_zero(contract))
    read = with_conditions(typed_rows, contract, _tried)
    faults = faults_of(contract, max_future, writers)
    local_time = f"from_utc_timestamp({name(contract.event_time)}, {literal(contract.day_time_zone)})"
    judged = read.selectExpr("*", f"to_date({local_time}) AS {EVENT_DATE}", f"{no_fault(faults)} AS {VALID}")
    # The reasons are looked through only for a record that needs one.
    error = f"CASE WHEN NOT {VALID} THEN {first_fault(faults)} END AS {ERROR}"
    condition_names = (condition_column(number) for number in range(len(contract.conditions)))
    helpers = (PARSED, UNSAFE, SENT_KEY, *value_format.helper_columns(writers))
    return judged.selectExpr("*", error).drop(*helpers, *condition_names)


def with_conditions(
    rows: DataFrame, contract: DataContract, transform: Callable[[Column], Column] = lambda column: column
) -> DataFrame:
    """Return the rows with a boolean column for each condition of the contract, null where it cannot be told.

    Spark's strict mode would end the stream over a division by zero in a condition; so these columns, and
    nothing else, are made without it. An expression keeps the mode in which it was made.

    Args:
        rows: rows with the contract's columns.
        contract: has the conditions.
        transform: what is made of each.

    Raises:
        ParseException, AnalysisException: a condition is not one, see `pipelines.spark.preflight`.
    """
    if not contract.conditions:
        return rows
    settings = rows.sparkSession.conf
    before = {key: str(settings.get(key)) for key in _LENIENT}
    for key, value in _LENIENT.items():
        settings.set(key, value)
    try:
        condition_columns = (
            transform(F.expr(c.sql)).alias(condition_column(n)) for n, c in enumerate(contract.conditions)
        )
        return rows.select("*", *condition_columns)
    finally:
        for key, value in before.items():
            settings.set(key, value)


def _tried(condition: Column) -> Column:
    """Return condition; null for a record for which it fails in any mode, as `url_decode('100%')` does."""
    jvm: Any = SparkContext._jvm
    expressions = jvm.org.apache.spark.sql.classic.ExpressionUtils
    attempt = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(expressions.expression(condition._jc))
    # Always true, and not to the optimizer: what may not be reached is not computed ahead of the attempt,
    # where several conditions have a part in common.
    return F.when(F.expr("spark_partition_id() >= 0"), Column(expressions.column(attempt)))


def valid(decoded: DataFrame, contract: DataContract) -> DataFrame:
    """Return the events that keep their contract: its columns + `_event_date` + the columns of `ORIGIN`."""
    return decoded.where(VALID).select(*contract.columns, EVENT_DATE, *ORIGIN)


def invalid(decoded: DataFrame, contract: DataContract) -> DataFrame:
    """Return the records that break their contract, whole, as the quarantine table keeps them.

    Returns:
        `key, value, headers`, the columns of `ORIGIN`, `_reason string` (one of `Reason`),
        `_column string` (the column at fault, if one is), `_found string` (its value, cut to 200
        characters), `_contract_version string`.
    """
    return broken_of(routed(decoded.where(~F.col(VALID)), contract), contract)


def routed(decoded: DataFrame, contract: DataContract, *also: str) -> DataFrame:
    """Return events and broken records in one shape: one stream carries both and decodes each record once.

    Args:
        decoded: a frame made by `decode`.
        contract: names the columns.
        also: columns of it that are kept as they are.

    Returns:
        The contract's columns (all null for a broken record) + `_event_date` + the columns of `ORIGIN` +
        `_bad struct<key, value, headers, reason string, column string, found string>`, null for an event.
    """
    envelope = ", ".join(f"'{name}', _{name}" for name in ENVELOPE)
    fault = ", ".join(f"'{part}', {ERROR}.{part}" for part in ERROR_PARTS)
    events = (f"CASE WHEN {VALID} THEN {name(column)} END AS {name(column)}" for column in contract.columns)
    bad = f"CASE WHEN NOT {VALID} THEN named_struct({envelope}, {fault}) END AS {BAD}"
    return decoded.selectExpr(*events, EVENT_DATE, *ORIGIN, bad, *also)


def events_of(routes: DataFrame, contract: DataContract) -> DataFrame:
    """Return the events of a frame made by `routed`, in the shape of `valid`."""
    return routes.where(F.col(BAD).isNull()).select(*contract.columns, EVENT_DATE, *ORIGIN)


def broken_of(routes: DataFrame, contract: DataContract) -> DataFrame:
    """Return the broken records of a frame made by `routed`, in the shape of `invalid`."""
    return routes.where(F.col(BAD).isNotNull()).select(
        *(F.col(f"{BAD}.{name}").alias(name) for name in ENVELOPE),
        *ORIGIN,
        *(F.col(f"{BAD}.{part}").alias(f"_{part}") for part in ERROR_PARTS),
        F.lit(contract.version).alias("_contract_version"),
    )


def sent_at() -> Column:
    """Return when a record was sent, as far as it can be believed: never after it was read.

    A record without a Kafka timestamp carries one before 1970; it counts as sent when it was read.
    """
    return F.expr(SENT_AT)


def sent_by() -> Column:
    """Return the latest that a record was sent.

    Event times are measured from it, and so is what may be removed.
    """
    return F.expr(SENT_BY)


def payload_hash(contract: DataContract) -> Column:
    """Return a 64-bit hash of the contract's columns.

    Equal for retries of one event, whatever their layout.
    """
    columns = (fingerprint(name(f.name), f.dataType) for f in contract.schema)
    return F.expr(f"xxhash64({', '.join(columns)})")


def _wire_schema(schema: StructType) -> StructType:
    return StructType([StructField(VALUE, wire_type(schema)), StructField(CORRUPT, StringType())])
