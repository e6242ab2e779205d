"""Seal a day: make sure that bronze has all that was sent until the day's end, before it is rebuilt."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from pipelines.config.commands import command
from pipelines.config.model import PipelineConfig
from pipelines.contracts.contract import DataContract
from pipelines.delta.tables import version
from pipelines.errors import ConfigError, SourceError
from pipelines.kafka.ingest_position import ends_since
from pipelines.kafka.known_gaps import is_known_gap
from pipelines.kafka.same_log import require_same_log
from pipelines.kafka.topic_offsets import BrokerOffsets, readable_offsets, records_within
from pipelines.kafka.topics import find_topic, require_known_clusters, require_same_topic
from pipelines.ledger.bronze_index import BronzeIndex
from pipelines.ledger.bronze_indexer import index_bronze
from pipelines.ledger.leases import Lease
from pipelines.ledger.offset_ranges import PartitionOffsets
from pipelines.spark.checkpoints import first_offsets, has_begun, query_files
from pipelines.spark.pipeline import Pipeline

_LOOK_EVERY_S: Final = 2.0
_SHOWN: Final = 5


class _NotYet(SourceError):
    """Bronze has not come far enough; it may in a moment."""


def seal(pipeline: Pipeline, last: date, lease: Lease) -> BronzeIndex:
    """Wait, for as long as `batch.seal_wait` says, until bronze has all of a day and of those before it.

    Of each Kafka partition bronze must have all records that the cluster had at some time after the day's end
    and `batch.seal_grace`: when this began, or when ingest planned its last micro-batch; or one that the
    broker took after that (`LogAppendTime`; a producer's clock proves nothing). That ingest has read records
    does not count: Kafka is asked whether there are any between the last one in bronze and that end. What
    producers send after it is late.

    Of several clusters that holds for each that is not retired: a day of which one of them may have more is
    not sealed, and neither is any while one does not answer.

    Args:
        pipeline: The pipeline.
        last: the last of the days that are to be rebuilt.
        lease: the pipeline's lease.

    Returns:
        The index of the bronze that was sealed.

    Raises:
        SourceError: bronze lacks something, or knows a cluster that is not configured; the message says what.
        ConfigError: the cluster has no such topic; or `audit.known_gaps` names offsets that are to come.
        InfrastructureError: the cluster does not answer.
    """
    config = pipeline.config
    end = _end_of(last, pipeline.contract) + config.batch.seal_grace
    if datetime.now(UTC) < end:
        raise SourceError(
            f"{last} can be sealed at {end:%Y-%m-%d %H:%M:%S} UTC, when it has been over for"
            " batch.seal_grace; start again then"
        )
    topics = _topics(pipeline)
    for attempt in Retrying(
        retry=retry_if_exception_type(_NotYet),
        stop=stop_after_delay(config.batch.seal_wait),
        wait=wait_fixed(_LOOK_EVERY_S),
        reraise=True,
    ):
        with attempt:
            bronze = version(pipeline.spark, pipeline.table("bronze"))
            index = index_bronze(pipeline, bronze, lease)
            offset_ranges = index.offsets()
            _require_records(pipeline, offset_ranges, last)
            for topic in topics:
                require_none_lacking(topic.config, last, topic.lacking(offset_ranges, end))
    for topic in topics:
        topic.require_same_log(offset_ranges)
    return index


def _topics(pipeline: Pipeline) -> list["_Topic"]:
    """Return the topics that are asked: of each cluster that is not retired, if Kafka is asked at all."""
    require_known_clusters(pipeline)
    if pipeline.config.batch.seal_by != "kafka":
        return []
    return [_Topic(source) for source in pipeline.sources() if not source.config.kafka.retired]


class _Topic:
    """The topic of a cluster as it was when a run began: what it had then no longer changes."""

    def __init__(self, pipeline: Pipeline) -> None:
        spark, config = pipeline.spark, pipeline.config
        self._pipeline, self.config = pipeline, config
        self._require_begun()
        self._topic = topic = find_topic(spark, config.kafka)
        require_same_topic(pipeline, topic)
        self.broker_offsets = readable_offsets(spark, config.kafka, topic)
        ends = {number: broker.end for number, broker in self.broker_offsets.items()}
        require_known_gaps_past(config, ends, f"topic {config.kafka.source_topic}")
        began_late = config.kafka.starting_offsets == "latest"
        began = first_offsets(spark, pipeline.checkpoint("ingest")) if began_late else {}
        self._began = began.get(config.kafka.topic, {})
        # By partition and range of offsets, whether there are records.
        self._has_records: dict[tuple[int, range], bool] = {}

    def _require_begun(self) -> None:
        """Make sure that ingest has begun with the cluster, if it is one of several.

        Only then does bronze know its topic, and which days are incomplete since records had been deleted.

        Raises:
            SourceError: it has not.
        """
        spark, kafka = self._pipeline.spark, self.config.kafka
        files = query_files(spark, self._pipeline.checkpoint("ingest"))
        if kafka.has_others and not has_begun(spark, files):
            raise SourceError(
                f"{self._pipeline.table('bronze')}: nothing was read yet from {kafka.source_topic} of"
                f" {kafka.setting('bootstrap_servers')}; {_catch_up(self.config)}"
            )

    def require_same_log(self, offset_ranges: Sequence[PartitionOffsets]) -> None:
        """Make sure that Kafka has the records that bronze has, as far as their last ones show.

        Raises:
            SourceError: it ends before them, or has others there.
        """
        last = _last_offsets(self._pipeline.config, offset_ranges)
        require_same_log(self._pipeline, self._topic, last)

    def lacking(self, offset_ranges: Sequence[PartitionOffsets], end: datetime) -> dict[int, range]:
        """Return the partitions with records that bronze lacks, and the offsets among which these are.

        Raises:
            SourceError: offsets are gone from Kafka, and bronze does not have them.
        """
        of_topic = [offsets for offsets in offset_ranges if offsets.topic == self.config.kafka.source_topic]
        seen = ends_since(self._pipeline, end)
        seen_offsets = {
            number: BrokerOffsets(broker.earliest, min(broker.end, seen.get(number, broker.end)))
            for number, broker in self.broker_offsets.items()
        }
        above = above_bronze(of_topic, seen_offsets, end, self._began)
        audit = self._pipeline.config.audit
        # An empty range, where Kafka has deleted none of them, counts as known.
        gone = {
            number: offsets.start
            for number, offsets in above.items()
            if not is_known_gap(
                number, range(offsets.start, self.broker_offsets[number].earliest), audit.known_gaps
            )
        }
        if gone and audit.offset_gaps == "fail":
            raise SourceError(_gone(self._pipeline.config, gone, self.broker_offsets))
        readable = {
            number: range(max(offsets.start, seen_offsets[number].earliest), offsets.stop)
            for number, offsets in above.items()
        }
        unknown = {
            number: offsets
            for number, offsets in readable.items()
            if offsets and (number, offsets) not in self._has_records
        }
        counts = records_within(
            self._pipeline.spark, self._pipeline.config.kafka, unknown, one_is_enough=True
        )
        self._has_records |= {(number, offsets): number in counts for number, offsets in unknown.items()}
        return {
            number: offsets
            for number, offsets in above.items()
            if self._has_records.get((number, readable[number]))
        }


def require_known_gaps_past(config: PipelineConfig, ends: Mapping[int, int], source: str) -> None:
    """Make sure that `audit.known_gaps` accepts nothing as lost that is still to come.

    Args:
        config: the pipeline's configuration.
        ends: by partition, the offset before which all are past.
        source: who says so, for the message: the topic, or bronze where Kafka is not asked.

    Raises:
        ConfigError: it names such offsets, or a partition that is not there.
    """
    for gap in config.audit.known_gaps:
        number, gap_text = gap.partition, f"found partition {gap.partition}, {gap.first}..{gap.last}"
        if number not in ends:
            raise ConfigError(f"audit.known_gaps: {gap_text}; {source} has no partition {number}")
        if gap.last >= ends[number]:
            raise ConfigError(
                f"audit.known_gaps: {gap_text}; expected offsets less than {ends[number]}, where {source}"
                " ends: list only what was lost"
            )


def _last_offsets(config: PipelineConfig, offset_ranges: Sequence[PartitionOffsets]) -> dict[int, int]:
    return {each.partition: each.last for each in offset_ranges if each.topic == config.kafka.source_topic}


def above_bronze(
    offset_ranges: Sequence[PartitionOffsets],
    broker_offsets: Mapping[int, BrokerOffsets],
    end: datetime,
    began: Mapping[int, int],
) -> dict[int, range]:
    """Return the offsets above the last one in bronze, of each partition of which Kafka has any.

    Args:
        offset_ranges: what bronze holds of each partition.
        broker_offsets: what Kafka has of each partition.
        end: a partition with a record that the broker took at this moment or later is not among them.
        began: where ingest has begun, if not with the first record that Kafka has.
    """
    by_partition = {offsets.partition: offsets for offsets in offset_ranges}
    above: dict[int, range] = {}
    for partition, broker in sorted(broker_offsets.items()):
        bronze = by_partition.get(partition)
        start = bronze.last + 1 if bronze else max(began.get(partition, 0), broker.earliest)
        if start < broker.end and not (bronze and bronze.appended and bronze.appended >= end):
            above[partition] = range(start, broker.end)
    return above


def _end_of(day: date, contract: DataContract) -> datetime:
    return datetime.combine(day + timedelta(days=1), time(), contract.zone).astimezone(UTC)


def _require_records(
    pipeline: Pipeline,
    offset_ranges: Sequence[PartitionOffsets],
    last: date,
) -> None:
    config = pipeline.config
    bronze = pipeline.table("bronze")
    if not offset_ranges:
        raise _NotYet(f"{bronze}: empty; run first: {command(config, 'ingest_stream', '--once')}")
    if config.batch.seal_by == "kafka":
        return
    newest = max(offsets.sent for offsets in offset_ranges)
    if newest.astimezone(pipeline.contract.zone).date() < last:
        raise _NotYet(
            f"{bronze}: no record of {last} yet: the newest one was sent at {newest:%Y-%m-%d %H:%M} UTC;"
            f" {_catch_up(config)}"
        )
    require_known_gaps_past(config, _last_offsets(config, offset_ranges), bronze)


def require_none_lacking(config: PipelineConfig, last: date, lacking: Mapping[int, range]) -> None:
    """Make sure that bronze lacks nothing that a day has to be sealed with.

    Args:
        config: the pipeline's configuration.
        last: the day.
        lacking: by partition, the offsets that bronze has to come through yet.

    Raises:
        SourceError: it lacks some.
    """
    if not lacking:
        return
    shown = [
        f"{config.kafka.source_topic}-{number} is in bronze up to offset {offsets.start:,}, needed"
        f" {offsets.stop:,}"
        for number, offsets in list(lacking.items())[:_SHOWN]
    ]
    more = [f"and {len(lacking) - _SHOWN} more partitions"] if len(lacking) > _SHOWN else []
    raise _NotYet(
        f"{config.table('bronze')}: {last} cannot be sealed yet: {'; '.join([*shown, *more])};"
        f" {_catch_up(config)}; if it has, find out what bronze lacks: {command(config, 'reconcile')}"
    )


def _catch_up(config: PipelineConfig) -> str:
    return f"let ingest catch up: {command(config, 'ingest_stream', '--once')}"


def _gone(
    config: PipelineConfig, gone: Mapping[int, int], broker_offsets: Mapping[int, BrokerOffsets]
) -> str:
    shown = [
        f"{config.kafka.source_topic}-{number}: offsets {start:,} to {broker_offsets[number].earliest - 1:,}"
        for number, start in list(gone.items())[:_SHOWN]
    ]
    return (
        f"{config.table('bronze')}: Kafka has deleted offsets that bronze lacks: {'; '.join(shown)}."
        " See docs/runbook.md, 'Offsets are gone'. On a compacted or transactional topic, set"
        " audit.offset_gaps: warn; list a loss that you accept in audit.known_gaps"
    )
