"""Ingest does not write down moments by a clock that is behind."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.errors import InfrastructureError
from pipelines.steps.checkpoints import reset_checkpoint
from pipelines.steps.ingest import ingest
from tests.support.delta_rows import rows_in
from tests.support.kafka import MakeTopic, ordered_producer
from tests.support.lakes import Lake, flight

HOUR_S = 3600


@pytest.fixture
def lake(broker: str, topic: MakeTopic, make_lake: Callable[..., Lake]) -> Lake:
    return make_lake(f"kafka.bootstrap_servers={broker}", f"kafka.topic={topic(partitions=1)}")


def send(lake: Lake, *numbers: int) -> None:
    producer = ordered_producer(lake.config.kafka.bootstrap_servers)
    for n in numbers:
        producer.produce(lake.config.kafka.topic, flight(flight=n))
    assert producer.flush(30) == 0


def read(lake: Lake, **ingest_settings: object) -> int:
    settings = lake.config.ingest.model_copy(update=ingest_settings)
    config = lake.config.model_copy(update={"ingest": settings})
    return ingest(replace(lake.pipeline, config=config), once=True).records


def bronze(lake: Lake) -> int:
    return len(rows_in(lake.config.table("bronze"), "_offset"))


def test_a_clock_that_is_behind_or_put_back_stops_ingest(lake: Lake) -> None:
    send(lake, 1)
    assert read(lake) == 1
    ahead = time.time() + HOUR_S
    _behind_the_newest_commit_nothing_is_read(lake, ahead)

    planned = Path(lake.config.checkpoint("ingest"), "offsets/1")
    version, said, *rest = planned.read_text().splitlines()
    later = {**json.loads(said), "batchTimestampMs": int(ahead * 1000)}
    planned.write_text("\n".join([version, json.dumps(later), *rest]))
    planned.with_name(".1.crc").unlink(missing_ok=True)
    send(lake, 3)
    for _ in range(2):
        with pytest.raises(InfrastructureError, match=r"clock .* was set back: found micro-batch 2 "):
            read(lake)
    assert bronze(lake) == 2
    reset_checkpoint(lake.pipeline, "reset", "ingest")
    assert read(lake) == 1


def _behind_the_newest_commit_nothing_is_read(lake: Lake, ahead: float) -> None:
    newest = max(Path(lake.config.table("bronze"), "_delta_log").glob("*.json"))
    os.utime(newest, (ahead, ahead))
    send(lake, 2)
    with pytest.raises(
        InfrastructureError, match=r"clock of this machine is behind: .*Nothing was read"
    ) as no:
        read(lake)
    assert (no.value.exit_code, bronze(lake)) == (1, 1)
    # It was the other clock that was wrong.
    assert read(lake, max_clock_behind=2 * lake.config.decode.max_future) == 1
