"""The audit: reads what was written and decides, day by day, whether it is whole."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.config import PipelineConfig
from pipelines.contract import DataContract
from pipelines.decode import EVENT_DATE, VALID
from pipelines.dedup import with_key
from pipelines.ops.bronze_index import BronzeIndex, Pieces
from pipelines.ops.bronze_state import records_in
from pipelines.ops.retention import speed_from
from pipelines.ops.writer_schemas import decode_all
from pipelines.quality import facts, integrity
from pipelines.quality.checks import Check, worst
from pipelines.quality.differences import LayerDifference, Limits, layer_differences
from pipelines.quality.facts import BronzeFacts, LayerDay, Span
from pipelines.quality.offset_ledger import PartitionOffsets, partition_offsets
from pipelines.sinks.delta import append, on_days, read, small_rows
from pipelines.sinks.event_tables import by_clock_since
from pipelines.sinks.tables import (
    QUARANTINE,
    conform,
    ensure_table,
    events_schema,
    exists,
    shape,
    small_frame,
)

RESULTS: Final = (
    "pipeline string, day date, run_id string, name string, kind string, status string, observed string,"
    " expected string, detail string, batch_version bigint, bronze_version bigint, checked_at timestamp,"
    " result string"
)


@dataclass(frozen=True)
class Audit:
    """What an audit found.

    Attributes:
        checks: every check on every day.
        bronze: what bronze says.
        rows: rows of the batch layer on each day.
        differences: how the speed layer differs on each day.
        expectations_s: how many seconds of it Great Expectations took.
    """

    checks: tuple[Check, ...]
    bronze: BronzeFacts
    rows: dict[date, int]
    differences: dict[date, LayerDifference]
    expectations_s: float

    def failed_checks(self, day: date) -> list[Check]:
        """The checks that keep a day from being certified."""
        return [check for check in self.checks if check.day == day and check.status == "failed"]

    def passed(self, day: date) -> bool:
        """Whether no check on the day failed."""
        return worst(check for check in self.checks if check.day == day) != "failed"


def audit(
    spark: SparkSession,
    config: PipelineConfig,
    contract: DataContract,
    span: Span,
    closed: Collection[date],
    pieces: Pieces,
    batch_version: int,
) -> Audit:
    """Checks days of the batch layer against bronze, the speed layer and the contract.

    Args:
        spark: the session.
        config: names the tables and what may pass.
        contract: the rules.
        span: the days, and those that decide on them.
        closed: these days and all that are certified.
        pieces: the pieces of bronze that hold all records of these.
        batch_version: the version of the batch table to look at.
    """
    days = span.days
    records = facts.slim(decode_all(spark, config, contract, pieces.envelopes), contract).persist()
    horizon = config.batch.dedup_horizon_days
    batch = conform(read(spark, config.table("batch"), batch_version), events_schema(contract))
    near = batch.where(on_days(facts.around(days, facts.reach(contract, horizon)))).persist()
    rows = near.where(on_days(days))
    try:
        examples = config.audit.examples
        bronze_facts = facts.bronze_facts(records, contract, span, pieces.index.counts(), examples)
        layer = facts.layer_facts(rows, contract)
        ranges = _offsets(spark, config, pieces.index)
        doubled = facts.doubled_keys(near, contract, horizon)
        checks = _integrity(config, days, bronze_facts, layer, doubled, ranges)
        there = records_in(spark, config, pieces.index.version)
        checks += [integrity.index_is_whole(day, bronze_facts, there) for day in days]
        open_days = [day for day in facts.around(days, facts.reach(contract, horizon)) if day not in closed]
        of_open_days = records.where(VALID).where(on_days(open_days)) if open_days else None
        if facts.reach(contract, horizon):
            lost = _one_row_each(contract, span, closed, records.where(VALID), batch)
            checks += [integrity.each_event_has_a_row(day, lost, horizon) for day in days]
            checks += [integrity.keys_come_to_an_end(day, bronze_facts) for day in days]
        differences, more = _against_speed(spark, config, contract, days, near, of_open_days, pieces)
        checks += more
        many = (config.speed.late_warn_share, config.speed.late_warn_records)
        checks += [
            integrity.late_within_limit(day, found.late, layer.get(day, LayerDay()).rows, many)
            for day, found in differences.items()
        ]
        if contract.max_conflicts is not None:
            limit = contract.max_conflicts
            checks += [integrity.conflicts_within_limit(day, bronze_facts, limit) for day in days]
        if exists(spark, config.table("quarantine")):
            lacking = facts.lacking_in_quarantine(records, _quarantine(spark, config, pieces.since))
            checks += [integrity.quarantine_is_whole(day, bronze_facts, lacking) for day in days]
        began = time.monotonic()
        # Great Expectations takes seconds to import, which streaming jobs and plans need not wait for.
        from pipelines.quality.expectations import expectation_checks

        examples = 0 if contract.personal else config.audit.examples
        checks += expectation_checks(rows, config.name, contract, days, examples)
        expectations_s = time.monotonic() - began
        counts = {day: layer[day].rows if day in layer else 0 for day in days}
        return Audit(tuple(checks), bronze_facts, counts, differences, expectations_s)
    finally:
        records.unpersist()
        near.unpersist()


def _one_row_each(
    contract: DataContract, span: Span, closed: Collection[date], records: DataFrame, batch: DataFrame
) -> dict[date, int]:
    """Counts, by day, the valid records of closed days that have no row, by other means than the rebuild's.

    Of neighbouring days only keys are looked at of which these days have copies as well. A copy on a day that
    is open may stand for a record: the audit of that day sees whether it does.
    """
    horizon = span.horizon
    near, wide = (facts.around(span.days, reach) for reach in (horizon, 2 * horizon))
    rows = with_key(batch.where(on_days(wide)), contract)
    of_days = records.where(on_days(span.days)).select(*contract.key_names).distinct()
    of_closed = records.where(on_days([day for day in near if day in closed]))
    lacking = facts.without_row(
        of_closed.join(of_days, contract.key_names, "left_semi"), rows, contract, horizon
    )
    if open_days := [day for day in wide if day not in closed]:
        lacking = facts.without_row(lacking, records.where(on_days(open_days)), contract, horizon)
    return {row[EVENT_DATE]: row["count"] for row in small_rows(lacking.groupBy(EVENT_DATE).count())}


def _integrity(
    config: PipelineConfig,
    days: Sequence[date],
    bronze: BronzeFacts,
    layer: Mapping[date, LayerDay],
    doubled: Mapping[date, int],
    ranges: Sequence[PartitionOffsets],
) -> list[Check]:
    checks: list[Check] = []
    for day in days:
        found = layer.get(day, LayerDay())
        checks += [
            integrity.no_duplicate_key(day, doubled),
            integrity.counts_add_up(day, bronze, found),
            integrity.rows_are_the_winners(day, bronze, found),
            integrity.rows_in_their_day(day, found),
            integrity.offsets_contiguous(day, ranges, config.audit.offset_gaps),
            integrity.offsets_once(day, ranges),
        ]
    return checks


def _against_speed(
    spark: SparkSession,
    config: PipelineConfig,
    contract: DataContract,
    days: Sequence[date],
    near: DataFrame,
    of_open_days: DataFrame | None,
    pieces: Pieces,
) -> tuple[dict[date, LayerDifference], list[Check]]:
    first = speed_from(spark, config) or date.min
    days = [day for day in days if day >= first]
    if not days or not exists(spark, config.table("speed")):
        return {}, []
    # Streams go on while days are rebuilt: what came after the audited state of bronze is left out.
    speed = read(spark, config.table("speed")).where(F.col("_ingested_at") <= F.lit(pieces.until))
    limits = Limits(
        days,
        config.batch.dedup_horizon_days,
        config.speed.watermark_delay,
        pieces.since,
        examples=config.audit.examples,
    )
    newest = pieces.index.newest_events(pieces.since, by_clock_since(spark, config))
    found = layer_differences(
        speed, near, of_open_days, newest, _quarantine(spark, config, pieces.since), contract, limits
    )
    differences = {day: found.get(day, LayerDifference()) for day in days}
    of_days = speed.where(on_days(days))
    doubled = facts.doubled_keys(of_days, contract, config.batch.dedup_horizon_days)
    policy = config.audit.layer_differences
    checks = [integrity.layers_agree(day, differences[day], policy) for day in days]
    checks += [integrity.doubled_in_speed(day, doubled) for day in days]
    return differences, checks


def _offsets(spark: SparkSession, config: PipelineConfig, index: BronzeIndex) -> list[PartitionOffsets]:
    found = partition_offsets(index.offsets())
    unsure = [offsets for offsets in found if offsets.distinct is None]
    if not unsure:
        return found
    bronze = read(spark, config.table("bronze"), index.version)
    counts = facts.distinct_offsets(bronze, [(offsets.topic, offsets.partition) for offsets in unsure])
    return [
        replace(offsets, distinct=counts[offsets.topic, offsets.partition])
        if offsets.distinct is None
        else offsets
        for offsets in found
    ]


def _quarantine(spark: SparkSession, config: PipelineConfig, since: datetime) -> DataFrame:
    """The rows of the quarantine that were ingested since a moment; files of older ones are not read."""
    table = config.table("quarantine")
    if not exists(spark, table):
        return small_frame(spark, [], shape(QUARANTINE))
    return read(spark, table).where(F.col("_ingested_at") >= F.lit(since))


def record_checks(
    spark: SparkSession,
    config: PipelineConfig,
    checks: Sequence[Check],
    *,
    run_id: str,
    bronze_version: int,
    batch_version: int,
) -> None:
    """Appends the outcome of checks to `ops/validation_results`, as one commit."""
    table = config.ops_table("validation_results")
    ensure_table(spark, table, shape(RESULTS), partitions=["pipeline"])
    run = {
        "pipeline": config.name,
        "run_id": run_id,
        "batch_version": batch_version,
        "bronze_version": bronze_version,
        "checked_at": datetime.now(UTC),
    }
    append(small_frame(spark, [asdict(check) | run for check in checks], shape(RESULTS)), table)
