"""The tables of records, bronze and quarantine: their columns, and how they are made."""

from collections.abc import Mapping
from typing import Final, Literal

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from pipelines.config.commands import command
from pipelines.config.streams import writer_of
from pipelines.delta.table_properties import (
    APPEND_ONLY,
    CHANGE_DATA_FEED,
    OF_STREAMS,
    TOPIC_ID,
    from_hex,
    parse_property,
    properties_of_clusters,
    statistics_of,
    table_property,
    topic_key,
)
from pipelines.delta.tables import ensure_table, exists, shape
from pipelines.errors import SourceError
from pipelines.spark.pipeline import Pipeline

ORIGIN_COLUMNS: Final = (
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
# Records are looked up by these; of the others Delta need not know what its files hold.
_LOOKED_UP: Final = ("_topic", "_partition", "_offset", "_kafka_timestamp", "_ingested_at", f"{FORGOTTEN}.at")
REPLAYED_BY: Final = "_replayed_by"
"""The column of quarantine that has the `decoding_key` by which a record was valid that was replayed."""
_QUARANTINED_LOOKED_UP: Final = (
    *("_topic", "_partition", "_offset", "_kafka_timestamp", "_ingested_at"),
    *("_status", "_reason", "_contract_version", "_tried_at", REPLAYED_BY),
)
QUARANTINE: Final = (
    f"{_ENVELOPE}, {ORIGIN_COLUMNS}, _reason string, _column string, _found string, _contract_version string,"
    " _quarantined_at timestamp, _status string, _attempts int, _tried_at timestamp,"
    f" {REPLAYED_BY} string"
)


def ensure_bronze(pipeline: Pipeline, properties: Mapping[str, str] | None = None) -> None:
    """Make the bronze table, with these properties, if there is none. It refuses updates and deletes."""
    spark = pipeline.spark
    table, whole = pipeline.table("bronze"), shape(f"{BRONZE}, {_FORGOTTEN}")
    ours = {APPEND_ONLY: "true", CHANGE_DATA_FEED: "true", **OF_STREAMS, **statistics_of(whole, _LOOKED_UP)}
    properties = {**ours, **(properties or {})}
    # A column that a table gets ends the streams that read it, so an older one gets it when it is needed.
    lacks = exists(spark, table) and FORGOTTEN not in DeltaTable.forPath(spark, table).toDF().columns
    ensure_table(spark, table, shape(BRONZE) if lacks else whole, properties=properties)


def ensure_forgettable(spark: SparkSession, table: str) -> None:
    """Give a bronze table the column that marks emptied records, if an earlier version made it without."""
    ensure_table(spark, table, shape(f"{BRONZE}, {_FORGOTTEN}"))


def ensure_quarantine(pipeline: Pipeline) -> None:
    """Make the quarantine table if there is none."""
    whole = shape(QUARANTINE)
    properties = {**OF_STREAMS, **statistics_of(whole, _QUARANTINED_LOOKED_UP)}
    ensure_table(pipeline.spark, pipeline.table("quarantine"), whole, properties=properties)


def topic_of_bronze(pipeline: Pipeline) -> str | None:
    """Return Kafka's id of the topic that bronze was filled from; None if bronze does not know it.

    Of several clusters, that of the pipeline's source.
    """
    return _topic_of(pipeline, pipeline.config.cluster)


def first_topic_of_bronze(pipeline: Pipeline) -> str | None:
    """Return the id of the first cluster's topic, whatever the source: in the lake it stands for all."""
    return _topic_of(pipeline, None)


def _topic_of(pipeline: Pipeline, cluster: str | None) -> str | None:
    table, key = pipeline.table("bronze"), topic_key(cluster)
    topic_id = table_property(pipeline.spark, table, key)
    return None if topic_id is None else parse_property(table, key, topic_id, from_hex)


def topics_of_bronze(pipeline: Pipeline) -> dict[str | None, str]:
    """Return Kafka's id of the topic of each cluster that bronze was filled from; None is the first."""
    table = pipeline.table("bronze")
    by_cluster = properties_of_clusters(pipeline.spark, table, TOPIC_ID)
    return {
        name: parse_property(table, topic_key(name), found, from_hex) for name, found in by_cluster.items()
    }


def require_table(pipeline: Pipeline, layer: Literal["bronze", "quarantine"]) -> str:
    """Return the path of a table that a streaming job makes.

    Raises:
        SourceError: There is none yet.
    """
    table = pipeline.table(layer)
    if not exists(pipeline.spark, table):
        made_by = command(pipeline.config, writer_of(layer).job, "--once")
        raise SourceError(f"{table}: no such table; run first: {made_by}; or fix lake.root")
    return table


def first_try(broken: DataFrame) -> DataFrame:
    """Return records as they enter the quarantine: first seen now, unresolved, tried once."""
    return broken.selectExpr(
        "*",
        "current_timestamp() AS _quarantined_at",
        "'open' AS _status",
        "1 AS _attempts",
        "current_timestamp() AS _tried_at",
        f"CAST(NULL AS STRING) AS {REPLAYED_BY}",
    )
