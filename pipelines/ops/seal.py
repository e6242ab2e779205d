"""Seals a day: bronze must have all that was sent until the day's end, before the day may be rebuilt."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

from pyspark.sql import SparkSession
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from pipelines.config import PipelineConfig
from pipelines.contract import DataContract
from pipelines.errors import SourceError
from pipelines.ops.bronze_index import BronzeIndex
from pipelines.ops.cluster import find_topic, require_same_topic
from pipelines.ops.indexing import index_bronze
from pipelines.ops.ingest_position import ends_since
from pipelines.ops.query_files import first_offsets
from pipelines.ops.topic_offsets import readable_offsets, with_records
from pipelines.quality.broker_offsets import Kept
from pipelines.quality.offset_ledger import PartitionOffsets, partition_offsets
from pipelines.sinks.tables import version

_LOOK_EVERY_S: Final = 2.0
_SHOWN: Final = 5


class _NotYet(SourceError):
    """Bronze has not come far enough; it may in a moment."""


def seal(spark: SparkSession, config: PipelineConfig, contract: DataContract, last: date) -> BronzeIndex:
    """Waits, for as long as `batch.seal_wait` says, until bronze has all of a day and of those before it.

    Of each Kafka partition bronze must have all records that the cluster had at some time after the day's end
    and `batch.seal_grace`: when this began, or when ingest planned its last micro-batch; or one that the
    broker took after that (`LogAppendTime`; a producer's clock proves nothing). That ingest has read records
    does not count: Kafka is asked whether there are any between the last one in bronze and that end. What
    producers send after it is late.

    Args:
        spark: the session.
        config: the pipeline's configuration.
        contract: names the day's zone.
        last: the last of the days that are to be rebuilt.

    Returns:
        The index of the bronze that was sealed. The caller must hold the pipeline's lease.

    Raises:
        SourceError: bronze lacks something; the message says what.
        ConfigError: the cluster has no such topic.
        InfrastructureError: the cluster does not answer.
    """
    end = _end_of(last, contract) + config.batch.seal_grace
    if datetime.now(UTC) < end:
        raise SourceError(
            f"{last} can be sealed at {end:%Y-%m-%d %H:%M:%S} UTC, when it has been over for"
            " batch.seal_grace; start again then"
        )
    topic = _Topic(spark, config) if config.batch.seal_by == "kafka" else None
    for attempt in Retrying(
        retry=retry_if_exception_type(_NotYet),
        stop=stop_after_delay(config.batch.seal_wait),
        wait=wait_fixed(_LOOK_EVERY_S),
        reraise=True,
    ):
        with attempt:
            bronze = version(spark, config.table("bronze"))
            index = index_bronze(spark, config, contract, bronze, keep=True)
            found = partition_offsets(index.offsets())
            _require_records(config, contract, found, last)
            if topic is not None:
                _require_all(config, last, topic.lacking(found, end), topic.kept)
    return index


class _Topic:
    """The topic as it was when a run began: what it had then does not change any more."""

    def __init__(self, spark: SparkSession, config: PipelineConfig) -> None:
        self._spark, self._config = spark, config
        topic = find_topic(spark, config.kafka)
        require_same_topic(spark, config, topic)
        self.kept = readable_offsets(spark, config.kafka, topic)
        began_late = config.kafka.starting_offsets == "latest"
        began = first_offsets(spark, config.checkpoint("ingest")) if began_late else {}
        self._began = began.get(config.kafka.topic, {})
        # By partition and range of offsets, whether there are records.
        self._asked: dict[tuple[int, range], bool] = {}

    def lacking(self, found: Sequence[PartitionOffsets], end: datetime) -> dict[int, int]:
        """The partitions with records that bronze lacks, and from which offset on.

        Raises:
            SourceError: offsets are gone from Kafka, and bronze has not got them.
        """
        of_topic = [offsets for offsets in found if offsets.topic == self._config.kafka.topic]
        seen = ends_since(self._spark, self._config, end)
        kept = {n: Kept(k.earliest, min(k.end, seen.get(n, k.end))) for n, k in self.kept.items()}
        above = above_bronze(of_topic, kept, end, self._began)
        gone = {number: start for number, start in above.items() if start < self.kept[number].earliest}
        if gone and self._config.audit.offset_gaps == "fail":
            raise SourceError(_gone(self._config, gone, self.kept))
        ranges = {
            number: range(max(start, kept[number].earliest), kept[number].end)
            for number, start in above.items()
        }
        unknown = {n: offsets for n, offsets in ranges.items() if offsets and (n, offsets) not in self._asked}
        filled = with_records(self._spark, self._config.kafka, unknown)
        self._asked |= {(number, offsets): number in filled for number, offsets in unknown.items()}
        return {number: start for number, start in above.items() if self._asked.get((number, ranges[number]))}


def above_bronze(
    found: Sequence[PartitionOffsets], kept: Mapping[int, Kept], end: datetime, began: Mapping[int, int]
) -> dict[int, int]:
    """The partitions of which Kafka has offsets behind those of bronze, and where these begin.

    Args:
        found: what bronze holds of each partition.
        kept: what Kafka has of each partition.
        end: a partition with a record that the broker took at this moment or later is not among them.
        began: where ingest has begun, if not with the first record that Kafka has.
    """
    by_partition = {offsets.partition: offsets for offsets in found}
    above: dict[int, int] = {}
    for partition, there in sorted(kept.items()):
        here = by_partition.get(partition)
        start = here.last + 1 if here else max(began.get(partition, 0), there.earliest)
        if start < there.end and not (here and here.appended and here.appended >= end):
            above[partition] = start
    return above


def _end_of(day: date, contract: DataContract) -> datetime:
    return datetime.combine(day + timedelta(days=1), time(), contract.zone).astimezone(UTC)


def _require_records(
    config: PipelineConfig,
    contract: DataContract,
    found: Sequence[PartitionOffsets],
    last: date,
) -> None:
    bronze = config.table("bronze")
    if not found:
        raise _NotYet(f"{bronze}: empty; run ingest_stream first")
    newest = max(offsets.sent for offsets in found)
    if config.batch.seal_by == "bronze" and newest.astimezone(contract.zone).date() < last:
        raise _NotYet(
            f"{bronze}: nothing of {last} yet: its newest record was sent at {newest:%Y-%m-%d %H:%M} UTC;"
            " run ingest_stream until it has caught up"
        )


def _require_all(
    config: PipelineConfig, last: date, lacking: Mapping[int, int], kept: Mapping[int, Kept]
) -> None:
    if not lacking:
        return
    shown = [
        f"{config.kafka.topic}-{number} is in bronze up to offset {start:,}, needed {kept[number].end:,}"
        for number, start in list(lacking.items())[:_SHOWN]
    ]
    more = [f"and {len(lacking) - _SHOWN} more partitions"] if len(lacking) > _SHOWN else []
    raise _NotYet(
        f"{config.table('bronze')}: {last} cannot be sealed yet: {'; '.join([*shown, *more])};"
        " run ingest_stream until it has caught up; if it has, oncelake reconcile says what bronze lacks"
    )


def _gone(config: PipelineConfig, gone: Mapping[int, int], kept: Mapping[int, Kept]) -> str:
    shown = [
        f"{config.kafka.topic}-{number}: offsets {start:,} to {kept[number].earliest - 1:,}"
        for number, start in list(gone.items())[:_SHOWN]
    ]
    return (
        f"{config.table('bronze')}: Kafka has deleted offsets that bronze has not got: {'; '.join(shown)}."
        " See docs/runbook.md, 'Offsets are gone'; where gaps are lawful set audit.offset_gaps: warn"
    )
