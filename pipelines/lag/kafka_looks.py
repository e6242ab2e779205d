"""What only a look at the records of Kafka tells of ingest that is behind: slow fetches, and frequent keys.

A stage that keeps up, or whose lag has a reason that lies before these, costs no look.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from py4j.protocol import Py4JJavaError

from pipelines.config.secret_masking import mask_values
from pipelines.contracts.contract import DataContract
from pipelines.kafka.backlog import Backlog, PartitionBacklog
from pipelines.kafka.client_errors import kafka_error_text
from pipelines.kafka.fetches import FetchFigures, SampledRecord, Unread, fetch_figures, sampled_records
from pipelines.lag.causes import find_cause
from pipelines.lag.diagnosis import LagCause
from pipelines.lag.frequent_items import most_frequent
from pipelines.lag.stage_facts import FrequentKey, KeySample, StageFacts
from pipelines.records.redaction import shown_record_key
from pipelines.spark.pipeline import Pipeline

# What comes of a few thousand records is at most a fraction of a percent too high.
_COUNTERS: Final = 512
_MOST_KEYS: Final = 3
# Of a partition with hardly anything unread, these are the last that were read.
_RECENT_OFFSETS: Final = 2_000
# Causes that slow brokers may be behind of, or hide.
_MAY_BE_FETCHES: Final[frozenset[LagCause]] = frozenset(
    {"kafka", "executors", "gc", "spill", "skew", "state", "small_files", "burst", "slow", "unknown"}
)

_log = logging.getLogger(__name__)


def looked_at(pipeline: Pipeline, facts: StageFacts, found: Backlog) -> StageFacts:
    """Return what is known of ingest, with what a look at Kafka's records tells, if it is behind.

    Args:
        pipeline: The pipeline, as it is for the source of a cluster.
        facts: What is known of its ingest.
        found: What of the topic it has not read.
    """
    unread = _unread(found)
    may_be_fetches = find_cause(facts).cause in _MAY_BE_FETCHES and not found.offline
    # A quota that lets a backlog shrink does what it is for.
    if unread and may_be_fetches and facts.catch_up_s is None:
        facts = replace(facts, fetches=_fetches(pipeline, unread))
    if unread and find_cause(facts).cause == "skew":
        facts = replace(facts, sample=_sample(pipeline, found))
    return facts


def key_sample(contract: DataContract, partition: int, records: Iterable[SampledRecord]) -> KeySample:
    """Return the most frequent keys of some records, as far as they may be shown.

    Args:
        contract: Says whether there are personal data.
        partition: Where the records lie.
        records: The records, which are read once.
    """
    counted = most_frequent(records, _COUNTERS)
    total = sum(each.count for each in counted)
    keys = (
        FrequentKey(
            None if each.item is None else shown_record_key(contract, each.item),
            each.item is None,
            each.count / total,
            each.least / total,
            each.at,
        )
        for each in counted[:_MOST_KEYS]
    )
    return KeySample(partition, total, tuple(keys))


def _unread(found: Backlog) -> dict[int, Unread]:
    return {
        number: Unread(found.leaders[number], _unread_offsets(each))
        for number, each in found.partitions.items()
        if each.unread
    }


def _unread_offsets(partition: PartitionBacklog) -> range:
    return range(max(partition.position, partition.earliest), partition.end)


def _fetches(pipeline: Pipeline, unread: Mapping[int, Unread]) -> FetchFigures | None:
    try:
        return fetch_figures(pipeline, unread)
    except Py4JJavaError as error:
        _log.warning("how brokers answer fetches is unknown: %s", _said(pipeline, error))
        return None


def _sample(pipeline: Pipeline, found: Backlog) -> KeySample | None:
    """Return the most frequent keys of the partition that is most behind."""
    number, hot = max(found.partitions.items(), key=lambda each: each[1].unread)
    first = max(min(_unread_offsets(hot).start, hot.end - _RECENT_OFFSETS), hot.earliest)
    try:
        records = sampled_records(pipeline, number, range(first, hot.end))
        sample = key_sample(pipeline.contract, number, records)
    except Py4JJavaError as error:
        _log.warning("the keys of partition %d are unknown: %s", number, _said(pipeline, error))
        return None
    return sample if sample.records else None


def _said(pipeline: Pipeline, error: Py4JJavaError) -> str:
    secrets = [value.get_secret_value() for value in pipeline.config.kafka.secrets.values()]
    return mask_values(kafka_error_text(error), secrets)
