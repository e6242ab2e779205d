"""The audit: reads what was written and decides, day by day, whether it is whole."""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.audit import integrity_checks, recount
from pipelines.audit.layer_comparison import Limits, layer_differences
from pipelines.audit.recount import BronzeFacts, LayerDay
from pipelines.config.model import PipelineConfig
from pipelines.contracts.contract import DataContract
from pipelines.contracts.event_days import Span, around
from pipelines.delta.event_tables import by_clock_since
from pipelines.delta.io import append, on_days, read, small_rows
from pipelines.delta.tables import (
    QUARANTINE,
    conform,
    ensure_table,
    events_schema,
    exists,
    shape,
    small_frame,
)
from pipelines.kafka.known_gaps import known_missing
from pipelines.ledger.bronze_index import BronzeIndex, BronzeSlice
from pipelines.ledger.bronze_state import records_in
from pipelines.ledger.checks import RESULTS, Check, worst
from pipelines.ledger.forgotten import emptied_in
from pipelines.ledger.layer_sample import LayerDifference
from pipelines.ledger.offset_ranges import PartitionOffsets
from pipelines.ledger.retention_marks import speed_from
from pipelines.ledger.writer_schemas import decode_all
from pipelines.records.decode import EVENT_DATE, VALID
from pipelines.records.dedup import with_key
from pipelines.spark.pipeline import Pipeline


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
    pipeline: Pipeline,
    span: Span,
    closed: Collection[date],
    pieces: BronzeSlice,
    batch_version: int,
) -> Audit:
    """Checks days of the batch layer against bronze, the speed layer and the contract.

    Args:
        pipeline: The pipeline.
        span: the days, and those that decide on them.
        closed: these days and all that are certified.
        pieces: the pieces of bronze that hold all records of these.
        batch_version: the version of the batch table to look at.
    """
    config, contract = pipeline.config, pipeline.contract
    days, horizon = span.days, pipeline.horizon
    records = recount.audit_columns(decode_all(pipeline, pieces.envelopes), contract)
    batch = conform(read(pipeline.spark, pipeline.table("batch"), batch_version), events_schema(contract))
    near = batch.where(on_days(around(days, horizon)))
    with _cached(records, near):
        rows = near.where(on_days(days))
        counted, examples = pieces.index.counts(), config.audit.examples
        bronze_facts = recount.bronze_facts(records, contract, span, counted, examples)
        layer = recount.layer_facts(rows, contract)
        doubled = recount.doubled_keys(near, contract, horizon)
        ranges = _offsets(pipeline, pieces.index)
        checks = _integrity(config, days, bronze_facts, layer, doubled, ranges)
        there = _remembered_in(pipeline, pieces.index.version)
        checks += [integrity_checks.index_is_whole(day, bronze_facts, there) for day in days]
        if horizon:
            lost = _one_row_each(contract, span, closed, records.where(VALID), batch)
            checks += [integrity_checks.each_event_has_a_row(day, lost, horizon) for day in days]
            checks += [integrity_checks.keys_come_to_an_end(day, bronze_facts) for day in days]
        of_open_days = _of_open_days(horizon, days, closed, records.where(VALID))
        differences, more = _against_speed(pipeline, days, near, of_open_days, pieces)
        checks += more
        checks += _within_limits(pipeline, days, bronze_facts, layer, differences)
        if exists(pipeline.spark, pipeline.table("quarantine")):
            lacking = recount.lacking_in_quarantine(records, _quarantine(pipeline, pieces.since))
            checks += [integrity_checks.quarantine_is_whole(day, bronze_facts, lacking) for day in days]
        began = time.monotonic()
        checks += _expected(pipeline, days, rows)
        counts = {day: layer[day].rows if day in layer else 0 for day in days}
        return Audit(tuple(checks), bronze_facts, counts, differences, time.monotonic() - began)


def _remembered_in(pipeline: Pipeline, version: int) -> int:
    """The records of bronze that were not forgotten, by what the table itself says."""
    return records_in(pipeline, version) - emptied_in(pipeline, version)


@contextmanager
def _cached(*frames: DataFrame) -> Iterator[None]:
    """Keeps frames on the executors while a block looks at them again and again."""
    for frame in frames:
        frame.persist()
    try:
        yield
    finally:
        for frame in frames:
            frame.unpersist()


def _of_open_days(
    horizon: int,
    days: Sequence[date],
    closed: Collection[date],
    records: DataFrame,
) -> DataFrame | None:
    """The valid records of neighbouring days that are open; None where copies of a key lie on one day."""
    open_days = [day for day in around(days, horizon) if day not in closed]
    return records.where(on_days(open_days)) if open_days else None


def _one_row_each(
    contract: DataContract, span: Span, closed: Collection[date], records: DataFrame, batch: DataFrame
) -> dict[date, int]:
    """Counts, by day, the valid records of closed days that have no row, by other means than the rebuild's.

    Of neighbouring days only keys are looked at of which these days have copies as well. A copy on a day that
    is open may stand for a record: the audit of that day sees whether it does.
    """
    horizon = span.horizon
    near, wide = (around(span.days, reach) for reach in (horizon, 2 * horizon))
    rows = with_key(batch.where(on_days(wide)), contract)
    of_days = records.where(on_days(span.days)).select(*contract.key_names).distinct()
    of_closed = records.where(on_days([day for day in near if day in closed]))
    lacking = recount.without_row(
        of_closed.join(of_days, contract.key_names, "left_semi"), rows, contract, horizon
    )
    if open_days := [day for day in wide if day not in closed]:
        lacking = recount.without_row(lacking, records.where(on_days(open_days)), contract, horizon)
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
            integrity_checks.no_duplicate_key(day, doubled),
            integrity_checks.counts_add_up(day, bronze, found),
            integrity_checks.rows_are_the_winners(day, bronze, found),
            integrity_checks.rows_in_their_day(day, found),
            integrity_checks.offsets_contiguous(day, ranges, config.audit.offset_gaps),
            integrity_checks.offsets_once(day, ranges),
        ]
    return checks


def _within_limits(
    pipeline: Pipeline,
    days: Sequence[date],
    bronze: BronzeFacts,
    layer: Mapping[date, LayerDay],
    differences: Mapping[date, LayerDifference],
) -> list[Check]:
    """Whether no more events are late, or in conflict, than configuration and contract let pass."""
    many = (pipeline.config.speed.late_warn_share, pipeline.config.speed.late_warn_records)
    checks = [
        integrity_checks.late_within_limit(day, found.late, layer.get(day, LayerDay()).rows, many)
        for day, found in differences.items()
    ]
    if (limit := pipeline.contract.max_conflicts) is not None:
        checks += [integrity_checks.conflicts_within_limit(day, bronze, limit) for day in days]
    return checks


def _expected(pipeline: Pipeline, days: Sequence[date], rows: DataFrame) -> list[Check]:
    """What Great Expectations says of the rows, by the rules of the contract."""
    # It takes seconds to import, which streaming jobs and plans need not wait for.
    from pipelines.expectations.runner import expectation_checks

    return expectation_checks(
        rows,
        pipeline.config.name,
        pipeline.contract,
        days,
        0 if pipeline.contract.personal else pipeline.config.audit.examples,
    )


def _against_speed(
    pipeline: Pipeline,
    days: Sequence[date],
    near: DataFrame,
    of_open_days: DataFrame | None,
    pieces: BronzeSlice,
) -> tuple[dict[date, LayerDifference], list[Check]]:
    config = pipeline.config
    first = speed_from(pipeline) or date.min
    days = [day for day in days if day >= first]
    if not days or not exists(pipeline.spark, pipeline.table("speed")):
        return {}, []
    # Streams go on while days are rebuilt: what came after the audited state of bronze is left out.
    speed = read(pipeline.spark, pipeline.table("speed")).where(F.col("_ingested_at") <= F.lit(pieces.until))
    limits = Limits(
        days,
        pipeline.horizon,
        config.speed.watermark_delay,
        pieces.since,
        examples=config.audit.examples,
    )
    newest = pieces.index.newest_events(pieces.since, by_clock_since(pipeline))
    found = layer_differences(
        speed, near, of_open_days, newest, _quarantine(pipeline, pieces.since), pipeline.contract, limits
    )
    differences = {day: found.get(day, LayerDifference()) for day in days}
    of_days = speed.where(on_days(days))
    doubled = recount.doubled_keys(of_days, pipeline.contract, pipeline.horizon)
    policy = config.audit.layer_differences
    checks = [integrity_checks.layers_agree(day, differences[day], policy) for day in days]
    checks += [integrity_checks.doubled_in_speed(day, doubled) for day in days]
    return differences, checks


def _offsets(pipeline: Pipeline, index: BronzeIndex) -> list[PartitionOffsets]:
    found, gaps = index.offsets(), pipeline.config.audit.known_gaps
    if not gaps and all(offsets.distinct is not None for offsets in found):
        return found
    bronze = read(pipeline.spark, pipeline.table("bronze"), index.version)
    if unsure := [(offsets.topic, offsets.partition) for offsets in found if offsets.distinct is None]:
        counts = recount.distinct_offsets(bronze, unsure)
        found = [
            replace(offsets, distinct=counts[offsets.topic, offsets.partition])
            if offsets.distinct is None
            else offsets
            for offsets in found
        ]
    topic = pipeline.config.kafka.topic
    within = {each.partition: range(each.first, each.last + 1) for each in found if each.topic == topic}
    of_topic = bronze.where(F.col("_topic") == topic)
    known = known_missing(of_topic, gaps, within)
    return [
        replace(offsets, known=known.get(offsets.partition, 0)) if offsets.topic == topic else offsets
        for offsets in found
    ]


def _quarantine(pipeline: Pipeline, since: datetime) -> DataFrame:
    """The rows of the quarantine that were ingested since a moment; files of older ones are not read."""
    spark = pipeline.spark
    table = pipeline.table("quarantine")
    if not exists(spark, table):
        return small_frame(spark, [], shape(QUARANTINE))
    return read(spark, table).where(F.col("_ingested_at") >= F.lit(since))


def record_checks(
    pipeline: Pipeline,
    checks: Sequence[Check],
    *,
    run_id: str,
    bronze_version: int,
    batch_version: int,
) -> None:
    """Appends the outcome of checks to `ops/validation_results`, as one commit."""
    table = pipeline.ops_table("validation_results")
    ensure_table(pipeline.spark, table, shape(RESULTS), partitions=["pipeline"])
    run = {
        "pipeline": pipeline.config.name,
        "run_id": run_id,
        "batch_version": batch_version,
        "bronze_version": bronze_version,
        "checked_at": datetime.now(UTC),
    }
    append(small_frame(pipeline.spark, [asdict(check) | run for check in checks], shape(RESULTS)), table)
