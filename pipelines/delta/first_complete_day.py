"""The first day of which bronze has all records, as its properties say."""

from datetime import date

from pipelines.delta.table_properties import (
    WHOLE_FROM,
    parse_property,
    properties_of_clusters,
    property_of_cluster,
)
from pipelines.delta.tables import exists
from pipelines.spark.pipeline import Pipeline


def first_complete_day(pipeline: Pipeline) -> date | None:
    """Return the first complete day, or None if bronze never lost records.

    Bronze has one such property for each cluster, so that two ingests that start at the same time do not
    overwrite each other's. The latest of these days counts.
    """
    return max(_by_cluster(pipeline).values(), default=None)


def first_complete_day_of_cluster(pipeline: Pipeline, cluster: str | None) -> date | None:
    """Return what bronze says of one cluster; of the first, which None stands for, also for retention."""
    return _by_cluster(pipeline).get(cluster)


def first_complete_day_of_source(pipeline: Pipeline, cluster: str | None) -> date | None:
    """Return the first complete day as far as the records of one cluster decide it.

    Retention writes what it removes of all clusters where the first one has its own.
    """
    days = _by_cluster(pipeline)
    return max((day for name, day in days.items() if name in {None, cluster}), default=None)


def _by_cluster(pipeline: Pipeline) -> dict[str | None, date]:
    spark, table = pipeline.spark, pipeline.table("bronze")
    if not exists(spark, table):
        return {}
    return {
        name: parse_property(table, property_of_cluster(WHOLE_FROM, name), day, date.fromisoformat)
        for name, day in properties_of_clusters(spark, table, WHOLE_FROM).items()
    }
