"""Single records that a report shows: examples of the quarantine, and copies in conflict.

What stands here comes from producers. It is kept as text that a page can show, and a value of a column with
personal data comes here as a fingerprint or not at all.
"""

from typing import Annotated, TypeAlias

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from pipelines.contracts.custom_properties import Personal


def _text(value: object) -> object:
    """Take bytes and lone surrogates as text, so that a poison record cannot break its own report."""
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", errors="backslashreplace")
    if isinstance(value, str):
        return value.encode("utf-8", errors="backslashreplace").decode("utf-8")
    return value


Count: TypeAlias = Annotated[int, Field(ge=0)]
Text: TypeAlias = Annotated[str, BeforeValidator(_text)]


class Model(BaseModel):
    """A part of a report: it does not change, and has no field that is not declared."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Coordinates(Model):
    """Where a record lies in Kafka.

    Attributes:
        topic: Topic of the record.
        partition: Partition of the record.
        offset: Offset of the record.
    """

    topic: Text
    partition: Count
    offset: Count


class QuarantineExample(Model):
    """One quarantined record, by its coordinates in Kafka.

    Attributes:
        topic: Topic of the record.
        partition: Partition of the record.
        offset: Offset of the record.
        kafka_timestamp: The record's own timestamp, if it has one.
        column: The contract column that was broken, where there is one.
        found: What stood there.
        value_preview: The value as text; bytes are taken and decoded, invalid UTF-8 as escapes.
    """

    topic: Text
    partition: Count
    offset: Count
    kafka_timestamp: AwareDatetime | None = None
    column: Text | None = None
    found: Text | None = None
    value_preview: Text | None = None


class QuarantineReason(Model):
    """Quarantined records of one reason.

    Attributes:
        reason: Reason code, such as ``malformed_json``.
        records: How many records.
        examples: A few of them.
    """

    reason: Text
    records: Count
    examples: tuple[QuarantineExample, ...] = ()


class KeyPart(Model):
    """One column of a dedup key, and its value for one event.

    Attributes:
        column: Path of the column.
        value: Its value as text; None if the contract forbids to show it.
    """

    column: Text
    value: Text | None = None


class ConflictCopy(Model):
    """One copy of an event, by its coordinates in Kafka.

    Attributes:
        topic: Topic of the record.
        partition: Partition of the record.
        offset: Offset of the record.
        kafka_timestamp: The record's own timestamp, if it has one that Python can hold.
        winner: Whether it comes first of the day's copies, by the contract's policy.
    """

    topic: Text
    partition: Count
    offset: Count
    kafka_timestamp: AwareDatetime | None = None
    winner: bool


class ConflictColumn(Model):
    """One column in which copies of an event differ.

    Attributes:
        column: Path of the column.
        personal: How its values are shown if they are personal data: `hash` as fingerprints, `drop` not
            at all.
        values: The value in each of the copies, in their order, as text or null; empty for `drop`.
    """

    column: Text
    personal: Personal | None = None
    values: tuple[Text | None, ...] = ()


class ConflictSample(Model):
    """One key of the day whose copies carry different payloads.

    Attributes:
        key: The dedup key.
        copies_of_day: How many copies of the key lie on the day.
        copies: The copies that are shown, the winner first.
        columns: The columns in which these copies differ, in the contract's order.
    """

    key: tuple[KeyPart, ...]
    copies_of_day: Count
    copies: tuple[ConflictCopy, ...]
    columns: tuple[ConflictColumn, ...]
