"""The ledger of verdicts: which days were certified or refused, at which versions of the tables."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from typing import Final, Literal

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.config import PipelineConfig
from pipelines.sinks.delta import append, read
from pipelines.sinks.tables import conform, ensure_table, exists, shape, small_frame

_SHAPE: Final = (
    "pipeline string, day date, status string, run_id string, batch_version bigint, bronze_version bigint,"
    " records bigint, rows bigint, duplicates bigint, conflicts bigint, late bigint, quarantined bigint,"
    " other_days bigint, bronze bigint, decided_at timestamp, cause string, came_late bigint,"
    " previous_version bigint, added bigint, removed bigint, changed bigint"
)


@dataclass(frozen=True)
class Verdict:
    """What a run decided about a day.

    Attributes:
        pipeline: the pipeline's name.
        day: the event day.
        status: `certified`, or `failed`: the audit did not pass and readers keep what they had.
        run_id: the run that decided.
        batch_version: the version of the batch table that was audited.
        bronze_version: the version of bronze that it was built from.
        records: valid records of the day in bronze.
        rows: rows of the day in the batch layer.
        duplicates: records - rows.
        conflicts: keys whose copies carry different payloads.
        late: rows that the speed layer had dropped as late.
        quarantined: records in bronze that break the contract, of whatever day.
        other_days: valid records in bronze of other days.
        bronze: all records in bronze.
        decided_at: when, in UTC.
        cause: why the day was rebuilt: `asked`, `missed`, `late` or `neighbour`; None if nobody knows.
        came_late: records that came after the day's previous certification.
        previous_version: the batch version that certified the day before this run; None if none did. A
            certified verdict that has one is a repair.
        added: rows that the previous version does not have.
        removed: rows that only the previous version has.
        changed: rows of keys that both have, from another record or with other values.
    """

    pipeline: str
    day: date
    status: Literal["certified", "failed"]
    run_id: str
    batch_version: int
    bronze_version: int
    records: int
    rows: int
    duplicates: int
    conflicts: int
    late: int
    quarantined: int
    other_days: int
    bronze: int
    decided_at: datetime
    cause: str | None = None
    came_late: int | None = None
    previous_version: int | None = None
    added: int | None = None
    removed: int | None = None
    changed: int | None = None


@dataclass(frozen=True)
class Certified:
    """What readers may see of the batch layer.

    Attributes:
        version: the version of the batch table that holds every certified day.
        days: the certified days, in order.
    """

    version: int
    days: tuple[date, ...]


def record_verdicts(spark: SparkSession, config: PipelineConfig, verdicts: Iterable[Verdict]) -> None:
    """Appends verdicts as one commit; from then on readers see the days that are certified."""
    table = config.ops_table("certifications")
    ensure_table(spark, table, shape(_SHAPE), partitions=["pipeline"])
    append(small_frame(spark, [asdict(verdict) for verdict in verdicts], shape(_SHAPE)), table)


def verdicts(spark: SparkSession, config: PipelineConfig) -> list[Verdict]:
    """The newest verdict on each day of the pipeline, in the order of the days."""
    newest = {verdict.day: verdict for verdict in history(spark, config)}
    return [newest[day] for day in sorted(newest)]


def history(spark: SparkSession, config: PipelineConfig) -> list[Verdict]:
    """All verdicts on the days of the pipeline, the oldest first."""
    table = config.ops_table("certifications")
    if not exists(spark, table):
        return []
    # A lake that no nightly run has touched since lacks the columns that came later.
    ledger = conform(read(spark, table), shape(_SHAPE)).where(F.col("pipeline") == config.name)
    rows = ledger.orderBy("decided_at", "batch_version", "day").toLocalIterator()
    return [Verdict(**row.asDict() | {"decided_at": row["decided_at"].astimezone(UTC)}) for row in rows]


def certified(spark: SparkSession, config: PipelineConfig) -> Certified | None:
    """The certified state of the batch layer; None if no day was ever certified.

    A day stays certified when a later rebuild of it fails: readers keep the state that passed.
    """
    table = config.ops_table("certifications")
    if not exists(spark, table):
        return None
    passed = read(spark, table).where((F.col("pipeline") == config.name) & (F.col("status") == "certified"))
    found = passed.agg(
        F.max("batch_version").alias("version"), F.sort_array(F.collect_set("day")).alias("days")
    )
    row = found.first()
    if row is None or row["version"] is None:
        return None
    return Certified(row["version"], tuple(row["days"]))
