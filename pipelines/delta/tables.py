"""The schemas of Oncelake's tables, and how a table is created."""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Literal, cast

import pyarrow as pa
from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StructField, StructType
from tenacity import retry, retry_if_exception, stop_after_attempt, wait_random_exponential

from pipelines.config.commands import command
from pipelines.contracts.contract import DataContract
from pipelines.delta.conflicts import CONFLICTS
from pipelines.delta.log import newest_snapshot
from pipelines.delta.schema_evolution import alterations, fitted_columns
from pipelines.delta.table_properties import APPEND_ONLY, CHANGE_DATA_FEED, LOG_KEPT, REMOVED_FILES
from pipelines.errors import ConfigError, InfrastructureError, SourceError
from pipelines.fault_points import Point, reach
from pipelines.schema_paths import optional
from pipelines.spark.failures import first_line
from pipelines.spark.pipeline import Pipeline

ORIGIN: Final = (
    "_topic string, _partition int, _offset bigint, _kafka_timestamp timestamp, _ingested_at timestamp"
)
_ENVELOPE: Final = "key binary, value binary, headers array<struct<key: string, value: binary>>"
BRONZE: Final = (
    f"{_ENVELOPE}, _topic string, _partition int, _offset bigint, _kafka_timestamp timestamp,"
    " _kafka_timestamp_type int, _ingested_at timestamp"
)
FORGOTTEN: Final = "_forgotten"
"""The column of bronze that is set where a record was emptied, see `pipelines.ledger.forgotten`."""
_FORGOTTEN: Final = f"{FORGOTTEN} struct<at: timestamp, event_time: timestamp>"
QUARANTINE: Final = (
    f"{_ENVELOPE}, {ORIGIN}, _reason string, _column string, _found string, _contract_version string,"
    " _quarantined_at timestamp, _status string, _attempts int, _tried_at timestamp"
)

_MADE_BY: Final = {"bronze": "ingest_stream", "quarantine": "speed_stream"}
TEN_YEARS: Final = timedelta(days=3650)
_HOUR: Final = timedelta(hours=1)
_INTERVAL: Final = re.compile(r"interval (\d+) (hour|day)s?")


def shape(ddl: str) -> StructType:
    """Return the schema that a list of columns in SQL stands for."""
    return cast(StructType, DataType.fromDDL(ddl))


def events_schema(contract: DataContract) -> StructType:
    """Return the shape of speed and batch layer: the contract's columns, the event day, the origin."""
    added = shape(f"_event_date date, {ORIGIN}")
    columns = (StructField(f.name, optional(f.dataType), f.nullable) for f in contract.schema)
    return StructType([*columns, *added.fields])


def ensure_bronze(pipeline: Pipeline, properties: Mapping[str, str] | None = None) -> None:
    """Make the bronze table, with these properties, if there is none. It refuses updates and deletes."""
    spark = pipeline.spark
    ours = {APPEND_ONLY: "true", CHANGE_DATA_FEED: "true"}
    properties = {**ours, **(properties or {})}
    table = pipeline.table("bronze")
    # A column that a table gets ends the streams that read it, so an older one gets it when it is needed.
    lacks = exists(spark, table) and FORGOTTEN not in DeltaTable.forPath(spark, table).toDF().columns
    columns = shape(BRONZE if lacks else f"{BRONZE}, {_FORGOTTEN}")
    ensure_table(spark, table, columns, properties=properties)


def ensure_forgettable(spark: SparkSession, table: str) -> None:
    """Give a bronze table the column that marks emptied records, if an earlier version made it without."""
    ensure_table(spark, table, shape(f"{BRONZE}, {_FORGOTTEN}"))


def ensure_quarantine(pipeline: Pipeline) -> None:
    """Make the quarantine table if there is none."""
    ensure_table(pipeline.spark, pipeline.table("quarantine"), shape(QUARANTINE))


def require_table(pipeline: Pipeline, layer: Literal["bronze", "quarantine"]) -> str:
    """Return the path of a table that a streaming job makes.

    Raises:
        SourceError: there is none yet.
    """
    table = pipeline.table(layer)
    if not exists(pipeline.spark, table):
        made_by = command(pipeline.config, _MADE_BY[layer], "--once")
        raise SourceError(f"{table}: no such table; run first: {made_by}; or fix lake.root")
    return table


def first_try(broken: DataFrame) -> DataFrame:
    """Return records as they enter the quarantine: first seen now, open, tried once."""
    return broken.withColumns(
        {
            "_quarantined_at": F.current_timestamp(),
            "_status": F.lit("open"),
            "_attempts": F.lit(1),
            "_tried_at": F.current_timestamp(),
        }
    )


def readable_for(duration: timedelta) -> dict[str, str]:
    """Return the properties of a table whose versions can be named for so long.

    Delta reads no version by its number that is older than removed files are kept, whatever is there.
    """
    interval = f"interval {-(-duration // _HOUR)} hours"
    return {LOG_KEPT: interval, REMOVED_FILES: interval}


def removed_files_kept(spark: SparkSession, path: str) -> timedelta | None:
    """Return how long a table remembers removed files; None if it does not say, or not in hours or days."""
    text = table_property(spark, path, REMOVED_FILES)
    match = _INTERVAL.fullmatch(text) if text else None
    return timedelta(**{f"{match[2]}s": int(match[1])}) if match else None


def keep_versions(
    spark: SparkSession, path: str, duration: timedelta = TEN_YEARS, *, is_shared: bool = False
) -> None:
    """Let readers of a table name an old version: Delta's defaults refuse it after 7 days.

    Its log, which they drop after 30 days, is kept as well. Which files go is for `maintain` to say.

    Args:
        spark: the session.
        path: the path of a Delta table.
        duration: for how long. A table whose commits are many is to forget them at last.
        is_shared: whether others may want to keep versions for longer; but for ten years nobody does.
    """
    retention = removed_files_kept(spark, path)
    if is_shared and retention is not None and duration < retention < TEN_YEARS:
        return
    if retention != duration or table_property(spark, path, LOG_KEPT) is None:
        set_table_properties(spark, path, readable_for(duration))


def table_property(spark: SparkSession, path: str, key: str) -> str | None:
    """Return a property of a Delta table; None if it has none of that name.

    Raises:
        SourceError: there is no such table. Without it nobody knows what it would have said.
    """
    newest = newest_snapshot(spark, path)
    if newest.version() < 0:
        raise SourceError(
            f"{path}: no such table, so its property {key} is unknown; restore the table, or fix lake.root"
        )
    found = newest.metadata().configuration().get(key)
    return None if found.isEmpty() else str(found.get())


def set_table_property(spark: SparkSession, path: str, key: str, value: str) -> None:
    """Set a property of a Delta table to a value without quotes."""
    set_table_properties(spark, path, {key: value})


def set_table_properties(spark: SparkSession, path: str, properties: Mapping[str, str]) -> None:
    """Set properties of a Delta table, as one commit, to values without quotes."""
    pairs = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({pairs})")


def hidden(value: str) -> str:
    """Return a value as a table property keeps it.

    Spark shows asterisks for one with `url` or `token` in it.
    """
    return value.encode().hex()


def unhidden(encoded: str) -> str:
    """Return what `hidden` made a property of."""
    return bytes.fromhex(encoded).decode()


def _is_race(error: BaseException) -> bool:
    """Return whether another job may have been making the same table at the same time.

    Delta has many names for what it finds half made: no table, another table, a folder that is not empty.
    A column that the other job has added first is Spark's error.
    """
    if isinstance(error, CONFLICTS):
        return True
    names = ("[DELTA_", "[FIELD_ALREADY_EXISTS]")
    return isinstance(error, AnalysisException) and any(name in str(error) for name in names)


@retry(
    retry=retry_if_exception(_is_race),
    wait=wait_random_exponential(multiplier=0.2, max=5),
    stop=stop_after_attempt(8),
    reraise=True,
)
def ensure_table(
    spark: SparkSession,
    path: str,
    schema: StructType,
    *,
    partitions: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> None:
    """Make a Delta table if there is none; two jobs may do so at the same time.

    A table that lacks nothing but optional columns gets them; rows that are there have no value in them.
    A column whose type has become wider is widened, one that is no longer required becomes optional.

    Args:
        spark: the session.
        path: where the table is.
        schema: its columns.
        partitions: the columns by which its files are divided.
        properties: Delta table properties.

    Raises:
        ConfigError: a table with columns that do not fit is there already.
        InfrastructureError: the place cannot be written.
    """
    if exists(spark, path):
        _evolve(spark, path, schema)
        return
    builder = DeltaTable.createIfNotExists(spark).location(path).addColumns(schema)
    if partitions:
        builder = builder.partitionedBy(*partitions)
    for key, value in (properties or {}).items():
        builder = builder.property(key, value)
    try:
        builder.execute()
    except Py4JJavaError as error:
        raise InfrastructureError(
            f"lake.root: the table {path} cannot be created:"
            f" {first_line(str(error.java_exception.toString()))}; check lake.root, and whether this user may"
            " write there"
        ) from None


def _evolve(spark: SparkSession, path: str, schema: StructType) -> None:
    table_schema = DeltaTable.forPath(spark, path).toDF().schema
    statements = alterations(table_schema, schema)
    if statements is None:
        raise ConfigError(
            f"{path}: the table has other columns than the contract asks for."
            f" Found: {table_schema.simpleString()}. Expected: {schema.simpleString()}."
            " Only optional columns can be added, and types can only be widened; see docs/runbook.md,"
            " 'The contract has other columns'"
        )
    reach(Point.COLUMNS_COMPARED)
    for statement in statements:
        spark.sql(f"ALTER TABLE delta.`{path}` {statement}")


def conform(rows: DataFrame, schema: StructType) -> DataFrame:
    """Return the columns and types of a schema; parts that rows of an earlier version lack have no value.

    Args:
        rows: rows of a table at a version that may be older than some of its columns and types.
        schema: the current columns.
    """
    return rows.selectExpr(*fitted_columns(rows.schema, schema))


def small_frame(spark: SparkSession, rows: Sequence[Mapping[str, Any]], schema: StructType) -> DataFrame:
    """Return a frame of a few rows of ours, as one partition.

    It goes to Spark by Arrow: rows of Python objects would start Python workers to be read.

    Args:
        spark: the session.
        rows: values by column name; timestamps with a zone.
        schema: the columns.
    """
    table = pa.Table.from_pylist(list(rows), schema=to_arrow_schema(schema, timezone="UTC"))
    return spark.createDataFrame(table, schema).coalesce(1)


def exists(spark: SparkSession, path: str) -> bool:
    """Return whether there is a Delta table at a path."""
    return DeltaTable.isDeltaTable(spark, path)


def table_id(spark: SparkSession, path: str) -> str:
    """Return the id that Delta gave a table when it was made (`Metadata.id`).

    A copy of its files has it as well.
    """
    return str(newest_snapshot(spark, path).metadata().id())


def version(spark: SparkSession, path: str) -> int:
    """Return the newest version of a Delta table.

    Raises:
        SourceError: there is no such table.
    """
    newest = int(newest_snapshot(spark, path).version())
    if newest < 0:
        raise SourceError(f"{path}: no such table; restore it, or fix lake.root")
    return newest
