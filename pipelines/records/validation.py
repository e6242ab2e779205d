"""What can be wrong with a parsed record: conditions in the order in which they are looked for, and reasons.

They are written as SQL text: a contract of ten columns has some forty conditions, and building as many
trees of `Column` objects takes seconds of calls to the JVM, each time a job starts.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from typing import Final, Literal

from pyspark.sql.types import StructType

from pipelines.contracts.contract import DataContract
from pipelines.contracts.event_days import FIRST_DAY
from pipelines.contracts.rules import RowRule
from pipelines.durations import format_interval
from pipelines.formats.catalog import format_of
from pipelines.formats.value_format import DOCUMENT, VALUE
from pipelines.records.exact_keys import inexact_parts
from pipelines.records.json_types import flaws
from pipelines.records.reasons import Reason
from pipelines.records.unsafe_decimals import UNSAFE, has_decimals
from pipelines.registry.wire_format import Writers
from pipelines.sql import literal, name

PARSED: Final = "_json"
CORRUPT: Final = "_corrupt"
# A record without a Kafka timestamp carries one before 1970.
_STAMPED: Final = "_kafka_timestamp >= timestamp_seconds(0)"
SENT_AT: Final = f"least(CASE WHEN {_STAMPED} THEN _kafka_timestamp END, _ingested_at)"
READER_BEHIND: Final = timedelta(days=7)
"""By how much the clock of the machine that reads may be behind without a record being called broken."""
_AT_LATEST: Final = f"_ingested_at + INTERVAL {format_interval(READER_BEHIND)}"
# The watermark goes no further than SENT_AT, so what a fast producer gains here moves no other record.
SENT_BY: Final = f"CASE WHEN {_STAMPED} THEN least(_kafka_timestamp, {_AT_LATEST}) ELSE _ingested_at END"
"""The latest that a record can have been sent, as far as it can be believed."""
FOUND_LENGTH: Final = 200

_FINGERPRINT: Final = 16

Fault = tuple[str, str]


def no_fault(faults: list[Fault]) -> str:
    """Return an SQL condition that is true if no fault's condition is, and never null."""
    clean = " AND ".join(f"coalesce(NOT ({condition}), true)" for condition, _ in faults)
    # The first part is always true, and to the optimizer not the same twice: otherwise it splits the
    # conditions, moves them below the projections, and parses the JSON again for each of them.
    return f"spark_partition_id() >= 0 AND {clean}"


def first_fault(faults: list[Fault]) -> str:
    """Return an SQL expression for the reason of the first fault whose condition is true.

    Null without a fault.
    """
    return "CASE " + " ".join(f"WHEN {condition} THEN {reason}" for condition, reason in faults) + " END"


def faults_of(contract: DataContract, max_future: timedelta, writers: Writers) -> list[Fault]:
    """Return pairs of a condition and the reason that it stands for, both SQL over the columns of `decode`.

    A reason is a `struct<reason string, column string, found string>`.

    Args:
        contract: what the records ought to be.
        max_future: how far an event time may lie after the record was sent.
        writers: the schemas that are known, by id.
    """
    faults = [
        ("_value IS NULL", _reason("null_value")),
        *_document_faults(contract, writers),
        (f"{PARSED}.{CORRUPT} IS NOT NULL", _corrupt_reason(contract)),
        (f"{PARSED}.{VALUE} IS NULL", _reason("not_an_object")),
        *_type_faults(contract, "wrong_type"),
        *_key_faults(contract),
        *((f"{name(column)} IS NULL", _reason("missing_field", column)) for column in contract.required),
        *_type_faults(contract, "missing_field"),
    ]
    event_time = name(contract.event_time)
    limit = f"{SENT_BY} + INTERVAL {format_interval(max_future)}"
    faults.append(
        (
            f"{event_time} > {limit}",
            _reason("event_time_future", contract.event_time, shown_value(contract, contract.event_time)),
        )
    )
    first = datetime.combine(FIRST_DAY, time.min, contract.zone).astimezone(UTC)
    faults.append(
        (
            f"{event_time} < timestamp_seconds({first.timestamp():.0f})",
            _reason("event_time_past", contract.event_time, shown_value(contract, contract.event_time)),
        )
    )
    for rule in contract.row_rules:
        faults.append(
            (_broken(rule), _reason("rule_failed", rule.column, shown_value(contract, rule.column)))
        )
    for number, condition in enumerate(contract.conditions):
        faults.append(
            (f"NOT {condition_column(number)}", _reason("rule_failed", found=literal(condition.name)))
        )
    return faults


def condition_column(number: int) -> str:
    """Return the column of `decode` that says whether a record keeps a condition of the contract."""
    return f"_condition_{number}"


def wire(column: str) -> str:
    """Return the field of the parsed JSON that a column comes from, in SQL."""
    return f"{PARSED}.{VALUE}.{name(column)}"


def _document_faults(contract: DataContract, writers: Writers) -> list[Fault]:
    """Return what can be wrong before JSON is read for its fields."""
    of_format = format_of(contract).document_faults(writers)
    faults = [(fault.condition, _reason(fault.reason, found=fault.found)) for fault in of_format]
    if has_decimals(contract.schema):
        faults.append((UNSAFE, _reason("wrong_type")))
    return [*faults, (f"{PARSED} IS NULL", _reason("malformed_json"))]


def _type_faults(contract: DataContract, reason: Literal["wrong_type", "missing_field"]) -> Iterator[Fault]:
    for field in contract.schema.fields:
        found_here = flaws(wire(field.name), name(field.name), field.dataType, field.name)
        for flaw in (flaw for flaw in found_here if flaw.reason == reason):
            found = flaw.found and shown_value(contract, flaw.path, flaw.found)
            yield flaw.condition, _reason(flaw.reason, flaw.path, found)


def _key_faults(contract: DataContract) -> Iterator[Fault]:
    for path, condition, found in inexact_parts(contract, wire):
        yield condition, _reason("wrong_type", path, shown_value(contract, path, found))


def _path(column: str) -> str:
    """Return the path of a column in the JSON text, as a literal."""
    return literal(f"$.{VALUE}" + "".join(f"['{part}']" for part in column.split(".")))


def shown_value(contract: DataContract, column: str, value: str | None = None) -> str | None:
    """Return SQL for what may be shown of a column's value; None if nothing may be.

    Args:
        contract: says which columns hold personal data.
        column: the path of the column.
        value: SQL for the value, if it is not the column itself.
    """
    text = f"CAST({value or name(column)} AS STRING)"
    match contract.treatment(column):
        case "hash":
            return f"concat('sha256:', left(sha2({text}, 256), {_FINGERPRINT}))"
        case "drop":
            return None
        case None:
            return text


def _reason(reason: Reason, column: str | None = None, found: str | None = None) -> str:
    value = "CAST(NULL AS STRING)" if found is None else f"left({found}, {FOUND_LENGTH})"
    at = "CAST(NULL AS STRING)" if column is None else literal(column)
    return f"named_struct('reason', {literal(reason)}, 'column', {at}, 'found', {value})"


def _corrupt_reason(contract: DataContract) -> str:
    parsed = f"try_parse_json({DOCUMENT})"
    kind = f"schema_of_variant(try_variant_get({parsed}, '$.{VALUE}', 'variant'))"
    cases = [
        (f"{parsed} IS NULL", _reason("malformed_json")),
        (f"NOT startswith({kind}, 'OBJECT')", _reason("not_an_object")),
    ]
    for path in _leaves(contract.schema):
        raw = f"get_json_object({DOCUMENT}, {_path(path)})"
        broken = f"{raw} IS NOT NULL AND {wire(path)} IS NULL"
        cases.append((broken, _reason("wrong_type", path, shown_value(contract, path, raw))))
    # Sound JSON, so what Spark could not read is within an array or a map.
    return first_fault([*cases, ("true", _reason("wrong_type"))])


def _leaves(schema: StructType, prefix: str = "") -> Iterator[str]:
    """Yield the paths of columns, and of what lies in objects, the inner ones first."""
    for field in schema:
        if isinstance(field.dataType, StructType):
            yield from _leaves(field.dataType, f"{prefix}{field.name}.")
        yield f"{prefix}{field.name}"


def _broken(rule: RowRule) -> str:
    column = name(rule.column)
    match rule.kind:
        case "minimum":
            return f"{column} < {literal(rule.value)}"
        case "maximum":
            return f"{column} > {literal(rule.value)}"
        case "pattern":
            return f"NOT ({column} RLIKE {literal(rule.value)})"
        case "min_length":
            return f"length({column}) < {literal(rule.value)}"
        case "max_length":
            return f"length({column}) > {literal(rule.value)}"
        case "values":
            return f"{column} NOT IN ({', '.join(map(literal, rule.value))})"
