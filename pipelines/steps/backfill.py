"""Backfill: what Kafka has and bronze lacks is appended to bronze, while the streams go on."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import DataFrame

from pipelines.config.clusters import require_not_retired
from pipelines.config.model import PipelineConfig
from pipelines.delta.clocks import require_same_clock
from pipelines.delta.reader_position_check import require_not_read_ahead
from pipelines.delta.record_tables import require_table
from pipelines.errors import SourceError
from pipelines.kafka.backfill_lake import SparkBackfillLake
from pipelines.kafka.backfill_plan import BackfillSpan
from pipelines.kafka.backfill_run import Backfill, Tell, copy_missing
from pipelines.kafka.bronze_offsets import bronze_of_topic
from pipelines.kafka.missing_offsets import MissingRange, within_ranges
from pipelines.kafka.source import envelopes_between
from pipelines.kafka.topics import find_topic, require_known_clusters, require_same_topic
from pipelines.ledger.forgotten_places import emptied_on_arrival, places_where
from pipelines.ledger.leases import Lease, backfill_lease
from pipelines.message_texts import first_items
from pipelines.nightly.seal_terms import require_begun
from pipelines.spark.pipeline import Pipeline

_SHOWN: Final = 5


class OffsetsGone(SourceError):
    """Kafka no longer has offsets that were asked for, and that bronze lacks.

    Attributes:
        done: What was read of the others.
    """

    def __init__(self, message: str, done: Backfill) -> None:
        super().__init__(message)
        self.done = done


def backfill(
    pipeline: Pipeline, run_id: str, asked: BackfillSpan, tell: Tell, *, dry_run: bool = False
) -> Backfill:
    """Append to bronze what it lacks of some offsets, in chunks, each once.

    What bronze lacks is found in bronze itself, so a run that died is completed by another one. Ingest may be
    at work: offsets that it has not read yet are left to it. Of several clusters one is read.

    Args:
        pipeline: The pipeline, with all of its clusters.
        run_id: The holder of the lease of backfills meanwhile.
        asked: Which records.
        tell: Is told how far the run is, at its beginning and after each chunk.
        dry_run: Plan, and change nothing.

    Raises:
        ConfigError: There is no such topic or partition; or bronze would get a gap before its first record,
            or behind its last one; or there is no such cluster, or it is retired.
        OffsetsGone: Kafka no longer has some of what was asked for; all else is in bronze.
        SourceError: There is no bronze, or the topic is not the one that it was filled from, or has other
            records under its offsets; or bronze was restored and its reader was not; or bronze was filled
            from a cluster that is not configured, or ingest has not begun with the one that is asked for.
        InfrastructureError: Another backfill is at work, or has taken over; or ingest's commits left no room
            for one; or the cluster does not answer; or the clock is ahead.
    """
    config = source_of(pipeline.config, asked.cluster)
    require_table(pipeline, "bronze")
    require_known_clusters(pipeline)
    require_not_read_ahead(pipeline, "bronze")
    of_cluster = replace(pipeline, config=config)
    source = _Source(of_cluster, find_topic(pipeline.spark, config.backfill_kafka), pipeline)
    require_begun(source)
    hold: AbstractContextManager[Lease | None] = nullcontext() if dry_run else _holding(pipeline, run_id)
    done = copy_missing(source, hold, asked, tell)
    if done.gone:
        rest = "would be read" if dry_run else "is in bronze"
        raise OffsetsGone(_gone(pipeline, done, rest), done)
    return done


def source_of(config: PipelineConfig, cluster: str | None) -> PipelineConfig:
    """Return the configuration of the source that a backfill reads.

    Args:
        config: That of the pipeline.
        cluster: The cluster; None for the first.

    Raises:
        ConfigError: There is no such cluster, or it is retired.
    """
    found = config.sources()[0] if cluster is None else config.source(cluster)
    require_not_retired(found.kafka)
    return found


@contextmanager
def _holding(pipeline: Pipeline, run_id: str) -> Iterator[Lease]:
    """Hold the lease of backfills, on a machine whose clock is not ahead."""
    began = datetime.now(UTC)
    with backfill_lease(pipeline, run_id, "backfill") as lease:
        # To take the lease was a commit to bronze.
        require_same_clock(pipeline, pipeline.table("bronze"), began)
        yield lease


@dataclass(frozen=True)
class _Source(SparkBackfillLake):
    """A lake and its topic, see `pipelines.kafka.backfill_run.BackfillSource`.

    Attributes:
        forgotten: Places of records that were forgotten, if there are any: one frame.
    """

    forgotten: list[DataFrame] = field(default_factory=list)

    def prepare(self, ranges: Mapping[int, Sequence[MissingRange]]) -> None:
        every = within_ranges(
            (number, each.offsets) for number, of_partition in ranges.items() for each in of_partition
        )
        places = places_where(self.pipeline, every)
        self.forgotten.extend([] if places is None else [places])

    @contextmanager
    def lacking(self, chunk: Mapping[int, MissingRange]) -> Iterator[DataFrame]:
        forgotten = self.forgotten[0] if self.forgotten else None
        # They may be written several times.
        kept = emptied_on_arrival(self._records(chunk), forgotten).persist()
        try:
            yield kept
        finally:
            kept.unpersist()

    def count(self, records: DataFrame) -> int:
        return records.count()

    def require_same_topic(self) -> None:
        # The ingest of a cluster that is added meanwhile would not be kept apart from.
        require_known_clusters(self.whole)
        require_same_topic(self.pipeline, find_topic(self.pipeline.spark, self.config.backfill_kafka))

    def require_not_read_ahead(self) -> None:
        require_not_read_ahead(self.pipeline, "bronze")

    def _records(self, chunk: Mapping[int, MissingRange]) -> DataFrame:
        """Return the records of a chunk that bronze does not have."""
        ranges = {number: each.offsets for number, each in chunk.items()}
        records = envelopes_between(self.pipeline.spark, self.config.backfill_kafka, ranges)
        compared = [(number, each.offsets) for number, each in chunk.items() if each.is_partial]
        if not compared:
            return records
        held = bronze_of_topic(self.pipeline).where(within_ranges(compared))
        held = held.select("_partition", "_offset")
        return records.join(held, ["_partition", "_offset"], "left_anti")


def _gone(pipeline: Pipeline, done: Backfill, rest: str) -> str:
    ranges = [
        f"{done.topic}-{number} @ {offsets.start}..{offsets.stop - 1}"
        for number, of_partition in sorted(done.gone.items())
        for offsets in of_partition
    ]
    return (
        f"{pipeline.table('bronze')} lacks offsets that were asked for and that Kafka no longer has,"
        f" within {first_items(ranges, _SHOWN, 'ranges')}. What Kafka still has {rest}."
        " See docs/runbook.md, 'Offsets are gone'"
    )
