"""Seal a day: make sure that bronze has all that was sent until the day's end, before it is rebuilt."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from zoneinfo import ZoneInfo

from pipelines.config.model import PipelineConfig
from pipelines.delta.retention_cut import first_kept_of_source
from pipelines.delta.tables import version
from pipelines.kafka.ingest_state import SparkIngestState
from pipelines.kafka.topics import find_topic, require_known_clusters, require_same_topic
from pipelines.ledger.bronze_index import BronzeIndex
from pipelines.ledger.bronze_indexer import index_bronze
from pipelines.ledger.leases import Lease
from pipelines.nightly.seal_terms import require_begun, wait_until_sealed
from pipelines.runtime.system_clock import SystemClock
from pipelines.spark.pipeline import Pipeline


def seal(pipeline: Pipeline, last: date, lease: Lease) -> BronzeIndex:
    """Wait, for as long as `batch.seal_wait` says, until bronze has all of a day and of those before it.

    Of each partition, bronze must have all records that Kafka had at some time after the day's end plus
    `batch.seal_grace`: at the start of this run, or at the last micro-batch of ingest. A record with a later
    `LogAppendTime` also proves it. Timestamps of producers do not, nor does the checkpoint of ingest.
    Records that producers send later are late.

    With several clusters, each that is not retired must meet this. One that does not answer blocks the seal.

    Args:
        pipeline: The pipeline.
        last: The last of the days that are to be rebuilt.
        lease: The pipeline's lease.

    Returns:
        The index of the bronze that was sealed.

    Raises:
        SourceError: Bronze lacks something, or knows a cluster that is not configured; the message says what.
        ConfigError: The cluster has no such topic; or `audit.known_gaps` names offsets that are to come.
        InfrastructureError: The cluster does not answer.
    """
    require_known_clusters(pipeline)
    return wait_until_sealed(_SparkSealLake(pipeline, lease), last)


@dataclass(frozen=True)
class _SparkSealLake(SystemClock):
    """A lake, see `pipelines.nightly.seal_terms.SealLake`."""

    pipeline: Pipeline
    lease: Lease

    @property
    def config(self) -> PipelineConfig:
        return self.pipeline.config

    @property
    def zone(self) -> ZoneInfo:
        return self.pipeline.contract.zone

    def ingests(self) -> list[SparkIngestState]:
        return [_ingest(source) for source in self.pipeline.sources() if not source.config.kafka.retired]

    def first_kept(self, source: PipelineConfig) -> Mapping[int, int] | None:
        return first_kept_of_source(replace(self.pipeline, config=source))

    def index(self) -> BronzeIndex:
        bronze = version(self.pipeline.spark, self.pipeline.table("bronze"))
        return index_bronze(self.pipeline, bronze, self.lease)


def _ingest(source: Pipeline) -> SparkIngestState:
    topic = find_topic(source.spark, source.config.kafka)
    ingest = SparkIngestState(source, topic)
    require_begun(ingest)
    require_same_topic(source, topic)
    return ingest
