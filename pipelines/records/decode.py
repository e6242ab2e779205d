"""Bronze envelopes -> typed events, each with the reason when it breaks its contract.

The stream and the nightly rebuild call this same function, and it looks at nothing but the record
itself (no clock, no other record), so both come to the same verdict for the same record.
"""

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.contracts.contract import DataContract
from pipelines.formats.registered_formats import format_of
from pipelines.formats.value_format import DocumentFault
from pipelines.records.decoder import ERROR_PARTS, FAULT, VALUES, decoded_column
from pipelines.records.fingerprints import fingerprint
from pipelines.records.reasons import Reason
from pipelines.records.redaction import FOUND_LENGTH
from pipelines.registry.wire_format import NO_WRITERS, Writers
from pipelines.session_settings import session_settings
from pipelines.sql import literal, name

ENVELOPE: Final = ("key", "value", "headers")
COORDINATES: Final = ("_topic", "_partition", "_offset")
RECORD_ID: Final = (*COORDINATES, "_ingested_at")
"""What tells a row of bronze from every other: Kafka's coordinates, and when it was read."""
ORIGIN: Final = (*COORDINATES, "_kafka_timestamp", "_ingested_at")
EVENT_DATE: Final = "_event_date"
VALID: Final = "_valid"
ERROR: Final = "_error"
BAD: Final = "_bad"

# Without strict mode the size of nothing would be -1.
_LENIENT: Final = {"spark.sql.ansi.enabled": "false", "spark.sql.legacy.sizeOfNull": "false"}
_DAY_US: Final = timedelta(days=1) // timedelta(microseconds=1)
_DECODED: Final = "_decoded"
COUNTED: Final = re.compile(
    r"like|regexp|split|str_to_map|->|\b(?:charindex|contains|instr|levenshtein|locate|position)\b"
    r"|\barray_(?:distinct|except|intersect|union)\b|\barrays_overlap\b",
    re.IGNORECASE,
)
"""All functions and operators of Spark that read a text as a regular expression, divide a text, do something
for each element, or compare all with all; and a few others."""


def decode(
    bronze: DataFrame, contract: DataContract, max_future: timedelta, writers: Writers = NO_WRITERS
) -> DataFrame:
    """Decode values by the contract.

    Args:
        bronze: Rows of a bronze table, streaming or not.
        contract: What the records ought to be.
        max_future: How far an event time may lie after the record's Kafka timestamp. Beyond that the
            record is bad, so that it never moves a watermark.
        writers: The schemas that producers wrote by, where values name one, and how they name it. A record
            with an id that is not among them is bad.

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
    decoded = documents.withColumn(_DECODED, decoded_column(contract, max_future))
    columns = (f"{_DECODED}.{VALUES}.{name(column)} AS {name(column)}" for column in contract.columns)
    read = with_conditions(decoded.selectExpr("*", *columns), contract, _tried)
    local_time = name(contract.event_time)
    if contract.day_time_zone != "UTC":
        local_time = f"from_utc_timestamp({local_time}, {literal(contract.day_time_zone)})"
    error = _error(contract, value_format.document_faults(writers))
    judged = read.selectExpr("*", f"{_day_of(local_time)} AS {EVENT_DATE}", f"{error} AS {ERROR}")
    condition_names = (condition_column(number) for number in range(len(contract.conditions)))
    helpers = (_DECODED, *value_format.helper_columns(writers), *condition_names)
    return judged.selectExpr("*", f"{ERROR} IS NULL AS {VALID}").drop(*helpers)


def _day_of(local_time: str) -> str:
    """Return SQL for the UTC day of a timestamp; `to_date` does the same by five objects for each row."""
    micros = f"unix_micros({local_time})"
    return f"date_from_unix_date(CAST(({micros} - pmod({micros}, {_DAY_US})) div {_DAY_US} AS INT))"


def _error(contract: DataContract, of_format: Sequence[DocumentFault]) -> str:
    """Return SQL for the first fault of a record: of its format, of what the decoder finds, of conditions."""
    before = [(fault.condition, _reason(fault.reason, fault.found)) for fault in of_format]
    if before:
        # A record without a value names no schema either.
        before.insert(0, ("_value IS NULL", _reason("null_value")))
    found = (f"{_DECODED}.{FAULT} IS NOT NULL", f"{_DECODED}.{FAULT}")
    behind = [
        (f"NOT {condition_column(number)}", _reason("rule_failed", literal(condition.name)))
        for number, condition in enumerate(contract.conditions)
    ]
    cases = " ".join(f"WHEN {condition} THEN {reason}" for condition, reason in [*before, found, *behind])
    return f"CASE {cases} END"


def _reason(reason: Reason, found: str | None = None) -> str:
    """Return SQL for a fault of no single column."""
    text = "CAST(NULL AS STRING)" if found is None else f"left({found}, {FOUND_LENGTH})"
    return f"named_struct('reason', {literal(reason)}, 'column', CAST(NULL AS STRING), 'found', {text})"


def condition_column(number: int) -> str:
    """Return the column of `decode` that says whether a record keeps a condition of the contract."""
    return f"_condition_{number}"


def with_conditions(
    rows: DataFrame,
    contract: DataContract,
    transform: Callable[[Column, str], Column] = lambda column, sql: column,
) -> DataFrame:
    """Return the rows with a boolean column for each condition of the contract, null where it cannot be told.

    Spark's strict mode would end the stream over a division by zero in a condition; so these columns, and
    nothing else, are made without it. An expression keeps the mode in which it was made.

    Args:
        rows: Rows with the contract's columns.
        contract: Has the conditions.
        transform: What is made of each, and of its text.

    Raises:
        AnalysisException: A condition is not one, see `pipelines.spark.preflight`.
    """
    if not contract.conditions:
        return rows
    with session_settings(rows.sparkSession, _LENIENT):
        condition_columns = (
            transform(F.expr(c.sql), c.sql).alias(condition_column(n))
            for n, c in enumerate(contract.conditions)
        )
        return rows.select("*", *condition_columns)


def _tried(condition: Column, sql: str) -> Column:
    """Return the condition; null for a record for which it fails in any mode, as `url_decode('100%')`.

    Java's regular expressions may need more stack than the thread of a task has, and more time than anybody
    has; what is done for each element may take more memory and time. A condition that has such a part is
    computed without code: within a budget, and again on a larger stack where that of the task is too small.
    It is false for a record for which neither is enough.
    """
    jvm: Any = SparkContext._jvm
    expressions = jvm.org.apache.spark.sql.classic.ExpressionUtils
    attempt = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(expressions.expression(condition._jc))
    tried = expressions.column(attempt)
    if COUNTED.search(sql):
        tried = jvm.oncelake.decode.DeepTry.of(tried)
    # Always true, and not to the optimizer: what may not be reached is not computed ahead of the attempt,
    # where several conditions have a part in common.
    return F.when(F.expr("spark_partition_id() >= 0"), Column(tried))


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
        decoded: A frame made by `decode`.
        contract: Names the columns.
        also: Columns of it that are kept as they are.

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
    # As text: a stream does this in each micro-batch, and each column of Python's is several calls of Java.
    return routes.where(f"{BAD} IS NOT NULL").selectExpr(
        *(f"{BAD}.{part} AS {part}" for part in ENVELOPE),
        *ORIGIN,
        *(f"{BAD}.{part} AS _{part}" for part in ERROR_PARTS),
        f"{literal(contract.version)} AS _contract_version",
    )


def payload_hash(contract: DataContract) -> Column:
    """Return a 64-bit hash of the contract's columns.

    Equal for retries of one event, whatever their layout.
    """
    columns = (fingerprint(name(f.name), f.dataType) for f in contract.schema)
    return F.expr(f"xxhash64({', '.join(columns)})")
