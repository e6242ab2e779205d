"""What still needs old records of bronze: each reason names the first day that must stay whole for it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.config.commands import command
from pipelines.config.model import PipelineConfig
from pipelines.contracts.event_days import FIRST_DAY
from pipelines.delta.io import read, small_rows
from pipelines.delta.stream_position import unread_rows
from pipelines.delta.tables import exists, version
from pipelines.ledger.bronze_indexer import index_bronze
from pipelines.ledger.bronze_verdicts import compared, own_verdicts
from pipelines.ledger.certifications import Verdict, history
from pipelines.ledger.decoding import decode_all
from pipelines.ledger.quarantine import broken_not_quarantined
from pipelines.ledger.retention_properties import last_event_day
from pipelines.records.decode import EVENT_DATE, VALID
from pipelines.records.send_time import sent_at
from pipelines.spark.pipeline import Pipeline


@dataclass(frozen=True)
class RetentionBlocker:
    """Something that needs bronze: the first day that must stay whole, and why."""

    day: date
    why: str


def first_unread(pipeline: Pipeline) -> datetime | None:
    """Return when the first record was sent that `speed_stream` has not read; None if there is none."""
    return _first_sent(unread_rows(pipeline))


def first_unresolved(pipeline: Pipeline) -> datetime | None:
    """Return when the first unresolved record of the quarantine was sent; None if there is none."""
    table = pipeline.table("quarantine")
    if not exists(pipeline.spark, table):
        return None
    return _first_sent(read(pipeline.spark, table).where("_status = 'open'"))


def first_broken_not_quarantined(pipeline: Pipeline, condition: str) -> datetime | None:
    """Return when the first record was sent that breaks the contract and is not in quarantine.

    Args:
        pipeline: The pipeline.
        condition: The records of bronze that are looked at, in SQL.

    Returns:
        None if there is none.
    """
    return _first_sent(broken_not_quarantined(pipeline, condition))


def unread_records(config: PipelineConfig, zone: ZoneInfo, sent: datetime | None) -> RetentionBlocker | None:
    """Return what the records need that `speed_stream` has not read: it would never see them.

    Args:
        config: The pipeline's configuration.
        zone: The zone in which days end.
        sent: When the first of them was sent; None if there is none.
    """
    if sent is None:
        return None
    day = last_event_day(sent, config.decode.max_future, zone)
    return RetentionBlocker(
        day, f"speed_stream has not read records that were sent at {sent:%Y-%m-%d %H:%M} UTC"
    )


def in_quarantine(config: PipelineConfig, zone: ZoneInfo, sent: datetime | None) -> RetentionBlocker | None:
    """Return what the unresolved records need: a replay may rebuild the days that they were late for.

    Args:
        config: The pipeline's configuration.
        zone: The zone in which days end.
        sent: When the first of them was sent; None if there is none.
    """
    if sent is None:
        return None
    before = timedelta(days=config.batch.lookback_days + config.batch.dedup_horizon_days)
    return RetentionBlocker(
        sent.astimezone(zone).date() - before,
        f"quarantine holds unresolved records, the first sent at {sent:%Y-%m-%d %H:%M} UTC:"
        " replay or discard them",
    )


def broken_not_in_quarantine(
    config: PipelineConfig, zone: ZoneInfo, sent: datetime | None
) -> RetentionBlocker | None:
    """Return what the records need that break the contract, and are not in quarantine.

    Args:
        config: The pipeline's configuration.
        zone: The zone in which days end.
        sent: When the first of them was sent; None if there is none.
    """
    if sent is None:
        return None
    return RetentionBlocker(
        last_event_day(sent, config.decode.max_future, zone),
        f"records that were sent at {sent:%Y-%m-%d %H:%M} UTC break the contract, and are not in"
        " quarantine: maintain puts them there; replay or discard them",
    )


def records_of_days(pipeline: Pipeline) -> dict[date, int]:
    """Return how many valid records bronze holds of each event day that can be certified."""
    decoded = decode_all(pipeline, read(pipeline.spark, pipeline.table("bronze")))
    valid = decoded.where(F.col(VALID) & (F.col(EVENT_DATE) >= F.lit(FIRST_DAY)))
    return {row[EVENT_DATE]: row["count"] for row in small_rows(valid.groupBy(EVENT_DATE).count())}


def days_with_later_records(pipeline: Pipeline) -> Collection[date]:
    """Return certified days of which records came after they were certified, as the index of bronze knows."""
    index = index_bronze(pipeline, version(pipeline.spark, pipeline.table("bronze")))
    ledger = history(pipeline)
    known = compared(own_verdicts(pipeline, ledger, index), ledger, index, {}).versions
    versions = {day: at for day, at in known.items() if at is not None}
    return index.records_after(versions, pipeline.spark).keys()


@dataclass(frozen=True)
class DaysOfBronze:
    """What bronze holds of event days, and what was decided on them.

    Attributes:
        records: How many valid records bronze holds of each day.
        verdicts: The newest verdict on each day.
        late: Certified days of which records came after they were certified.
    """

    records: Mapping[date, int]
    verdicts: Sequence[Verdict]
    late: Collection[date] = ()


def uncertified(
    config: PipelineConfig, days: DaysOfBronze, first: date | None, before: date
) -> RetentionBlocker | None:
    """Return the first day that the batch layer does not hold as bronze does: it has to be rebuilt before.

    Args:
        config: The pipeline's configuration.
        days: What is known of the days.
        first: The first day that can be rebuilt; None for any.
        before: The first day that would stay whole without this need.
    """
    neighbours = timedelta(days=config.batch.dedup_horizon_days)
    verdict_by_day = {verdict.day: verdict for verdict in days.verdicts}
    for day in sorted({*days.records, *verdict_by_day}):
        if not (first or FIRST_DAY) <= day < before + neighbours:
            continue
        verdict, count = verdict_by_day.get(day), days.records.get(day, 0)
        if verdict is None or verdict.status != "certified":
            return RetentionBlocker(day - neighbours, f"{day} is not certified: {rebuild_first(config, day)}")
        if verdict.records != count:
            why = f"{day} has {count:,} records, and had {verdict.records:,} when it was certified"
            return RetentionBlocker(day - neighbours, f"{why}: {rebuild_first(config, day)}")
        # As many may be others: some that were valid then break the contract now.
        if day in days.late:
            why = f"records of {day} came after it was certified"
            return RetentionBlocker(day - neighbours, f"{why}: {rebuild_first(config, day)}")
    return None


def rebuild_first(config: PipelineConfig, day: date) -> str:
    """Return what to do about a day that keeps records until it is certified."""
    return f"run first: {command(config, 'nightly_batch', f'--date {day}')}"


def _first_sent(rows: DataFrame) -> datetime | None:
    # Python's timestamps end with the year 9999, and Kafka's do not.
    row = rows.agg(F.unix_seconds(F.min(sent_at())).alias("t")).first()
    return None if row is None or row["t"] is None else datetime.fromtimestamp(row["t"], UTC)
