"""Days under audit: what bronze, the batch layer and the speed layer hold of them."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.audit import recount
from pipelines.audit.layer_comparison import ComparisonLimits, Layers, layer_differences
from pipelines.audit.recount import BatchDay, BronzeFacts
from pipelines.config.model import PipelineConfig
from pipelines.contracts.event_days import Span, around
from pipelines.delta.event_tables import by_clock_since, events_schema
from pipelines.delta.io import on_days, small_rows
from pipelines.delta.record_tables import QUARANTINE
from pipelines.delta.small_tables import read_small
from pipelines.delta.tables import conform, exists, shape, small_frame
from pipelines.kafka.known_gaps import known_missing
from pipelines.ledger.bronze_index import BronzeSlice
from pipelines.ledger.decoding import decode_all
from pipelines.ledger.forgotten import bronze_record_counts
from pipelines.ledger.layer_samples import LayerDifference
from pipelines.ledger.offset_ranges import PartitionOffsets
from pipelines.ledger.retention_properties import speed_from
from pipelines.records.decode import EVENT_DATE, VALID
from pipelines.records.dedup import clustered, with_key_columns
from pipelines.spark.pipeline import Pipeline


@dataclass(frozen=True)
class AuditedDays:
    """Days under audit. A check asks it for facts, each of which is counted once, when it is first asked for.

    Attributes:
        pipeline: The pipeline.
        span: The days, and those that decide on them.
        certified: All certified days, and these days, as if they were certified already.
        pieces: The pieces of bronze that hold all records of these.
        batch_version: The version of the batch table to look at.
    """

    pipeline: Pipeline
    span: Span
    certified: Collection[date]
    pieces: BronzeSlice
    batch_version: int

    @contextmanager
    def cached(self) -> Iterator[None]:
        """Keep records and rows on the executors while a block looks at them again and again."""
        frames = (self.records, self._neighbour_rows)
        for frame in frames:
            frame.persist()
        try:
            yield
        finally:
            for frame in frames:
                frame.unpersist()

    @cached_property
    def records(self) -> DataFrame:
        """The records of the days and of those that decide on them, as `audit_columns` gives them."""
        decoded = decode_all(self.pipeline, self.pieces.envelopes)
        return self._by_key(recount.audit_columns(decoded, self.pipeline.contract), self.span.near)

    @property
    def rows(self) -> DataFrame:
        """The rows of the batch layer of the days."""
        return self._batch.where(on_days(self.span.days))

    @cached_property
    def bronze(self) -> BronzeFacts:
        """What the batch layer must hold, by the records of bronze."""
        counted, examples = self.pieces.index.counts(), self.pipeline.config.audit.examples
        return recount.bronze_facts(self.records, self.pipeline.contract, self.span, counted, examples)

    @cached_property
    def layer(self) -> dict[date, BatchDay]:
        """What the batch layer holds."""
        return {day: self._facts_by_day.get(day, BatchDay()) for day in self.span.days}

    @cached_property
    def _facts_by_day(self) -> dict[date, BatchDay]:
        """What the batch layer holds of the days and their neighbours; days without rows are left out."""
        return recount.batch_facts(self._neighbour_rows, self.pipeline.contract)

    @cached_property
    def duplicate_keys(self) -> dict[date, int]:
        """Keys that stand more than once in the batch layer, by day."""
        return recount.doubled_keys(self._neighbour_rows, self.pipeline.contract, self.pipeline.horizon)

    @cached_property
    def records_in_table(self) -> int:
        """The records of bronze that were not forgotten, by what the table itself says."""
        records, emptied = bronze_record_counts(self.pipeline, self.pieces.index.version)
        return records - emptied

    @cached_property
    def records_without_row(self) -> dict[date, int]:
        """Valid records of certified days that have no row, by day, by other means than the rebuild's.

        Of neighbouring days only keys are looked at of which these days have copies as well. A copy on an
        uncertified day may stand for a record: the audit of that day sees whether it does.
        """
        contract, horizon = self.pipeline.contract, self.span.horizon
        # Nearly always these rows are enough, and those of further days need not be read.
        lacking = recount.records_without_row(
            self._certified_records, self._neighbour_rows, contract, horizon
        )
        if lacking.isEmpty():
            return {}
        wide = around(self.span.days, 2 * horizon)
        rows = with_key_columns(self._batch.where(on_days(wide)), contract)
        lacking = recount.records_without_row(self._certified_records, rows, contract, horizon)
        if uncertified_days := [day for day in wide if day not in self.certified]:
            copies = self.records.where(VALID).where(on_days(uncertified_days))
            lacking = recount.records_without_row(lacking, copies, contract, horizon)
        return {row[EVENT_DATE]: row["count"] for row in small_rows(lacking.groupBy(EVENT_DATE).count())}

    @property
    def _certified_records(self) -> DataFrame:
        """Valid records of the days, and of certified neighbours those whose key these days have as well."""
        days, key = self.span.days, self.pipeline.contract.key_names
        near = [day for day in around(days, self.span.horizon) if day in self.certified]
        records = self.records.where(VALID)
        of_near = records.where(on_days(near))
        if not self.pieces.index.records_of([day for day in near if day not in days]):
            return of_near
        keys = records.where(on_days(days)).select(*key).distinct()
        return of_near.join(keys, key, "left_semi")

    @cached_property
    def offsets(self) -> list[PartitionOffsets]:
        """The offsets that bronze has of each Kafka partition, with those that are known to be lost."""
        index, gaps = self.pieces.index, self.pipeline.config.audit.known_gaps
        offset_ranges = index.offsets()
        if not gaps and all(offsets.distinct is not None for offsets in offset_ranges):
            return offset_ranges
        bronze = read_small(self.pipeline.spark, self.pipeline.table("bronze"), index.version)
        offset_ranges = _counted(offset_ranges, bronze)
        for source in self.pipeline.config.sources():
            offset_ranges = _with_known(offset_ranges, bronze, source)
        return offset_ranges

    @cached_property
    def differences(self) -> dict[date, LayerDifference]:
        """How the speed layer differs, by day; days of which it no longer holds rows are left out."""
        if self._speed is None:
            return {}
        if not self._differing_days:
            return dict.fromkeys(self._days_of_speed, LayerDifference())
        config, since = self.pipeline.config, self.pieces.since
        near = around(self._differing_days, self.pipeline.horizon)
        layers = Layers(
            speed=self._speed,
            batch=self._neighbour_rows.where(on_days(near)),
            of_uncertified_days=self._of_uncertified_days,
            quarantine=self._quarantine,
            newest_events=self.pieces.index.newest_events(since, by_clock_since(self.pipeline)),
        )
        delay, examples = config.speed.watermark_delay, config.audit.examples
        limits = ComparisonLimits(self._differing_days, self.pipeline.horizon, delay, since, examples)
        by_day = layer_differences(layers, self.pipeline.contract, limits)
        return {day: by_day.get(day, LayerDifference()) for day in self._days_of_speed}

    @cached_property
    def doubled_in_speed(self) -> dict[date, int]:
        """Keys that stand more than once in the speed layer, by day."""
        if self._speed is None or not self._differing_days:
            return {}
        of_days = self._speed.where(on_days(self._differing_days))
        return recount.doubled_keys(of_days, self.pipeline.contract, self.pipeline.horizon)

    @cached_property
    def lacking_in_quarantine(self) -> int | None:
        """Broken records of bronze that are not in quarantine; None where there is no quarantine yet."""
        if not exists(self.pipeline.spark, self.pipeline.table("quarantine")):
            return None
        return recount.lacking_in_quarantine(self.records, self._quarantine) if self.bronze.broken else 0

    @cached_property
    def _batch(self) -> DataFrame:
        path, schema = self.pipeline.table("batch"), events_schema(self.pipeline.contract)
        return conform(read_small(self.pipeline.spark, path, self.batch_version), schema)

    @cached_property
    def _neighbour_rows(self) -> DataFrame:
        """The rows of the days and of their neighbours, as `audit_columns` gives them."""
        near = around(self.span.days, self.pipeline.horizon)
        rows = self._batch.where(on_days(near))
        return self._by_key(recount.audit_columns(rows, self.pipeline.contract), near)

    def _by_key(self, rows: DataFrame, days: Sequence[date]) -> DataFrame:
        records = self.pieces.index.records_of(days)
        return clustered(rows, self.pipeline.contract, records)

    @cached_property
    def _days_of_speed(self) -> list[date]:
        first = speed_from(self.pipeline) or date.min
        return [day for day in self.span.days if day >= first]

    @cached_property
    def _differing_days(self) -> list[date]:
        """The days of which the layers do not hold the same keys of the same records, each key once.

        Of the others nothing has to be joined to know that the layers agree. A key may have copies on
        neighbouring days, so these have to be the same as well.
        """
        if self._speed is None:
            return []
        horizon, contract = self.pipeline.horizon, self.pipeline.contract
        near = around(self._days_of_speed, horizon)
        speed = recount.key_sums(self._speed.where(on_days(near)), contract)
        batch = {day: (facts.rows, facts.key_sum) for day, facts in self._facts_by_day.items()}
        other = {day for day in near if speed.get(day) != batch.get(day) or day in self.duplicate_keys}
        return [day for day in self._days_of_speed if other & {*around([day], horizon)}]

    @cached_property
    def _speed(self) -> DataFrame | None:
        """The speed layer as it was when bronze was as it is audited: streams go on meanwhile."""
        path = self.pipeline.table("speed")
        if not self._days_of_speed or not exists(self.pipeline.spark, path):
            return None
        speed = read_small(self.pipeline.spark, path).where(F.col("_ingested_at") <= F.lit(self.pieces.until))
        # A micro-batch of one cluster may come after a later one of another, and a clock may step backward:
        # what of them counts is known by offsets alone.
        last = [
            {"_topic": each.topic, "_partition": each.partition, "_last": each.last}
            for each in self.pieces.index.offsets()
        ]
        ends = small_frame(self.pipeline.spark, last, shape("_topic string, _partition int, _last bigint"))
        within = speed.join(F.broadcast(ends), ["_topic", "_partition"]).where("_offset <= _last")
        return within.select(speed.columns)

    @property
    def _of_uncertified_days(self) -> DataFrame | None:
        """Valid records of uncertified neighbouring days; None where copies of a key lie on one day."""
        near = around(self.span.days, self.pipeline.horizon)
        uncertified_days = [day for day in near if day not in self.certified]
        return self.records.where(VALID).where(on_days(uncertified_days)) if uncertified_days else None

    @property
    def _quarantine(self) -> DataFrame:
        """The rows of the quarantine ingested since the first record; files of older ones are not read."""
        spark, table = self.pipeline.spark, self.pipeline.table("quarantine")
        if not exists(spark, table):
            return small_frame(spark, [], shape(QUARANTINE))
        return read_small(spark, table).where(F.col("_ingested_at") >= F.lit(self.pieces.since))


def _with_known(
    offset_ranges: list[PartitionOffsets], bronze: DataFrame, source: PipelineConfig
) -> list[PartitionOffsets]:
    """Return the offsets, with how many of a source's are missing and known to be lost."""
    topic = source.kafka.source_topic
    within = {
        each.partition: range(each.first, each.last + 1) for each in offset_ranges if each.topic == topic
    }
    missing = known_missing(bronze.where(F.col("_topic") == topic), source.audit.known_gaps, within)
    return [
        replace(offsets, known=missing.get(offsets.partition, 0)) if offsets.topic == topic else offsets
        for offsets in offset_ranges
    ]


def _counted(offset_ranges: list[PartitionOffsets], bronze: DataFrame) -> list[PartitionOffsets]:
    """Return the offsets, with the number of distinct ones counted in bronze where the index lacks it."""
    unsure = [(offsets.topic, offsets.partition) for offsets in offset_ranges if offsets.distinct is None]
    if not unsure:
        return offset_ranges
    counts = recount.distinct_offsets(bronze, unsure)
    return [
        replace(offsets, distinct=counts[offsets.topic, offsets.partition])
        if offsets.distinct is None
        else offsets
        for offsets in offset_ranges
    ]


def span_of(pipeline: Pipeline, days: Sequence[date], first_complete: date | None) -> Span:
    """Return days, and the days around them of which all records are looked at.

    Args:
        pipeline: The pipeline.
        days: The days, sorted.
        first_complete: The first complete day, or None if bronze never lost records.
    """
    horizon = pipeline.horizon
    first = first_complete or date.min
    wide = around(days, horizon * pipeline.config.batch.chain_horizons)
    near = [day for day in wide if day >= first or day in days]
    # A copy on the first complete day would else hang for ever on days that are gone.
    gone = [day for day in around(near, horizon) if day < first and day not in near]
    return Span(days, near, horizon, gone)
