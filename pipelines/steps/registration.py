"""Register a pipeline's tables in a catalog, with comments from the contract."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from pyspark.errors import AnalysisException

from pipelines.config.streams import LAYERS, Layer
from pipelines.contracts.descriptions import Descriptions, descriptions_of
from pipelines.delta.descriptions import OWN_COLUMNS, describe_table
from pipelines.delta.table_properties import CLASSIFICATION, CONTRACT, PERSONAL
from pipelines.delta.tables import exists
from pipelines.errors import ConfigError
from pipelines.ledger.certifications import certified
from pipelines.spark.failures import first_line
from pipelines.spark.files import HadoopFile
from pipelines.spark.pipeline import Pipeline
from pipelines.sql import literal, name
from pipelines.steps.serving import refresh_view

IMPLEMENTATION: Final = "spark.sql.catalogImplementation"
_MEANINGS: Final[Mapping[Layer, str]] = {
    "bronze": "Oncelake: every record of the topic, as it was read.",
    "speed": "Oncelake: events in real time. For uncertified days; not exact.",
    "batch": "Oncelake: events of past days. The newest version may hold days that are not certified: read"
    " the serving table or the view.",
    "quarantine": "Oncelake: records that break the contract, with the reason.",
}
_SERVING: Final = "Oncelake: certified days, each event once."

Entry = Literal["registered", "described anew", "as before"]


@dataclass(frozen=True)
class Registration:
    """What a catalog has of a pipeline.

    Attributes:
        entries: By name in the catalog, what was done.
        view: The view, if one is configured and a day is certified.
        missing: Tables that are not there yet, by path.
    """

    entries: Mapping[str, Entry]
    view: str | None
    missing: tuple[str, ...]


@dataclass(frozen=True)
class _Table:
    """A table that is to be registered.

    Attributes:
        entry: Its name in the catalog.
        path: Where it is.
        meaning: What a row of it is.
        has_events: Whether it has the contract's columns.
    """

    entry: str
    path: str
    meaning: str
    has_events: bool


def register(pipeline: Pipeline) -> Registration:
    """Register the tables of a pipeline that are there, and recreate its view; repeat it at will.

    Comments and classifications are kept in the tables' own logs, where all catalogs and engines find them.

    Args:
        pipeline: The pipeline; `serving.database` is set.

    Raises:
        ConfigError: The catalog lasts no longer than this session, has no such database, or has another table
            under one of the names. Nothing was changed then.
    """
    spark, database = pipeline.spark, str(pipeline.config.serving.database)
    if "." not in database and spark.conf.get(IMPLEMENTATION) == "in-memory":
        raise ConfigError(
            f"{IMPLEMENTATION}: found in-memory, which forgets tables when this command ends; expected hive,"
            " or a serving.database with a catalog of its own, such as unity.lake. Set either: see"
            " docs/engines.md"
        )
    tables = list(_tables(pipeline, database))
    there = [table for table in tables if exists(spark, table.path)]
    locations = {table.entry: _location(pipeline, table.entry) for table in tables}
    for table in tables:
        _require_free(pipeline, table, locations[table.entry])
    described = descriptions_of(pipeline.contract)
    entries = {
        table.entry: _registered(pipeline, table, described, locations[table.entry]) for table in there
    }
    refresh_view(pipeline)
    view = pipeline.config.serving.view
    return Registration(
        entries,
        view if view and certified(pipeline) else None,
        tuple(table.path for table in tables if table not in there),
    )


def _tables(pipeline: Pipeline, database: str) -> Iterator[_Table]:
    config = pipeline.config
    # Hive takes letters, digits and underscores alone.
    plain = "".join(letter if letter.isalnum() else "_" for letter in config.name)
    for layer in LAYERS:
        has_events = layer in ("speed", "batch")
        yield _Table(f"{database}.{layer}_{plain}", config.table(layer), _MEANINGS[layer], has_events)
    if config.serving.table:
        yield _Table(f"{database}.{plain}", config.serving_table, _SERVING, has_events=True)


def _location(pipeline: Pipeline, entry: str) -> str | None:
    """Return where the table of a name is, or what else has the name; None if nothing has.

    Raises:
        ConfigError: There is no such database.
    """
    spark = pipeline.spark
    database, quoted = name(entry.rpartition(".")[0]), name(entry)
    try:
        spark.sql(f"DESCRIBE NAMESPACE {database}")
        if not spark.catalog.tableExists(quoted):
            return None
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {quoted}").where("col_name IN ('Location', 'Type')")
        found = {row["col_name"]: row["data_type"] for row in rows.toLocalIterator()}
    except AnalysisException as error:
        raise ConfigError(
            f"serving.database: {pipeline.config.serving.database}: found {first_line(str(error))}; expected"
            " a database of the catalog. Create it, e.g. by CREATE DATABASE, or fix the setting"
        ) from None
    return found.get("Location") or f"a {found.get('Type', 'table').lower()} without a location"


def _require_free(pipeline: Pipeline, table: _Table, location: str | None) -> None:
    spark = pipeline.spark
    if location is not None and location != HadoopFile(spark, table.path).url:
        raise ConfigError(
            f"{table.entry}: found {location}, expected {table.path}: another table has the name in the"
            " catalog. Nothing was changed. Rename or drop it there, or set another serving.database"
        )


def _registered(pipeline: Pipeline, table: _Table, described: Descriptions, location: str | None) -> Entry:
    spark, contract = pipeline.spark, pipeline.contract
    properties, comments = {CONTRACT: f"{contract.id} {contract.version}"}, dict(OWN_COLUMNS)
    if table.has_events:
        comments |= described.columns
        properties[PERSONAL] = _listed(contract.personal)
        properties[CLASSIFICATION] = _listed(described.classes)
    meaning = f"{table.meaning} {described.table}".strip()
    is_changed = describe_table(spark, table.path, meaning, comments, properties)
    if location is None:
        spark.sql(f"CREATE TABLE {name(table.entry)} USING DELTA LOCATION {literal(table.path)}")
        return "registered"
    return "described anew" if is_changed else "as before"


def _listed(by_column: Mapping[str, str]) -> str:
    return ", ".join(f"{column}={value}" for column, value in by_column.items())
