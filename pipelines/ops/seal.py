"""Seals a day: bronze must have all that was sent until the day's end, before the day may be rebuilt."""

import json
import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from pipelines.config import PipelineConfig
from pipelines.contract import DataContract
from pipelines.errors import InfrastructureError, SourceError
from pipelines.ops.bronze_index import BronzeIndex
from pipelines.ops.cluster import end_offsets, find_topic, require_same_topic
from pipelines.ops.indexing import index_bronze
from pipelines.quality.offset_ledger import PartitionOffsets, partition_offsets
from pipelines.sinks.delta import small_rows
from pipelines.sinks.tables import version

_LOOK_EVERY_S: Final = 2.0
_SHOWN: Final = 5

_log = logging.getLogger(__name__)


class _NotYet(SourceError):
    """Bronze has not come far enough; it may in a moment."""


def seal(spark: SparkSession, config: PipelineConfig, contract: DataContract, last: date) -> BronzeIndex:
    """Waits, for as long as `batch.seal_wait` says, until bronze has all of a day and of those before it.

    Of each Kafka partition bronze must have either all that the cluster had when this began, or a record that
    was sent after the day's end and `batch.seal_grace`. What producers send after that is late. Where the
    cluster does not answer, such a record of each partition in bronze is enough.

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
        InfrastructureError: the cluster does not answer, and bronze alone does not tell.
    """
    end = _end_of(last, contract) + config.batch.seal_grace
    if datetime.now(UTC) < end:
        raise SourceError(
            f"{last} can be sealed at {end:%Y-%m-%d %H:%M:%S} UTC, when it has been over for"
            " batch.seal_grace; start again then"
        )
    ends, silence = _ends(spark, config)
    for attempt in Retrying(
        retry=retry_if_exception_type(_NotYet),
        stop=stop_after_delay(config.batch.seal_wait),
        wait=wait_fixed(_LOOK_EVERY_S),
        reraise=True,
    ):
        with attempt:
            # In this order: what ingest has committed is in the version that is looked at afterwards.
            read_until = committed_offsets(spark, config) if ends is not None else {}
            bronze = version(spark, config.table("bronze"))
            index = index_bronze(spark, config, contract, bronze, keep=True)
            found = partition_offsets(index.offsets())
            _require_records(config, contract, found, last)
            if ends is not None:
                _require_all(config, last, lacking_offsets(found, ends, read_until, end))
            elif silence and any(offsets.sent < end for offsets in found):
                raise silence
    if silence:
        _log.warning("%s was sealed by the records in bronze alone: %s", last, silence)
    return index


def _ends(
    spark: SparkSession, config: PipelineConfig
) -> tuple[Mapping[int, int] | None, InfrastructureError | None]:
    """The offset after the last record of each partition in Kafka; or why the cluster does not tell."""
    if config.batch.seal_by == "bronze":
        return None, None
    try:
        topic = find_topic(spark, config.kafka)
        require_same_topic(spark, config, topic)
        return end_offsets(spark, config.kafka, topic), None
    except InfrastructureError as error:
        return None, error


def lacking_offsets(
    found: Sequence[PartitionOffsets],
    ends: Mapping[int, int],
    read_until: Mapping[int, int],
    end: datetime,
) -> dict[int, tuple[int, int]]:
    """The partitions that are not sealed: up to which offset they were read, and which is needed.

    Args:
        found: what bronze holds of each partition.
        ends: the offset after the last record of each partition in Kafka.
        read_until: the offset after the last that ingest has looked at. Where a transaction was aborted or
            the topic was compacted, that is further than the last record in bronze.
        end: a partition with a record that was sent at this moment or later is sealed, too.
    """
    by_partition = {offsets.partition: offsets for offsets in found}
    lacking: dict[int, tuple[int, int]] = {}
    for partition, needed in sorted(ends.items()):
        here = by_partition.get(partition)
        reached = max(read_until.get(partition, 0), here.last + 1 if here else 0)
        if reached < needed and not (here and here.sent >= end):
            lacking[partition] = (reached, needed)
    return lacking


def committed_offsets(spark: SparkSession, config: PipelineConfig) -> dict[int, int]:
    """The offset after the last that ingest has looked at in each partition, if its checkpoint tells."""
    checkpoint = config.checkpoint("ingest")
    try:
        number = F.regexp_extract(F.input_file_name(), r"/(\d+)$", 1).cast("long").alias("n")
        commits = spark.read.text(f"{checkpoint}/commits").select(number)
        batch = small_rows(commits.agg(F.max("n").alias("n")))[0]["n"]
        if batch is None:
            return {}
        lines = small_rows(spark.read.text(f"{checkpoint}/offsets/{batch}"))
    except AnalysisException:
        return {}
    # The last line is the one source's own; before it stand a version and the settings of the query.
    offsets: dict[str, dict[str, Any]] = json.loads(lines[-1]["value"])
    return {int(partition): int(offset) for partition, offset in offsets[config.kafka.topic].items()}


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


def _require_all(config: PipelineConfig, last: date, lacking: Mapping[int, tuple[int, int]]) -> None:
    if not lacking:
        return
    shown = [
        f"{config.kafka.topic}-{partition} has been read up to offset {reached:,}, needed {needed:,}"
        for partition, (reached, needed) in list(lacking.items())[:_SHOWN]
    ]
    more = [f"and {len(lacking) - _SHOWN} more partitions"] if len(lacking) > _SHOWN else []
    raise _NotYet(
        f"{config.table('bronze')}: {last} cannot be sealed yet: {'; '.join([*shown, *more])};"
        " run ingest_stream until it has caught up"
    )
