"""Seal a day: make sure that bronze has all that was sent until the day's end, before it is rebuilt."""

import time
from dataclasses import dataclass
from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

from pipelines.config.model import PipelineConfig
from pipelines.delta.tables import version
from pipelines.kafka.ingest_state import LakeIngest
from pipelines.kafka.topics import find_topic, require_same_topic
from pipelines.ledger.bronze_index import BronzeIndex
from pipelines.ledger.bronze_indexer import index_bronze
from pipelines.ledger.leases import Lease
from pipelines.ledger.retention_marks import first_whole_day
from pipelines.nightly.seal_terms import sealed
from pipelines.spark.pipeline import Pipeline


def seal(pipeline: Pipeline, last: date, lease: Lease) -> BronzeIndex:
    """Wait, for as long as `batch.seal_wait` says, until bronze has all of a day and of those before it.

    Of each Kafka partition bronze must have all records that the cluster had at some time after the day's end
    and `batch.seal_grace`: when this began, or when ingest planned its last micro-batch; or one that the
    broker took after that (`LogAppendTime`; a producer's clock proves nothing). That ingest has read records
    does not count: Kafka is asked whether there are any between the last one in bronze and that end. What
    producers send after it is late.

    Args:
        pipeline: The pipeline.
        last: the last of the days that are to be rebuilt.
        lease: the pipeline's lease.

    Returns:
        The index of the bronze that was sealed.

    Raises:
        SourceError: bronze lacks something; the message says what.
        ConfigError: the cluster has no such topic; or `audit.known_gaps` names offsets that are to come.
        InfrastructureError: the cluster does not answer.
    """
    return sealed(_Lake(pipeline, lease), last)


@dataclass(frozen=True)
class _Lake:
    """A lake, see `pipelines.nightly.seal_terms.SealLake`."""

    pipeline: Pipeline
    lease: Lease

    @property
    def config(self) -> PipelineConfig:
        return self.pipeline.config

    @property
    def zone(self) -> ZoneInfo:
        return self.pipeline.contract.zone

    def now(self) -> datetime:
        return datetime.now(UTC)

    def elapsed_s(self) -> float:
        return time.monotonic()

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def ingest(self) -> LakeIngest:
        topic = find_topic(self.pipeline.spark, self.config.kafka)
        require_same_topic(self.pipeline, topic)
        return LakeIngest(self.pipeline, topic)

    def first_whole_day(self) -> date | None:
        return first_whole_day(self.pipeline)

    def index(self) -> BronzeIndex:
        bronze = version(self.pipeline.spark, self.pipeline.table("bronze"))
        return index_bronze(self.pipeline, bronze, self.lease)
