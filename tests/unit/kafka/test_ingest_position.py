"""Where ingest goes on without the checkpoint that it had."""

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from pipelines.delta.table_state import StreamCommit
from pipelines.kafka.ingest_position import Continuation, end_offsets_after, start_mismatch

NOON_MS = 1_357_041_600_000


def test_a_partition_begins_at_the_offset_that_kafka_was_asked_for() -> None:
    start = Continuation("flights", {0: 7, 1: None}, {}, {1: range(40, 90)})
    # The earliest offset of the moment when Spark asks may be another by then.
    assert json.loads(start.starting_offsets) == {"flights": {"0": 7, "1": 40}}
    assert not start.is_first


def test_bronze_begins_if_it_has_no_record_of_any_partition() -> None:
    assert Continuation("flights", {0: None, 1: None}, {}, {0: range(3, 9), 1: range(0)}).is_first


@pytest.mark.parametrize(
    ("began", "said"),
    [
        ({0: 100, 1: 0}, None),
        # Kafka has deleted since then what bronze has nothing of, and what it lacks.
        ({1: 0, 2: 7}, None),
        ({0: 150}, "offsets 100 to 149 would never be read"),
        ({0: 50}, "ingest would read offsets 50 to 99 again"),
        ({1: 40}, "offsets 30 to 39 would never be read"),
        # Of what Kafka has deleted, ingest itself begins behind.
        ({2: 8}, None),
        ({2: 20}, None),
        ({2: 21}, "would never be read"),
        ({2: 6}, "ingest would read offsets 6 to 6 again"),
        # A partition that only one of the two knows.
        ({3: 5}, None),
    ],
)
def test_a_checkpoint_begins_where_bronze_goes_on_or_is_refused(
    began: dict[int, int], said: str | None
) -> None:
    start = Continuation("flights", {0: 100, 1: None, 2: 20}, {2: range(7, 20)}, {1: range(30, 90)})
    problem = start_mismatch("/lake/bronze/flights", began, start)
    assert problem is None if said is None else said in (problem or "")


@pytest.mark.parametrize(("committed", "ends"), [(NOON_MS - 1, {}), (NOON_MS, {0: 7}), (None, {0: 7})])
def test_a_moment_of_a_clock_that_is_ahead_of_the_store_is_that_of_the_commit(
    committed: int | None, ends: dict[int, int]
) -> None:
    commit = StreamCommit(3, "WRITE", query="q", batch=0, asked=NOON_MS + 3_600_000, committed=committed)
    state: Any = SimpleNamespace(
        files=lambda: SimpleNamespace(next_batch=1, query="q"),
        commits=lambda most: [commit],
        plan=lambda batch: SimpleNamespace(ends={0: 7}),
    )
    assert end_offsets_after(state, datetime.fromtimestamp(NOON_MS / 1000, UTC)) == ends
