"""Where ingest goes on without the checkpoint that it had."""

import json

from pipelines.kafka.ingest_position import Continuation


def test_a_partition_begins_at_the_offset_that_kafka_was_asked_for() -> None:
    start = Continuation("flights", {0: 7, 1: None}, {}, {1: range(40, 90)})
    # The earliest offset of the moment when Spark asks may be another by then.
    assert json.loads(start.starting_offsets) == {"flights": {"0": 7, "1": 40}}
    assert not start.is_first


def test_bronze_begins_if_it_has_no_record_of_any_partition() -> None:
    assert Continuation("flights", {0: None, 1: None}, {}, {0: range(3, 9), 1: range(0)}).is_first
