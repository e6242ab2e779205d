"""The rules of a time zone, as a table of event days keeps them, by which it knows that they have changed.

A zone changes its rules by a decree, and gets them with another Java: an hour between two days then belongs
to the other one. Days that are there keep theirs, and a day that is rebuilt beside them has that hour
twice, or not at all. Only days that are stored matter, so a decree for future days stops nothing.
"""

import re
from bisect import bisect_right
from collections.abc import Collection
from datetime import UTC, date, datetime
from functools import cache
from itertools import pairwise
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.delta.io import read
from pipelines.delta.table_properties import ZONE_RULES, parse_property, set_table_property, table_property
from pipelines.errors import SourceError

_CHANGE: Final = re.compile(r"([0-9]{1,10})([+-][0-9]{1,5})")
_DAY_S: Final = 24 * 60 * 60
_FIRST: Final = int(datetime(1970, 1, 1, tzinfo=UTC).timestamp())
_LAST: Final = int(datetime(2051, 1, 1, tzinfo=UTC).timestamp())


def zone_rules(spark: SparkSession, zone: str) -> str:
    """Return the offsets of a zone from 1970 to 2050 as Java has them, as `MOMENT+OFFSET` in seconds."""
    return _rules_of(spark.sparkContext._jvm, zone)


@cache
def _rules_of(jvm: Any, zone: str) -> str:
    """Ask Java, which answers some thousand calls, once: its rules are those that it was started with."""
    rules = jvm.java.time.ZoneId.of(zone).getRules()
    begins = jvm.java.time.Instant.ofEpochSecond(_FIRST)
    offsets, change = [(_FIRST, rules.getOffset(begins).getTotalSeconds())], rules.nextTransition(begins)
    while change is not None and change.toEpochSecond() < _LAST:
        offsets.append((change.toEpochSecond(), change.getOffsetAfter().getTotalSeconds()))
        change = rules.nextTransition(change.getInstant())
    return " ".join(f"{at}{offset:+}" for at, offset in offsets)


def days_that_differ(old_rules: str, new_rules: str) -> list[tuple[date, date]]:
    """Return the first and last day of each span in which two results of `zone_rules` differ.

    Raises:
        ValueError: One is no result of it.
    """
    both = _changes(old_rules), _changes(new_rules)
    ends = sorted({at for changes in both for at, _ in changes} | {_LAST})
    spans = []
    for begin, end in pairwise(ends):
        offsets = [changes[bisect_right(changes, (begin, 10**6)) - 1][1] for changes in both]
        if offsets[0] != offsets[1]:
            spans.append((_day(begin + min(offsets)), _day(end - 1 + max(offsets))))
    return spans


def require_same_rules(
    spark: SparkSession, table: str, zone: str, built: Collection[date] = ()
) -> str | None:
    """Make sure that the days of a table were built by the current rules of the zone.

    Args:
        spark: The session.
        table: The path of a Delta table partitioned by `_event_date`.
        zone: The zone of its days.
        built: Days that are known to have been built: one without a row is not in the table.

    Returns:
        The current rules, if the table does not keep them.

    Raises:
        SourceError: They were not.
    """
    stored_rules, current_rules = table_property(spark, table, ZONE_RULES), zone_rules(spark, zone)
    if stored_rules == current_rules:
        return None
    spans = []
    if stored_rules:
        spans = parse_property(
            table, ZONE_RULES, stored_rules, lambda rules: days_that_differ(rules, current_rules)
        )
    if spans:
        of_them = " OR ".join(f"_event_date BETWEEN DATE'{first}' AND DATE'{last}'" for first, last in spans)
        days = read(spark, table).where(of_them)
        of_rows = days.agg(F.min("_event_date"), F.max("_event_date")).first() or ()
        known = [day for day in built if any(first <= day <= last for first, last in spans)]
        if found := [*filter(None, of_rows), *known]:
            raise SourceError(
                f"{table}: days from {min(found)} to {max(found)} were built by other rules of {zone} than"
                " Java has now, so an hour between two days would be on both, or on neither. Nothing was"
                " changed. Use the earlier Java, or its time zone data, or rebuild all days: see"
                " docs/runbook.md, 'The rules of the time zone have changed'"
            )
    return current_rules


def keep_rules(spark: SparkSession, table: str, zone: str, built: Collection[date] = ()) -> None:
    """Keep the current rules of the zone with a table of event days; see `require_same_rules`.

    Raises:
        SourceError: Days of it were made by others. The table is as it was.
    """
    if rules := require_same_rules(spark, table, zone, built):
        set_table_property(spark, table, ZONE_RULES, rules)


def _changes(rules: str) -> list[tuple[int, int]]:
    changes = [_change(part) for part in rules.split()]
    if not changes or changes[0][0] != _FIRST or changes != sorted(changes):
        raise ValueError("no rules of a time zone")
    return changes


def _change(text: str) -> tuple[int, int]:
    parts = _CHANGE.fullmatch(text)
    at, offset = (int(parts[1]), int(parts[2])) if parts else (_LAST, 0)
    if not _FIRST <= at < _LAST or abs(offset) > _DAY_S:
        raise ValueError(f"{text}: no change of an offset")
    return at, offset


def _day(local: int) -> date:
    return datetime.fromtimestamp(local, UTC).date()
