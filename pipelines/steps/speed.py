"""Speed: bronze, decoded and deduplicated in real time; what breaks the contract goes to quarantine."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from pipelines.config.model import QuarantineConfig
from pipelines.config.streams import STREAMS
from pipelines.delta.event_tables import adopt_clock, ensure_speed
from pipelines.delta.idempotent_writer import DraftedRows
from pipelines.delta.reader_position_check import require_not_read_ahead
from pipelines.delta.record_tables import ensure_bronze, ensure_quarantine, first_try
from pipelines.delta.speed_writer import SpeedWriter
from pipelines.delta.stream_check import check_speed, note_tables, reset_command
from pipelines.delta.stream_position import files_before_older, hold_back, start_version
from pipelines.errors import SourceError
from pipelines.fault_points import Point, reach
from pipelines.kafka.dead_letters import send_dead_letters
from pipelines.kafka.topics import find_topic
from pipelines.ledger.forgotten import not_emptied
from pipelines.ledger.forgotten_places import require_forgotten
from pipelines.ledger.schema_lookup import learn_named, most_named
from pipelines.ledger.writer_schemas import known_writers
from pipelines.records.broken_records import SetAside
from pipelines.records.decode import BAD, broken_of, decode, events_of, routed
from pipelines.records.dedup import first_within_watermark
from pipelines.records.reasons import REASONS
from pipelines.records.watermark import HELD_BACK
from pipelines.registry.wire_format import Writers
from pipelines.spark.checkpoints import query_files
from pipelines.spark.failures import StateLost
from pipelines.spark.late_records import late_share
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.state_store import use_state_store
from pipelines.spark.stream_metrics import StreamMetric
from pipelines.spark.streams import Totals, Trigger, observed, run_query
from pipelines.spark.write_parts import part_of_writing

_REMEMBERED: Final = 1_000
_DECODED: Final = "decoded"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SpeedCounts:
    """What `speed` counted: `records` = `rows` + `duplicates` + `late` + `quarantined`.

    Attributes:
        records: Records of bronze that were read.
        rows: Rows that entered the speed layer.
        duplicates: Copies that the deduplication left out.
        late: Records behind the watermark.
        quarantined: Records that break the contract.
        batches: Micro-batches with records.
    """

    records: int
    rows: int
    duplicates: int
    late: int
    quarantined: int
    batches: int


@dataclass(frozen=True)
class SpeedResult:
    """What `speed` did.

    Attributes:
        counts: What became of the records.
        watermark: The last watermark; None if there was no micro-batch.
        warnings: Texts, if many records were late, or if Spark's own state store had to be used.
    """

    counts: SpeedCounts
    watermark: datetime | None
    warnings: tuple[str, ...]


def speed(pipeline: Pipeline, *, once: bool) -> SpeedResult:
    """Keep the speed layer and the quarantine up to date until asked to stop, or once.

    One query decodes each record once and writes both tables, each micro-batch exactly once.

    Args:
        pipeline: The pipeline.
        once: Take what bronze holds now and return.

    Raises:
        ConfigError: The speed layer was made with another dedup key, event time or watermark, or there is no
            topic for dead letters.
        SourceError: A table is not the one that the checkpoint knows, or one of the two was restored from a
            backup; bronze holds records that were forgotten; or too many records are broken.
        InfrastructureError: The query failed.
    """
    spark, config = pipeline.spark, pipeline.config
    if config.quarantine.dead_letter_topic:
        topic, setting = config.quarantine.dead_letter_topic, "quarantine.dead_letter_topic"
        find_topic(spark, config.kafka, topic, setting)
    check = check_speed(pipeline)
    require_not_read_ahead(pipeline, *STREAMS["speed"].tables)
    ensure_bronze(pipeline)
    require_forgotten(pipeline, "speed", "quarantine")
    ensure_speed(pipeline)
    adopt_clock(pipeline)
    ensure_quarantine(pipeline)
    note_tables(pipeline, "speed", check.files)
    substituted = use_state_store(spark, config)
    job = _Job(pipeline, known_writers(pipeline), SpeedWriter.of(config, check))
    with late_share(spark, "speed", config.speed) as late:
        trigger = Trigger(once, config.speed.trigger_interval)
        totals = _run(job, trigger)
    rows, quarantined = job.writer.written(query_files(spark, pipeline.checkpoint("speed")).next_batch)
    totals.counts.update(rows=rows, quarantined=quarantined)
    return SpeedResult(_counts(totals), totals.watermark, (*substituted, *late.warnings))


def _run(job: "_Job", trigger: Trigger) -> Totals:
    """Run the query.

    Raises:
        SourceError: As `run_query`; if the state is lost, the message has the command that makes it anew.
    """
    try:
        return run_query(job.pipeline, "speed", job, trigger, _is_new_plan)
    except StateLost as lost:
        anew = reset_command(job.pipeline.config, "speed")
        raise SourceError(
            f"{lost}. Without a backup, stop the stream and run: {anew} (speed layer and quarantine are then"
            " rebuilt from bronze). See docs/runbook.md, 'The state of a stream is damaged'"
        ) from lost.__cause__


class _NewPlan(Exception):
    """A micro-batch needs what its plan did not know and the next one will."""


def _is_new_plan(failure: BaseException) -> bool:
    return isinstance(failure, _NewPlan)


@dataclass
class _Job:
    """What the query does, and what it has learned meanwhile.

    Attributes:
        pipeline: The pipeline.
        writers: The schemas that the next plan knows; replaced, never changed.
        writer: Writes the two tables.
        unknown: Ids that the registry does not know either; the last thousand.
        in_vain: The micro-batch for which the registry was asked enough.
        began_with: The version of bronze whose order of files the plan knows, while the query reads it; None
            once it has.
        keeps: Whether micro-batches are kept while they are written, since one had more broken records than
            the driver takes.
        quarantined: Broken records by reason, of this run; replaced, never changed.
    """

    pipeline: Pipeline
    writers: Writers
    writer: SpeedWriter
    unknown: dict[str, None] = field(default_factory=dict)
    in_vain: int | None = None
    began_with: int | None = None
    keeps: bool = False
    quarantined: Mapping[str, int] = field(default_factory=dict)

    def plan(self) -> DataFrame:
        """Return events and broken records, decoded with all schemas that are known by now."""
        config, contract = self.pipeline.config, self.pipeline.contract
        bronze, columns = self._in_order(bronze_stream(self.pipeline))
        decoded = decode(bronze, contract, config.decode.max_future, self.writers).observe(
            _DECODED, F.count(F.lit(1)).alias("records")
        )
        routes = routed(decoded, contract, *columns)
        return first_within_watermark(routes, contract, config.speed.watermark_delay)

    def _in_order(self, bronze: DataFrame) -> tuple[DataFrame, list[str]]:
        """Return the stream, and which column says what may not move its watermark, if something may not."""
        self.began_with = start_version(self.pipeline)
        if self.began_with is None:
            return bronze, []
        files = files_before_older(self.pipeline.spark, self.pipeline.table("bronze"), self.began_with)
        return (bronze, []) if files is None else (hold_back(bronze, files), [HELD_BACK])

    def write(self, rows: DataFrame, batch: int) -> None:
        """Write a micro-batch to its two tables, after a look at how much of it is broken."""
        self._require_order(batch)
        try:
            if self.keeps:
                # Its second reading would run the deduplication again.
                rows.persist(StorageLevel.MEMORY_AND_DISK)
            tasks = self.pipeline.config.speed.state_partitions
            aside = SetAside(self.pipeline.spark, rows.schema, tasks)
            events = events_of(rows.where(aside.take_out_unless_event()), self.pipeline.contract)
            draft = self.writer.draft(events, batch)
            broken = aside.count()
            if broken:
                try:
                    with part_of_writing("quarantine"):
                        sent = aside.rows()
                        bad = self._broken(rows) if sent is None else sent
                        self._quarantine(bad, batch, aside.reasons(), draft)
                except Exception:
                    if draft:
                        draft.transaction.discard()
                    raise
            reach(Point.QUARANTINE_WRITTEN)
            if draft:
                self.writer.add(draft, batch)
            if broken:
                self.quarantined = Counter(self.quarantined) + Counter(aside.reasons())
        finally:
            if self.keeps:
                rows.unpersist()

    def metrics(self) -> Iterator[StreamMetric]:
        """Yield how many records went to quarantine."""
        yield quarantined_metric(self.quarantined)

    def _broken(self, routes: DataFrame) -> DataFrame:
        """Return the broken records of a micro-batch that has more of them than the driver takes."""
        if not self.keeps:
            self.keeps = True
            raise _NewPlan("the micro-batch itself, kept")
        return routes.where(F.col(BAD).isNotNull())

    def _quarantine(
        self, rows: DataFrame, batch: int, reasons: Mapping[str, int], draft: DraftedRows | None
    ) -> None:
        """Write the broken records of a micro-batch, unless there are too many."""
        config, broken = self.pipeline.config, sum(reasons.values())
        # What an earlier try has written was not too many.
        if draft:
            came, limit = observed(self.pipeline.spark, _DECODED), config.quarantine
            named = reasons.get("unknown_schema", 0)
            # What the others alone are too many for costs the registry nothing.
            if named and not too_many(broken - named, came, limit):
                self._learn(rows.where(F.col(f"{BAD}.reason") == "unknown_schema"), batch)
            if too_many(broken, came, limit):
                raise _refusal(broken, came, limit)
        bad = broken_of(rows, self.pipeline.contract)
        self.writer.put_aside(first_try(bad), batch, broken)
        if config.quarantine.dead_letter_topic:
            send_dead_letters(bad, config.kafka, config.quarantine.dead_letter_topic)

    def _learn(self, unknown: DataFrame, batch: int) -> None:
        if self.in_vain == batch:
            # Done again with what it has learned, it would ask for the next ones.
            return
        ids = unknown.select(F.col(f"{BAD}.found").alias("id"))
        _, strange = most_named(ids, self.unknown)
        named = learn_named(self.pipeline, strange)
        self.unknown = dict.fromkeys([*self.unknown, *named.in_vain][-_REMEMBERED:])
        if named.others:
            self.in_vain = batch
        if named.schemas:
            self.writers = replace(self.writers, schemas={**self.writers.schemas, **named.schemas})
            raise _NewPlan(f"schemas {', '.join(named.schemas)}")

    def _require_order(self, batch: int) -> None:
        """See to it that the plan was made for the version that the query has begun with.

        Bronze may have been compacted between the two.
        """
        if self.began_with is None:
            return
        reads = start_version(self.pipeline, batch)
        if reads is not None and reads != self.began_with:
            raise _NewPlan(f"version {reads} of bronze")
        self.began_with = reads


def quarantined_metric(counts: Mapping[str, int]) -> StreamMetric:
    """Return counts of broken records by reason as a metric; reasons that did not occur are 0."""
    by_reason: dict[str, float] = {reason: float(counts.get(reason, 0)) for reason in REASONS}
    return StreamMetric(
        "quarantined", "Records that went to quarantine, by reason.", "counter", by_reason, "reason"
    )


def bronze_stream(pipeline: Pipeline) -> DataFrame:
    """Return bronze as a stream of what is appended to it, from where the query begins."""
    # A commit that removes old records from bronze, or empties some, has nothing new.
    reader = pipeline.spark.readStream.format("delta").option("skipChangeCommits", True)
    if pipeline.config.speed.max_bytes_per_trigger:
        reader = reader.option("maxBytesPerTrigger", pipeline.config.speed.max_bytes_per_trigger)
    # A new query begins with what bronze holds now, emptied records among it.
    return not_emptied(reader.load(pipeline.table("bronze")))


def too_many(broken: int, came: int, limit: QuarantineConfig) -> bool:
    """Return whether so many of a micro-batch's records are broken that nothing of it may be written.

    Args:
        broken: Its broken records.
        came: All its records, copies and late ones among them: they are no sign of a producer that changed.
        limit: What is too many.
    """
    return broken >= limit.min_records and broken > limit.max_share * came


def _refusal(broken: int, came: int, limit: QuarantineConfig) -> SourceError:
    return SourceError(
        f"{broken:,} of {came:,} records of a micro-batch break the contract, which is more than"
        f" quarantine.max_share allows ({limit.max_share:g}); nothing of it was written. If producers have"
        " changed, fix them or the contract; to let such records go to quarantine:"
        " --set quarantine.max_share=1. See docs/runbook.md, 'Too many broken records'"
    )


def _counts(totals: Totals) -> SpeedCounts:
    counts = SpeedCounts(
        records=totals.counts["records"],
        rows=totals.counts["rows"],
        duplicates=totals.counts["duplicates"],
        late=totals.counts["late"],
        quarantined=totals.counts["quarantined"],
        batches=totals.batches,
    )
    unaccounted = counts.records - (counts.rows + counts.duplicates + counts.late + counts.quarantined)
    if unaccounted:
        _log.warning(
            "%d records are in none of the counts; the audit shows whether rows are lost", unaccounted
        )
    return counts
