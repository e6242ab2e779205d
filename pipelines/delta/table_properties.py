"""Table properties: those in which Oncelake keeps what must be in each backup of a table, read and set.

A table that an earlier release made may lack any of them. `docs/tables.md` is made from here.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Final, Literal, TypeVar

from pyspark.sql import SparkSession
from pyspark.sql.types import DateType, NumericType, StringType, StructType, TimestampNTZType, TimestampType

from pipelines.delta.conflicts import retry_conflicts
from pipelines.delta.log import newest_snapshot
from pipelines.errors import SourceError
from pipelines.schema_paths import flat
from pipelines.sql import name

TOPIC_ID: Final = "oncelake.kafka.topicId"
WHOLE_FROM: Final = "oncelake.whole_from"
REMOVED_BELOW: Final = "oncelake.removed_below"
REMOVED_FOR: Final = "oncelake.removed_for"
FORGETTING: Final = "oncelake.forgetting"
DIVERGENCE_ACCEPTED: Final = "oncelake.divergence_accepted"
DEDUP: Final = "oncelake.dedup"
BY_CLOCK_SINCE: Final = "oncelake.watermark.byClockSince"
SPEED_FROM: Final = "oncelake.speed_from"
DAYS: Final = "oncelake.days"
ZONE_RULES: Final = "oncelake.zone_rules"
CERTIFIED: Final = "oncelake.certified"
SERVES: Final = "oncelake.serves"
CONTRACT: Final = "oncelake.contract"
PERSONAL: Final = "oncelake.personal"
CLASSIFICATION: Final = "oncelake.classification"
_FIRST_DAYS: Final = (WHOLE_FROM, SPEED_FROM)

APPEND_ONLY: Final = "delta.appendOnly"
CHANGE_DATA_FEED: Final = "delta.enableChangeDataFeed"
LOG_RETENTION: Final = "delta.logRetentionDuration"
DELETED_FILE_RETENTION: Final = "delta.deletedFileRetentionDuration"
STATISTICS: Final = "delta.dataSkippingStatsColumns"
OF_STREAMS: Final = {"delta.checkpointInterval": "100"}
"""Properties of a table with a commit for each micro-batch. By Delta's default each tenth one would wait."""

T = TypeVar("T")

_MAX_SHOWN: Final = 100
TEN_YEARS: Final = timedelta(days=3650)
_ORDERED: Final = (NumericType, StringType, DateType, TimestampType, TimestampNTZType)
_HOUR: Final = timedelta(hours=1)
_INTERVAL: Final = re.compile(r"interval ([0-9]{1,18}) (hour|day)s?")
_MAX_INTERVAL: Final = 10_000_000

PROPERTIES: Final[Mapping[Literal["bronze", "speed", "batch", "serving"], Mapping[str, str]]] = {
    "bronze": {
        TOPIC_ID: "The id of the Kafka topic that is ingested, in hexadecimal.",
        WHOLE_FROM: "The first event day whose records are complete: `maintain` has deleted none of them, and"
        " Kafka had deleted none before `ingest_stream` began to read them.",
        REMOVED_BELOW: "Up to where `maintain` has removed records: the first complete day that it set, and"
        " the first offset that it kept of each partition, such as `2013-01-15 flights-0@99,flights-1@7`.",
        REMOVED_FOR: "The newest certified version of the batch table, and its commit, when `maintain` last"
        " removed records.",
        f"{TOPIC_ID}.CLUSTER": "The same of the topic of a further cluster, by the name of the cluster.",
        f"{WHOLE_FROM}.CLUSTER": "The first event day whose records of a further cluster are complete: its"
        " Kafka had deleted none before `ingest_stream` began to read them.",
        FORGETTING: "The last run that emptied records, and the version of the table before it.",
        DIVERGENCE_ACCEPTED: "Accepted differences from Kafka, as partition and last offset, such as"
        " `flights-0@99,flights-1@7`.",
    },
    "speed": {
        DEDUP: "The settings of the deduplication: key, event time, time zone, watermark delay, state"
        " partitions and value format. JSON in hexadecimal.",
        BY_CLOCK_SINCE: "Records ingested since this time advance the watermark at most to the time at"
        " which they were sent or read. Earlier ones advanced it to their event time.",
        SPEED_FROM: "The first event day of which `maintain` has deleted no row.",
    },
    "batch": {
        DAYS: "The settings that determine the event day of a row: key, event time, time zone and value"
        " format. JSON in hexadecimal.",
        ZONE_RULES: "The rules of the time zone with which the event days were computed.",
        CERTIFIED: "The highest certified version of the table.",
    },
    "serving": {SERVES: "The pipeline whose certified days the table holds."},
}
"""What each property of Oncelake's own keeps, by the table that has it."""

OF_CATALOGS: Final[Mapping[str, str]] = {
    CONTRACT: "Id and version of the contract.",
    PERSONAL: "In tables of events: the columns with personal data, such as `tailnum=hash`.",
    CLASSIFICATION: "In tables of events: the columns that have a classification, such as"
    " `tailnum=confidential`.",
}
"""What each property keeps that `oncelake catalog register` sets for people and catalogs; no job reads it."""


def property_of_cluster(key: str, cluster: str | None) -> str:
    """Return the property that is `key` for the first cluster, for a cluster."""
    return key if cluster is None else f"{key}.{cluster}"


def topic_key(cluster: str | None) -> str:
    """Return the property that keeps the id of a cluster's topic."""
    return property_of_cluster(TOPIC_ID, cluster)


def statistics_of(schema: StructType, paths: Iterable[str]) -> dict[str, str]:
    """Return the property of a table of which Delta keeps minimum and maximum of these columns alone.

    Otherwise it keeps them of the first 32 columns. Each costs time for each row, and more for each task.

    Args:
        schema: The table's columns, without those by which its files are divided.
        paths: Columns, by their paths. Those of a type that has no order for Delta are left out.
    """
    kinds = {path: part.dataType for path, part in flat(schema).items()}
    ordered = (path for path in dict.fromkeys(paths) if isinstance(kinds[path], _ORDERED))
    return {STATISTICS: ",".join(map(name, ordered))}


def history_retention(duration: timedelta) -> dict[str, str]:
    """Return the properties of a table whose versions can be named for so long.

    Delta reads no version by its number that is older than removed files are kept, whatever is there.
    """
    interval = f"interval {-(-duration // _HOUR)} hours"
    return {LOG_RETENTION: interval, DELETED_FILE_RETENTION: interval}


def deleted_file_retention(spark: SparkSession, path: str) -> timedelta | None:
    """Return how long a table remembers removed files; None if it does not say, or not in hours or days."""
    text = table_property(spark, path, DELETED_FILE_RETENTION)
    return retention_in(text) if text else None


def retention_in(text: str) -> timedelta | None:
    """Return how long a property of Delta says that something is kept; None if not in hours or days."""
    match = _INTERVAL.fullmatch(text)
    # Of what is beyond a thousand years nobody asks how far.
    return timedelta(**{f"{match[2]}s": min(int(match[1]), _MAX_INTERVAL)}) if match else None


def keep_versions(
    spark: SparkSession, path: str, duration: timedelta = TEN_YEARS, *, is_shared: bool = False
) -> None:
    """Let readers of a table name an old version: Delta's defaults refuse it after 7 days.

    Its log, which they drop after 30 days, is kept as well. Which files go is for `maintain` to say.

    Args:
        spark: The session.
        path: The path of a Delta table.
        duration: For how long. A table whose commits are many is to forget them at last.
        is_shared: Whether others may want to keep versions for longer; but for ten years nobody does.
    """
    retention = deleted_file_retention(spark, path)
    if is_shared and retention is not None and duration < retention < TEN_YEARS:
        return
    if retention != duration or table_property(spark, path, LOG_RETENTION) is None:
        set_table_properties(spark, path, history_retention(duration))


def table_property(spark: SparkSession, path: str, key: str) -> str | None:
    """Return a property of a Delta table; None if it has none of that name.

    Raises:
        SourceError: There is no such table. Without it nobody knows what it would have said.
    """
    newest = newest_snapshot(spark, path)
    if newest.version() < 0:
        raise SourceError(
            f"{path}: no such table, so its property {key} is unknown; restore the table, or fix lake.root"
        )
    found = newest.metadata().configuration().get(key)
    return None if found.isEmpty() else str(found.get())


def properties_of_clusters(spark: SparkSession, path: str, key: str) -> dict[str | None, str]:
    """Return what a Delta table says for each cluster under `key`, by the cluster's name; None is the first.

    Raises:
        SourceError: There is no such table.
    """
    newest = newest_snapshot(spark, path)
    if newest.version() < 0:
        raise SourceError(
            f"{path}: no such table, so its properties {key} are unknown; restore the table, or fix lake.root"
        )
    metadata = json.loads(newest.metadata().json())["metaData"]
    found: dict[str, str] = metadata.get("configuration", {})
    beginning = property_of_cluster(key, "")
    by_cluster: dict[str | None, str] = {None: found[key]} if key in found else {}
    for property_name, value in found.items():
        if property_name.startswith(beginning):
            by_cluster[property_name.removeprefix(beginning)] = value
    return by_cluster


def no_earlier_day(now: Mapping[str, str], properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties to set, with which no first day of a table becomes an earlier one.

    What is lost before a day stays lost: another run may have found more of it since this one looked.

    Args:
        now: The properties that the table has.
        properties: Those that are to be set.
    """
    return {
        key: max(value, now.get(key, "")) if key.startswith(_FIRST_DAYS) else value
        for key, value in properties.items()
    }


def parse_property(path: str, key: str, text: str, parse: Callable[[str], T]) -> T:
    """Return what a property of Oncelake's own says.

    Args:
        path: The table, for messages.
        key: The property.
        text: Its value.
        parse: Reads it; raises ValueError for what Oncelake does not write.

    Raises:
        SourceError: It is not as Oncelake writes it.
    """
    try:
        return parse(text)
    except (ValueError, RecursionError):
        raise SourceError(
            f"{path}: property {key}: found {text[:_MAX_SHOWN]!r}, expected it as Oncelake writes it (see"
            " docs/tables.md): somebody has set it. Nothing was changed. Set it to what it was, as in the"
            " table's history or a backup"
        ) from None


def set_table_property(spark: SparkSession, path: str, key: str, value: str) -> None:
    """Set a property of a Delta table to a value without quotes."""
    set_table_properties(spark, path, {key: value})


def set_table_properties(spark: SparkSession, path: str, properties: Mapping[str, str]) -> None:
    """Set properties of a Delta table, if there are any, as one commit, to values without quotes.

    Raises:
        InfrastructureError: Others committed first at each try.
    """
    pairs = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    statement = f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({pairs})"
    if properties:
        retry_conflicts(path, lambda: spark.sql(statement))


def ensure_table_property(spark: SparkSession, path: str, key: str, value: str) -> None:
    """Set a property of a Delta table to a value without quotes, if it has another one or none."""
    if table_property(spark, path, key) != value:
        set_table_property(spark, path, key, value)


def to_hex(value: str) -> str:
    """Return a value as a table property keeps it.

    Spark shows asterisks for one with `url` or `token` in it.
    """
    return value.encode().hex()


def from_hex(encoded: str) -> str:
    """Return what `to_hex` made a property of.

    Raises:
        ValueError: It did not make this one.
    """
    return bytes.fromhex(encoded).decode()


def json_from_hex(encoded: str) -> Mapping[str, str]:
    """Return the JSON object of texts that `to_hex` made a property of.

    Raises:
        ValueError: It is none.
    """
    value = json.loads(from_hex(encoded))
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise ValueError("no JSON object of texts")
    return value
