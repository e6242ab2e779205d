"""What a contract says in `customProperties`, since the standard has no words for it.

Each function reads one of them, and hands what is wrong with it to `refuse`, with its place.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, cast, get_args
from zoneinfo import ZoneInfo

from open_data_contract_standard.model import SchemaObject, SchemaProperty
from pyspark.sql.types import ArrayType, MapType, StructType

from pipelines.contracts.types import Refuse

OF_OBJECT: Final = (
    "eventTime",
    "dayTimeZone",
    "dedupPolicy",
    "dedupSequence",
    "maxConflictsPercent",
    "valueFormat",
)
OF_PROPERTY: Final = ("personal",)
"""The custom properties that are known; any other is left alone unless it looks like one of these."""

Personal = Literal["hash", "drop"]
Winner = Literal["first", "last", "highest"]
DEFAULT_FORMAT: Final = "json"


@dataclass(frozen=True)
class Policy:
    """Which copy of a key wins.

    Attributes:
        winner: `first` or `last` in Kafka's order (timestamp, topic, partition, offset), or `highest`: that
            with the highest value of `sequence`, of several such the last in Kafka's order.
        sequence: The column that `highest` looks at.
    """

    winner: Winner = "first"
    sequence: str | None = None


def event_time(item: SchemaObject, schema: StructType, refuse: Refuse) -> str:
    """Return the timestamp column that decides the event day: `eventTime`."""
    name = _custom(item).get("eventTime")
    stamps = [f.name for f in schema.fields if f.dataType.typeName() == "timestamp"]
    if name not in stamps:
        actual = "no such custom property" if name is None else repr(name)
        refuse(
            "schema.customProperties.eventTime",
            f"expected the name of a timestamp property ({', '.join(stamps) or 'found none'}), got {actual}",
        )
    elif schema[str(name)].nullable:
        refuse(f"schema.properties.{name}", "the event time must not be missing: add `required: true`")
    return str(name)


def day_time_zone(item: SchemaObject, refuse: Refuse) -> str:
    """Return the zone in which an event day begins and ends: `dayTimeZone`, UTC if it is not there."""
    zone = str(_custom(item).get("dayTimeZone", "UTC"))
    try:
        ZoneInfo(zone)
        # These are files of Python's database; Java knows no zones of such names.
        if zone.startswith(("right/", "posix/")) or zone in ("localtime", "posixrules", "Factory"):
            raise ValueError(zone)
    except (KeyError, ValueError, OSError):
        refuse(
            "schema.customProperties.dayTimeZone",
            f"expected a time zone such as 'America/New_York', got {zone!r}",
        )
        return "UTC"
    return zone


def max_conflicts(item: SchemaObject, refuse: Refuse) -> float | None:
    """Return how many of a day's events may have copies that differ, in percent: `maxConflictsPercent`."""
    limit = _custom(item).get("maxConflictsPercent")
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 <= limit <= 100:
        refuse(
            "schema.customProperties.maxConflictsPercent",
            f"expected a number from 0 to 100, got {limit!r}",
        )
        return None
    return float(limit)


def value_format(item: SchemaObject, known_formats: Iterable[str], refuse: Refuse) -> str:
    """Return how the bytes of a value are to be read: `valueFormat`, json if it is not there."""
    format_name = _custom(item).get("valueFormat", DEFAULT_FORMAT)
    # In a list, since what a file says may be no text at all.
    if format_name not in (formats := [*known_formats]):
        expected = ", ".join(formats)
        refuse("schema.customProperties.valueFormat", f"expected one of {expected}, got {format_name!r}")
    return str(format_name)


def personal(
    properties: Iterable[tuple[str, SchemaProperty, bool]], refuse: Refuse
) -> Iterator[tuple[str, Personal]]:
    """Yield the columns with personal data, and how their values are shown: `personal` of a property."""
    for path, item, _ in properties:
        treatment = _custom(item).get("personal")
        if treatment in get_args(Personal):
            yield path, cast(Personal, treatment)
        elif treatment is not None:
            refuse(
                f"schema.properties.{path}.customProperties.personal",
                f"expected {' or '.join(get_args(Personal))}, got {treatment!r}",
            )


def policy(item: SchemaObject, schema: StructType, key: Sequence[str], refuse: Refuse) -> Policy:
    """Return which copy of a key wins: `dedupPolicy`, and for `highest` the column `dedupSequence`."""
    properties = _custom(item)
    winner, sequence = properties.get("dedupPolicy", "first"), properties.get("dedupSequence")
    place = "schema.customProperties.dedupPolicy"
    if winner not in get_args(Winner):
        refuse(place, f"expected {', '.join(get_args(Winner))}, got {winner!r}")
        return Policy()
    if (winner == "highest") != (sequence is not None):
        refuse(place, "expected dedupSequence together with the policy highest, and only with it")
        return Policy()
    if winner != "first" and str(properties.get("eventTime")) not in key:
        refuse(
            place,
            f"{winner}: expected the event time in the dedup key, or the policy first: a copy that moves an"
            " event to another day could not be distinguished from a surplus row",
        )
    if sequence is not None:
        kinds = {field.name: field.dataType for field in schema}
        if isinstance(kinds.get(str(sequence)), ArrayType | MapType | StructType | None):
            refuse(
                "schema.customProperties.dedupSequence",
                f"expected the name of a property whose values have an order, got {sequence!r}",
            )
    return Policy(cast(Winner, winner), None if sequence is None else str(sequence))


def _custom(item: SchemaObject | SchemaProperty) -> dict[str, Any]:
    return {str(p.property): p.value for p in item.customProperties or []}
