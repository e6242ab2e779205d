"""What retention has removed, kept as properties of the tables, and how far it may go."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from pipelines.config.model import PipelineConfig
from pipelines.delta.first_complete_day import first_complete_day
from pipelines.delta.table_properties import REMOVED_FOR, SPEED_FROM, parse_property, table_property
from pipelines.delta.tables import exists
from pipelines.errors import ConfigError, SourceError
from pipelines.ledger.certifications import Verdict
from pipelines.spark.pipeline import Pipeline

_DAY: Final = timedelta(days=1)
_UNKNOWN: Final = "unknown"


def first_rebuildable_day(pipeline: Pipeline) -> date | None:
    """Return the first day that can still be rebuilt and audited; None if bronze has never lost records.

    Bronze holds all records of this day and of the days within `batch.dedup_horizon_days` of it.
    """
    return first_rebuildable(pipeline.config, first_complete_day(pipeline))


def first_rebuildable(config: PipelineConfig, first_complete: date | None) -> date | None:
    """Return the first day that can be rebuilt; None for any.

    Args:
        config: The pipeline's configuration.
        first_complete: The first complete day, or None if bronze never lost records.
    """
    return (
        None if first_complete is None else first_complete + timedelta(days=config.batch.dedup_horizon_days)
    )


def cut_mark(verdict: Verdict) -> str:
    """Return the property that names a verdict upon which records of bronze may go."""
    return f"{verdict.batch_version} {verdict.batch_commit or _UNKNOWN}"


def require_cut_known(pipeline: Pipeline, ledger: Sequence[Verdict]) -> None:
    """Make sure that the ledger has the verdict upon which `maintain` has removed records of bronze.

    A ledger and a batch table that were restored together from an older backup agree with each other. But
    days that were repaired since, and whose records are gone, would stay as they were before.

    Args:
        pipeline: The pipeline.
        ledger: Its verdicts.

    Raises:
        SourceError: The ledger lacks that verdict.
    """
    spark, table = pipeline.spark, pipeline.table("bronze")
    text = table_property(spark, table, REMOVED_FOR) if exists(spark, table) else None
    if text is None:
        return
    version, commit = parse_property(table, REMOVED_FOR, text, _parse_mark)
    if any(
        each.status == "certified"
        and each.batch_version == version
        and commit in (_UNKNOWN, each.batch_commit)
        for each in ledger
    ):
        return
    raise SourceError(
        f"{pipeline.config.ops_table('certifications')}: verdicts on {pipeline.config.name} are older than"
        f" the removal of records from {table}: maintain removed them when version {version} of"
        f" {pipeline.table('batch')} was certified (commit {commit}), and no verdict says so. Batch layer and"
        " verdicts were restored from an older backup, or begun again: days that were repaired since would"
        " stay without their late events. Nothing was changed."
        " See docs/runbook.md, 'Verdicts are older than bronze'"
    )


def _parse_mark(text: str) -> tuple[int, str]:
    version, commit = text.split()
    return int(version), commit


def require_complete_days(pipeline: Pipeline, days: Sequence[date]) -> None:
    """Make sure that bronze still holds all records of some days and of their neighbours.

    Raises:
        ConfigError: Retention has removed some; or Kafka had deleted some when bronze was begun.
    """
    refuse_incomplete_days(pipeline.config, first_complete_day(pipeline), days)


def refuse_incomplete_days(config: PipelineConfig, first_complete: date | None, days: Sequence[date]) -> None:
    """Make sure that all records of some days, and of their neighbours, are there.

    Args:
        config: The pipeline's configuration.
        first_complete: The first complete day, or None if bronze never lost records.
        days: The days, sorted.

    Raises:
        ConfigError: Some are not.
    """
    first = first_rebuildable(config, first_complete)
    if first is not None and days[0] < first:
        raise ConfigError(
            f"{config.table('bronze')}: {days[0]} cannot be rebuilt or audited:"
            " records of it are gone, by maintain.bronze_retention, or because Kafka had deleted them when"
            f" bronze was begun. The first day that can be is {first}; earlier days stay as they are"
            " certified. See docs/runbook.md, 'After a loss'"
        )


def speed_from(pipeline: Pipeline) -> date | None:
    """Return the first day of which the speed layer has all rows, or None if it never lost any.

    Earlier days can no longer be compared with the speed layer; readers have them from the batch layer.
    """
    spark, table = pipeline.spark, pipeline.table("speed")
    day = table_property(spark, table, SPEED_FROM) if exists(spark, table) else None
    return None if day is None else parse_property(table, SPEED_FROM, day, date.fromisoformat)


def first_day_by_age(config: PipelineConfig, retention: timedelta, now: datetime, zone: ZoneInfo) -> date:
    """Return the first day that bronze has to keep whole for its age alone.

    Days that the nightly run looks back to are kept, however short the retention, and so are those that may
    have to be rebuilt with them, and their neighbours.
    """
    by_age = last_event_day(now - retention, config.decode.max_future, zone)
    looked_at = config.batch.lookback_days + 2 * config.batch.dedup_horizon_days
    return min(by_age, now.astimezone(zone).date() - _DAY - timedelta(days=looked_at))


def last_event_day(sent: datetime, max_future: timedelta, zone: ZoneInfo) -> date:
    """Return the last day on which an event may lie whose record was sent at a moment."""
    return (sent + max_future).astimezone(zone).date()


def first_moment_of(day: date, max_future: timedelta, zone: ZoneInfo) -> datetime:
    """Return the moment before which no record of a day, or of a later one, was sent."""
    return datetime.combine(day, time.min, zone).astimezone(UTC) - max_future
