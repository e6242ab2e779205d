"""Which partitions bronze lacks records of, by what it holds and what Kafka has."""

from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, cast

import pytest

from pipelines.config.loader import load_config
from pipelines.config.model import PipelineConfig
from pipelines.errors import ConfigError, SourceError
from pipelines.kafka.ingest_state import IngestState
from pipelines.kafka.topic_offsets import BrokerOffsets
from pipelines.ledger.offset_ranges import PartitionOffsets
from pipelines.nightly.seal_terms import (
    above_bronze,
    require_begun,
    require_known_gaps_past,
    require_none_lacking,
)

MIDNIGHT = datetime(2013, 1, 2, tzinfo=UTC)


def config(*settings: str) -> PipelineConfig:
    return load_config("flights", environ={}, settings=settings)


def test_a_partition_is_sealed_by_its_end_or_by_a_record_that_the_broker_took_afterwards() -> None:
    before = datetime(2013, 1, 1, 23, tzinfo=UTC)
    found = [
        # What the producer of the first says of the time counts for nothing.
        PartitionOffsets("t", 0, 0, 9, 10, 10, MIDNIGHT),
        PartitionOffsets("t", 1, 0, 9, 10, 10, MIDNIGHT, MIDNIGHT),
        PartitionOffsets("t", 2, 0, 9, 10, 10, before, before),
        PartitionOffsets("t", 6, 0, 9, 10, 10, before, before),
    ]
    kept = {0: 12, 1: 12, 2: 12, 3: 4, 4: 0, 5: 4, 6: 10}
    above = above_bronze(
        found, {number: BrokerOffsets(0, end) for number, end in kept.items()}, MIDNIGHT, {5: 4}
    )
    assert above == {0: range(10, 12), 2: range(10, 12), 3: range(4)}
    # Of a partition that bronze lacks, what was deleted before ingest began is not missed; all else is.
    cut = {0: BrokerOffsets(3, 5), 1: BrokerOffsets(5, 5)}
    assert above_bronze([], cut, MIDNIGHT, {0: 3, 1: 5}) == {0: range(3, 5)}
    assert above_bronze([], cut, MIDNIGHT, {0: 3}) == {0: range(3, 5), 1: range(5)}


def test_what_bronze_has_to_come_to_is_what_the_day_needs() -> None:
    require_none_lacking(config(), date(2013, 1, 1), {})
    with pytest.raises(SourceError) as refused:
        require_none_lacking(config(), date(2013, 1, 1), {n: range(1000, 1001 + n) for n in range(7)})
    said = str(refused.value)
    assert "flights-0: bronze lacks records in offsets 1000..1000; flights-1: " in said
    assert "offsets 1000..1004; and 2 more partitions;" in said


@pytest.mark.parametrize(
    ("partition", "last", "said"),
    [
        (0, 11, None),
        (0, 12, "found partition 0, 5..12; expected offsets less than 12, where bronze ends:"),
        (3, 11, "found partition 3, 5..11; bronze has no partition 3"),
    ],
)
def test_only_what_is_past_can_be_lost(partition: int, last: int, said: str | None) -> None:
    gap = f"{{partition: {partition}, first: 5, last: {last}, why: retention}}"
    accepting = config(f"audit.known_gaps=[{gap}]")
    if said is None:
        require_known_gaps_past(accepting, {0: 12}, "bronze")
        return
    with pytest.raises(ConfigError) as refused:
        require_known_gaps_past(accepting, {0: 12}, "bronze")
    assert said in str(refused.value)


@dataclass(frozen=True)
class Ingest:
    """What `require_begun` asks of the ingest of a cluster."""

    config: PipelineConfig
    is_begun: bool

    def files(self) -> None:
        """The files of its checkpoint, which `has_begun` is asked about."""

    def has_begun(self, files: Any) -> bool:
        return self.is_begun


def test_no_day_is_sealed_before_each_cluster_was_read_from() -> None:
    several = config("kafka.clusters.eu.bootstrap_servers=eu:9092")
    for source in several.sources():
        require_begun(cast(IngestState, Ingest(source, is_begun=True)))
        with pytest.raises(SourceError, match=r"ingest has not started for .*oncelake ingest_stream"):
            require_begun(cast(IngestState, Ingest(source, is_begun=False)))
    # Of the only one, bronze itself says that there is nothing yet.
    require_begun(cast(IngestState, Ingest(config(), is_begun=False)))
