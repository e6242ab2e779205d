"""The coordinates of forgotten records, kept outside of all layers: they outlive these, and their backups.

Such a place says nothing of what the record held. Ingest empties a record that it reads from one once more,
and no run decides by a table that holds such a record. All pipelines of a topic share the places.
"""

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.config.clusters import SEPARATOR
from pipelines.config.commands import command
from pipelines.delta.io import append, on_days, read, small_rows
from pipelines.delta.record_tables import FORGOTTEN, ensure_forgettable, topics_of_bronze
from pipelines.delta.small_tables import read_small
from pipelines.delta.tables import exists, shape, small_frame
from pipelines.errors import SourceError
from pipelines.ledger.certifications import Certified
from pipelines.ledger.forgotten import EVENT_TIME, emptied_of, forgotten_mark, not_emptied
from pipelines.ledger.ops_tables import FORGOTTEN_PLACES, rows_of
from pipelines.records.decode import COORDINATES, ENVELOPE, EVENT_DATE
from pipelines.spark.ingest_plans import read_until
from pipelines.spark.pipeline import Pipeline
from pipelines.sql import literal


def remember_places(pipeline: Pipeline, records: DataFrame, run_id: str) -> None:
    """Write down where records stood that are to be forgotten, before they are.

    Places that are known already, of another pipeline or of a run that died, are written down again: a day
    may have been certified with these records since.

    Args:
        pipeline: The pipeline.
        records: Their coordinates and `event_time`, of whatever layer; more than once, if several hold one.
        run_id: The run.
    """
    FORGOTTEN_PLACES.ensure(pipeline)
    new = records.groupBy(*COORDINATES).agg(F.max(EVENT_TIME).alias(EVENT_TIME))
    ids = topics_of_bronze(pipeline).items()
    topic_id = " ".join(f"WHEN {_of_cluster(cluster)} THEN {literal(found)}" for cluster, found in ids)
    columns = {
        "pipeline": F.lit(pipeline.config.name),
        "topic_id": F.expr(f"CASE {topic_id} END" if topic_id else "CAST(NULL AS STRING)"),
        "forgotten_at": F.current_timestamp(),
        "run_id": F.lit(run_id),
    }
    append(new.withColumns(columns).select(*FORGOTTEN_PLACES.schema.names), FORGOTTEN_PLACES.path(pipeline))


def places(pipeline: Pipeline) -> DataFrame | None:
    """Return what was forgotten of this topic, by any pipeline: coordinates, `event_time`, `forgotten_at`.

    None if nothing ever was.
    """
    if not FORGOTTEN_PLACES.exists(pipeline):
        return None
    forgotten = _remembered(pipeline)
    # This pipeline's days were rebuilt since it forgot them itself, whenever others did.
    own = F.max(F.expr(f"CASE WHEN {rows_of(pipeline)} THEN forgotten_at END"))
    at = F.coalesce(own, F.min("forgotten_at")).alias("forgotten_at")
    by_place = forgotten.groupBy(*COORDINATES).agg(F.max(EVENT_TIME).alias(EVENT_TIME), at)
    return None if forgotten.isEmpty() else by_place


def times_remembered(pipeline: Pipeline) -> int:
    """Return how many times records of this topic were forgotten, by any pipeline."""
    return _remembered(pipeline).count() if FORGOTTEN_PLACES.exists(pipeline) else 0


def _remembered(pipeline: Pipeline) -> DataFrame:
    # Not pinned: each micro-batch of ingest must see places forgotten since.
    return read(pipeline.spark, FORGOTTEN_PLACES.path(pipeline)).where(_of_topics(pipeline))


def _of_topics(pipeline: Pipeline) -> str:
    """Return an SQL condition: whether a place is of the topics that bronze was filled from."""
    ids, own = topics_of_bronze(pipeline), rows_of(pipeline)
    conditions = [
        f"({_of_cluster(cluster)} AND topic_id = {literal(found)})" for cluster, found in ids.items()
    ]
    if None in ids:
        # Earlier releases wrote the first cluster's id, if there was one, beside the records of all.
        known = f"(topic_id IS NULL OR topic_id = {literal(ids[None])})"
        conditions.append(f"({own} AND NOT {_of_cluster(None)} AND {known})")
    else:
        conditions.append(f"({own} AND topic_id IS NULL)")
    return " OR ".join(conditions)


def _of_cluster(cluster: str | None) -> str:
    """Return an SQL condition: whether a place is of a cluster; None is the first."""
    beginning = literal(f"{cluster}{SEPARATOR}")
    return f"startswith(_topic, {beginning})" if cluster else f"NOT contains(_topic, {literal(SEPARATOR)})"


def not_forgotten(pipeline: Pipeline, rows: DataFrame) -> DataFrame:
    """Return the rows of a layer whose records were not forgotten, by their coordinates."""
    forgotten = places(pipeline)
    return (
        rows if forgotten is None else rows.join(forgotten.select(*COORDINATES), [*COORDINATES], "left_anti")
    )


def forgotten_after(pipeline: Pipeline, decided: Mapping[date, datetime]) -> dict[date, int]:
    """Return how many records of event days were forgotten after the days were decided on.

    Args:
        pipeline: The pipeline.
        decided: When each day was decided on.

    Returns:
        Their number, of each day that has any.
    """
    forgotten = places(pipeline) if decided else None
    if forgotten is None:
        return {}
    rows = [{"day": day, "decided_at": at} for day, at in decided.items()]
    days = small_frame(pipeline.spark, rows, shape("day date, decided_at timestamp"))
    later = (
        forgotten.select(_event_day(pipeline), "forgotten_at")
        .join(days, "day")
        .where("forgotten_at > decided_at")
    )
    return {row["day"]: row["count"] for row in small_rows(later.groupBy("day").count())}


def places_ahead(pipeline: Pipeline) -> DataFrame | None:
    """Return the places that ingest, by its checkpoint, will come to: of a topic that it reads once more."""
    forgotten = places(pipeline)
    if forgotten is None:
        return None
    done = " OR ".join(
        f"_partition = {partition} AND _offset < {end}" for partition, end in read_until(pipeline).items()
    )
    return _to_empty(pipeline, forgotten.where(f"NOT ({done or 'false'})"))


def places_where(pipeline: Pipeline, condition: str) -> DataFrame | None:
    """Return the places that a backfill will come to.

    Args:
        pipeline: The pipeline.
        condition: What it reads, in SQL over `_partition` and `_offset`.
    """
    forgotten = places(pipeline)
    return None if forgotten is None else _to_empty(pipeline, forgotten.where(condition))


def _to_empty(pipeline: Pipeline, ahead: DataFrame) -> DataFrame | None:
    if ahead.isEmpty():
        return None
    ensure_forgettable(pipeline.spark, pipeline.table("bronze"))
    return ahead.drop("forgotten_at")


def emptied_on_arrival(envelopes: DataFrame, ahead: DataFrame | None) -> DataFrame:
    """Return a micro-batch of ingest, in which records from places that were forgotten are empty.

    Args:
        envelopes: The micro-batch, in the shape of bronze.
        ahead: What `places_ahead` or `places_where` has found.
    """
    if ahead is None:
        return envelopes
    marked = ahead.withColumn(FORGOTTEN, F.expr(forgotten_mark(EVENT_TIME))).drop(EVENT_TIME)
    joined = envelopes.join(marked, [*COORDINATES], "left")
    empty = (F.expr(f"CASE WHEN {FORGOTTEN} IS NULL THEN {name} END").alias(name) for name in ENVELOPE)
    others = [name for name in envelopes.columns if name not in ENVELOPE]
    return joined.select(*empty, *others, FORGOTTEN)


def _came_back(bronze: DataFrame, forgotten: DataFrame) -> int:
    """Return how many records of bronze were forgotten and are not empty.

    Of a large table only files that may hold one are read.
    """
    emptied = emptied_of(bronze).select(*COORDINATES)
    others = forgotten.select(*COORDINATES).join(emptied, [*COORDINATES], "left_anti")
    ranges = small_rows(
        others.groupBy("_topic", "_partition").agg(F.min("_offset").alias("a"), F.max("_offset").alias("b"))
    )
    if not ranges:
        return 0
    within = " OR ".join(
        f"(_partition = {row['_partition']} AND _offset BETWEEN {row['a']} AND {row['b']})" for row in ranges
    )
    return held_of(not_emptied(bronze).where(within), others)


def require_forgotten(pipeline: Pipeline, *layers: Literal["speed", "quarantine"]) -> None:
    """Make sure that bronze, and these layers, hold nothing that was forgotten.

    Raises:
        SourceError: One does; the message has the command that fixes it.
    """
    spark = pipeline.spark
    forgotten = places(pipeline)
    if forgotten is None:
        return
    bronze = pipeline.table("bronze")
    counts = {bronze: _came_back(read_small(spark, bronze), forgotten)}
    for path in map(pipeline.config.table, layers):
        if exists(spark, path):
            counts[path] = held_of(_near(read_small(spark, path), forgotten), forgotten)
    if any(counts.values()):
        where = "; ".join(f"{path}: found {number:,} records" for path, number in counts.items() if number)
        raise SourceError(
            f"{where} that were forgotten, expected none: the table was restored from a backup, oncelake"
            " forget died before it was done, or another pipeline has forgotten them. No table was changed."
            f" To complete it, run: {command(pipeline.config, 'forget', '--again')}"
        )


def require_final_days_forgotten(pipeline: Pipeline, state: Certified | None, days: Sequence[date]) -> None:
    """Make sure that certified days that no rebuild reaches hold nothing that was forgotten.

    Args:
        pipeline: The pipeline.
        state: What readers have of the batch layer.
        days: The days.

    Raises:
        SourceError: One does; the message has the command that fixes it.
    """
    forgotten = places(pipeline) if state and days else None
    if state is None or forgotten is None:
        return
    table = pipeline.table("batch")
    number = held_of(read_small(pipeline.spark, table, state.version).where(on_days([*days])), forgotten)
    if number:
        raise SourceError(
            f"{table}: found {number:,} rows of events that were forgotten, on days that bronze no longer"
            " holds, expected none: batch layer and verdicts were restored from a backup, or oncelake forget"
            " died before it was done. No day was certified."
            f" To complete it, run: {command(pipeline.config, 'forget', '--again')}"
        )


def held_of(rows: DataFrame, forgotten: DataFrame) -> int:
    """Return how many rows stand for records that were forgotten.

    Args:
        rows: Of a layer, with coordinates.
        forgotten: What `places` has found.
    """
    return rows.join(forgotten.select(*COORDINATES), [*COORDINATES], "left_semi").count()


def _near(rows: DataFrame, forgotten: DataFrame) -> DataFrame:
    """Return rows that may stand for a forgotten record.

    In a table by event day those of the days around it.
    """
    if EVENT_DATE not in rows.columns:
        return rows
    days = _days_near(forgotten)
    # Of broken records alone no layer of events has a row.
    return rows.where(on_days(days) if days else F.lit(False))


def forgotten_days(pipeline: Pipeline, forgotten: DataFrame) -> list[date]:
    """Return the event days of places, sorted.

    Args:
        pipeline: The pipeline.
        forgotten: What `places` has found.
    """
    days = small_rows(forgotten.select(_event_day(pipeline)).where("day IS NOT NULL").distinct())
    return sorted(row["day"] for row in days)


def _event_day(pipeline: Pipeline) -> Column:
    """Return the event day of a place, as `day`."""
    return F.to_date(F.from_utc_timestamp(EVENT_TIME, pipeline.contract.day_time_zone)).alias("day")


def _days_near(forgotten: DataFrame) -> list[date]:
    """Return the event days that places may have, in whatever zone, sorted."""
    event_days = small_rows(
        forgotten.select(F.to_date(EVENT_TIME).alias("day")).where("day IS NOT NULL").distinct()
    )
    return sorted({row["day"] + timedelta(days=n) for row in event_days for n in (-1, 0, 1)})
