"""Serving: one table to readers, certified days from the batch layer, all others from the speed layer."""

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Final, cast

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from pipelines.config.commands import command
from pipelines.config.model import PipelineConfig
from pipelines.config.streams import writer_of
from pipelines.contracts.descriptions import descriptions_of
from pipelines.delta.conditions import days_condition
from pipelines.delta.descriptions import OWN_COLUMNS
from pipelines.delta.io import read, small_rows
from pipelines.delta.schema_evolution import fitted_columns, merged
from pipelines.delta.table_properties import SERVES
from pipelines.delta.tables import conform, exists
from pipelines.errors import ConfigError, OncelakeError
from pipelines.ledger.certifications import certified
from pipelines.spark.failures import first_line
from pipelines.spark.pipeline import Pipeline
from pipelines.sql import literal, name

_VERSION: Final = re.compile(r"VERSION AS OF (\d+)")

_log = logging.getLogger(__name__)


def read_serving(pipeline: Pipeline) -> DataFrame:
    """Return what readers ought to read: every event once, each day from the best layer that has it.

    Certified days come from the version of the batch table that was audited, so a rebuild that is under
    way, or has failed, is never seen. Other days come from the speed layer.

    Returns:
        The contract's columns + `_event_date date` + `_topic, _partition, _offset, _kafka_timestamp,
        _ingested_at`.

    Raises:
        ConfigError: There is no lake yet at `lake.root`.
    """
    spark = pipeline.spark
    state = certified(pipeline)
    speed, batch = pipeline.table("speed"), pipeline.table("batch")
    if not exists(spark, speed) and state is None:
        makers = (command(pipeline.config, writer_of(layer).job, "--once") for layer in ("bronze", "speed"))
        raise ConfigError(f"{speed}: no such table; run first: {' && '.join(makers)}; or fix lake.root")
    if state is None:
        return read(spark, speed)
    is_certified = F.expr(days_condition(state.days))
    certified_rows = read(spark, batch, state.version).where(is_certified)
    if not exists(spark, speed):
        return certified_rows
    uncertified_rows = read(spark, speed).where(~is_certified)
    columns = _merged_columns([certified_rows, uncertified_rows])
    return conform(certified_rows, columns).unionByName(conform(uncertified_rows, columns))


def _merged_columns(layers: Iterable[DataFrame]) -> StructType:
    """Return the columns of all layers: one may be older than a column that was added to the contract."""
    first, *others = [rows.schema for rows in layers]
    return cast(StructType, reduce(merged, others, cast(DataType, first)))


def refresh_view(pipeline: Pipeline) -> None:
    """Make the configured catalog view show the certified state; do nothing without one.

    Raises:
        ConfigError: The catalog has another pipeline's view of that name, or somebody's own.
    """
    definition, view = _definition(pipeline), pipeline.config.serving.view
    if view is None or definition is None:
        return
    _require_own(pipeline, view)
    described = descriptions_of(pipeline.contract)
    comments = {**OWN_COLUMNS, **described.columns}
    columns = ", ".join(
        f"{name(column)} COMMENT {literal(comments[column])}" if column in comments else name(column)
        for column in definition.columns
    )
    comment = literal(f"Oncelake: certified days, and all others from the speed layer. {described.table}")
    serves = f"TBLPROPERTIES ('{SERVES}' = {literal(pipeline.name)})"
    pipeline.spark.sql(
        f"CREATE OR REPLACE VIEW {view} ({columns}) COMMENT {comment} {serves} AS {definition.query}"
    )
    if _is_temporary(pipeline):
        _log.warning(
            "serving.view: %s is lost when this job ends, since this session keeps its catalog in memory;"
            " set spark.sql.catalogImplementation=hive, or use read_serving",
            view,
        )


def _require_own(pipeline: Pipeline, view: str) -> None:
    """Make sure that there is no view of that name, or one that a run of this pipeline has made.

    Raises:
        ConfigError: It is another one.
    """
    spark = pipeline.spark
    if not spark.catalog.tableExists(view):
        return
    found = {row["key"]: row["value"] for row in small_rows(spark.sql(f"SHOW TBLPROPERTIES {view}"))}
    owner = found.get(SERVES)
    if owner is None:
        # An earlier release did not say whose it is, and each view of Oncelake reads the batch layer.
        about = spark.sql(f"DESCRIBE TABLE EXTENDED {view}").where("col_name = 'View Text'").first()
        is_own = about is not None and f"/batch/{pipeline.name}` VERSION AS OF" in about["data_type"]
        owner = pipeline.name if is_own else None
    if owner != pipeline.name:
        raise ConfigError(
            f"serving.view: found a view {view} of {owner or 'somebody else'}, expected none, or that of"
            f" {pipeline.name}. Nothing was changed. Set serving.view to another name, or drop the view"
        )


def refresh_view_or_warn(pipeline: Pipeline) -> list[str]:
    """Refresh the view after a run that is done; a failure to do so becomes a warning.

    Returns:
        What readers of the view ought to know, as text; nothing if it shows the certified state.
    """
    try:
        refresh_view(pipeline)
    except (PySparkException, Py4JError, OncelakeError) as error:
        warning = (
            f"serving.view: {pipeline.config.serving.view} could not be recreated and shows an earlier"
            f" state: {first_line(str(error))}; fix this, then run: {_recreate_command(pipeline.config)}"
        )
        _log.warning("%s", warning)
        return [warning]
    return []


def stale_view(pipeline: Pipeline) -> list[str]:
    """Compare the view, as the catalog has it, with the certified state.

    Returns:
        What is wrong with it and how to recreate it, as text; nothing if it shows the certified state, or
        is a view of a session that has ended.
    """
    config = pipeline.config
    definition, view = _definition(pipeline), config.serving.view
    if definition is None:
        return []
    try:
        about = pipeline.spark.sql(f"DESCRIBE TABLE EXTENDED {view}").where("col_name = 'View Text'").first()
    except (PySparkException, Py4JError) as error:
        if _is_temporary(pipeline):
            return []
        warning = (
            f"serving.view: {view} cannot be read: {first_line(str(error))}; run: {_recreate_command(config)}"
        )
    else:
        if about is None or about["data_type"] == definition.query:
            return []
        shown, current = (_VERSION.findall(text) for text in (about["data_type"], definition.query))
        warning = (
            f"serving.view: {view} is stale: found version {', '.join(shown) or 'none'} of the batch layer,"
            f" expected version {current[0]} with its days and columns; to recreate it,"
            f" run: {_recreate_command(config)}"
        )
    _log.warning("%s", warning)
    return [warning]


@dataclass(frozen=True)
class _Definition:
    """What the view has to be.

    Attributes:
        query: In SQL.
        columns: The names of its columns.
    """

    query: str
    columns: tuple[str, ...]


def _definition(pipeline: Pipeline) -> _Definition | None:
    """Return what the view has to be; None without a view or a certified day."""
    spark = pipeline.spark
    if pipeline.config.serving.view is None or (state := certified(pipeline)) is None:
        return None
    days = days_condition(state.days)
    batch, speed = pipeline.table("batch"), pipeline.table("speed")
    layers = {
        f"delta.`{batch}` VERSION AS OF {state.version} WHERE {days}": read(spark, batch, state.version)
    }
    if exists(spark, speed):
        layers[f"delta.`{speed}` WHERE NOT ({days})"] = read(spark, speed)
    columns = _merged_columns(layers.values())
    # A view can hold no parameters; all parts come from checked configuration and from the ledger.
    parts = [
        f"SELECT {', '.join(fitted_columns(rows.schema, columns))} FROM {source}"  # noqa: S608
        for source, rows in layers.items()
    ]
    return _Definition(" UNION ALL ".join(parts), tuple(columns.fieldNames()))


def _is_temporary(pipeline: Pipeline) -> bool:
    """Return whether the view lives no longer than this session."""
    in_another_catalog = str(pipeline.config.serving.view).count(".") > 1
    return (
        pipeline.spark.conf.get("spark.sql.catalogImplementation") == "in-memory" and not in_another_catalog
    )


def _recreate_command(config: PipelineConfig) -> str:
    return command(config, "maintain")
