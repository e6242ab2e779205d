"""How a Delta table is created, gets further columns, and is looked up."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, cast

import pyarrow as pa
from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StructType
from tenacity import retry, retry_if_exception, stop_after_attempt, wait_random_exponential

from pipelines.delta.conflicts import CONFLICTS
from pipelines.delta.log import newest_snapshot
from pipelines.delta.schema_evolution import alterations, fitted_columns
from pipelines.errors import ConfigError, InfrastructureError, SourceError
from pipelines.fault_points import Point, reach
from pipelines.spark.failures import explain_failure, first_line
from pipelines.spark.files import HadoopFile

_LOG: Final = "_delta_log"
_NO_TABLE: Final = "DELTA_TABLE_NOT_FOUND"


@cache
def shape(ddl: str) -> StructType:
    """Return the schema that a list of columns in SQL stands for; callers share it, so do not change it."""
    return cast(StructType, DataType.fromDDL(ddl))


def _is_race(error: BaseException) -> bool:
    """Return whether another job may have been making the same table at the same time.

    Delta has many names for what it finds half made: no table, another table, a folder that is not empty.
    A column that the other job has added first is Spark's error.
    """
    if isinstance(error, CONFLICTS):
        return True
    names = ("[DELTA_", "[FIELD_ALREADY_EXISTS]")
    return isinstance(error, AnalysisException) and any(name in str(error) for name in names)


@dataclass(frozen=True)
class _Wanted:
    """A table as it is to be made."""

    spark: SparkSession
    path: str
    schema: StructType
    partitions: Sequence[str]
    properties: Mapping[str, str]


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
        spark: The session.
        path: Where the table is.
        schema: Its columns.
        partitions: The columns by which its files are divided.
        properties: Delta table properties of a new table; those of a table that exists stay as they are.

    Raises:
        ConfigError: A table with columns that do not fit is there already.
        InfrastructureError: The place cannot be written.
    """
    wanted = _Wanted(spark, path, schema, partitions, properties or {})
    try:
        _ensure(wanted)
    except AnalysisException as error:
        if error.getCondition() != _NO_TABLE or not _is_begun(spark, path):
            raise
        # After so many tries nobody is about to make the first commit: a full disk or a crash has ended it.
        _delete_log(spark, path)
        _ensure(wanted)


def _is_begun(spark: SparkSession, path: str) -> bool:
    """Return whether there is the folder of a log without a commit, and nothing else of a table."""
    names = HadoopFile(spark, f"{path}/{_LOG}").names()
    return HadoopFile(spark, path).names() == {_LOG} and not any(name[:20].isdigit() for name in names)


def _delete_log(spark: SparkSession, path: str) -> None:
    """Delete the folder of a log without a commit; one in which somebody commits meanwhile stays."""
    log = f"{path}/{_LOG}"
    for name in HadoopFile(spark, log).names():
        if not name[:20].isdigit():
            HadoopFile(spark, f"{log}/{name}").delete_folder()
    # Checksums, which Hadoop does not list, may be left in it.
    if not HadoopFile(spark, log).names():
        HadoopFile(spark, log).delete_folder()


@retry(
    retry=retry_if_exception(_is_race),
    wait=wait_random_exponential(multiplier=0.2, max=5),
    stop=stop_after_attempt(8),
    reraise=True,
)
def _ensure(wanted: _Wanted) -> None:
    if exists(wanted.spark, wanted.path):
        _evolve(wanted.spark, wanted.path, wanted.schema)
        return
    builder = DeltaTable.createIfNotExists(wanted.spark).location(wanted.path).addColumns(wanted.schema)
    if wanted.partitions:
        builder = builder.partitionedBy(*wanted.partitions)
    for key, value in wanted.properties.items():
        builder = builder.property(key, value)
    try:
        builder.execute()
    except Py4JJavaError as error:
        if explained := explain_failure(error):
            raise explained from None
        raise InfrastructureError(
            f"lake.root: the table {wanted.path} cannot be created:"
            f" {first_line(str(error.java_exception.toString()))}; check lake.root, and whether this user may"
            " write there"
        ) from None


def _evolve(spark: SparkSession, path: str, schema: StructType) -> None:
    # Of a table that was moved aside just now there is none.
    in_log = newest_snapshot(spark, path).metadata().schemaString()
    if in_log is not None and StructType.fromJson(json.loads(in_log)) == schema:
        # As nearly always. No query of the table has to be planned then.
        return
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
        rows: Rows of a table at a version that may be older than some of its columns and types.
        schema: The current columns.
    """
    found = rows.schema
    return rows if found == schema else rows.selectExpr(*fitted_columns(found, schema))


def small_frame(spark: SparkSession, rows: Sequence[Mapping[str, Any]], schema: StructType) -> DataFrame:
    """Return a frame of a few rows of ours, as one partition.

    It goes to Spark by Arrow: rows of Python objects would start Python workers to be read.

    Args:
        spark: The session.
        rows: Values by column name, one for each column; timestamps with a zone.
        schema: The columns.

    Raises:
        ValueError: A row has other columns.
    """
    # Arrow drops what it does not know, and writes null for what it lacks.
    _check_columns(rows, schema.names)
    table = pa.Table.from_pylist(list(rows), schema=to_arrow_schema(schema, timezone="UTC"))
    return spark.createDataFrame(table, schema).coalesce(1)


def _check_columns(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    for number, row in enumerate(rows):
        differences = {
            "unknown": [name for name in row if name not in columns],
            "missing": [name for name in columns if name not in row],
        }
        told = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in differences.items() if names)
        if told:
            raise ValueError(f"row {number}: {told}; expected the columns {', '.join(columns)}")


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
        SourceError: There is no such table.
    """
    newest = int(newest_snapshot(spark, path).version())
    if newest < 0:
        raise SourceError(f"{path}: no such table; restore it, or fix lake.root")
    return newest
