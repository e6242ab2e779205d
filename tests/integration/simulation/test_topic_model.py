"""What ingest and a seal ask of topic, checkpoint and bronze has the same answers in the model.

Both get the same operations: records, retention, further partitions, runs of ingest, resets and restores.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from random import Random
from typing import Protocol, cast

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from delta.tables import DeltaTable

from pipelines.delta.table_properties import set_table_property
from pipelines.delta.tables import exists, version
from pipelines.errors import OncelakeError
from pipelines.kafka.backfill_lake import BackfillLake, SparkBackfillLake
from pipelines.kafka.ingest_position import continuation, end_offsets_after, lost_tail_ranges
from pipelines.kafka.log_divergence import last_offsets
from pipelines.kafka.topics import find_topic
from pipelines.ledger.bronze_indexer import index_bronze
from pipelines.ledger.offset_ranges import PartitionOffsets
from pipelines.steps.checkpoints import reset_checkpoint
from pipelines.steps.ingest import ingest
from simulation.backfill import BackfillWorld, ModelBackfill
from simulation.kernel import Process
from simulation.schedules import Replay
from simulation.sealing import ModelSeal, SealingWorld
from testbed.waiting import wait_until
from tests.support.immediate_effects import Unscheduled
from tests.support.kafka import MakeTopic, ordered_producer
from tests.support.lakes import FLIGHT, Lake

MakeLake = Callable[..., Lake]
Operation = tuple[str, int]
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


class Side(Protocol):
    """One of the two."""

    def do(self, what: str, partition: int) -> object:
        """Do one thing."""

    def state(self) -> BackfillLake:
        """Return what ingest and backfills ask."""

    def offsets(self) -> Sequence[PartitionOffsets]:
        """Return what bronze has of each partition."""


@dataclass
class Real:
    """A broker and a lake."""

    lake: Lake
    admin: AdminClient
    broker: str
    name: str
    partitions: int = 1

    def do(self, what: str, partition: int) -> object:
        match what:
            case "send":
                producer = ordered_producer(self.broker)
                producer.produce(self.name, json.dumps(FLIGHT).encode(), partition=partition)
                assert producer.flush(30) == 0
            case "delete":
                everything = [TopicPartition(self.name, partition, -1)]
                for deleted in self.admin.delete_records(everything).values():
                    deleted.result(30)
            case "add":
                self.partitions += 1
                added = self.admin.create_partitions([NewPartitions(self.name, self.partitions)])
                added[self.name].result(30)
                wait_until(self._is_told, "the broker tells of the partition", 30)
            case "ingest":
                ingest(self.lake.pipeline, once=True)
            case "reset":
                reset_checkpoint(self.lake.pipeline, "reset", "ingest")
            case "restore":
                spark, bronze = self.lake.spark, self.lake.config.table("bronze")
                set_table_property(spark, bronze, "delta.appendOnly", "false")
                commits = [each for each in self.state().commits(50) if each.batch is not None]
                DeltaTable.forPath(spark, bronze).restoreToVersion(commits[0].version - 1)
        return None

    def state(self) -> BackfillLake:
        pipeline = self.lake.pipeline
        return SparkBackfillLake(pipeline, find_topic(pipeline.spark, pipeline.config.kafka), pipeline)

    def offsets(self) -> Sequence[PartitionOffsets]:
        table = self.lake.config.table("bronze")
        if not exists(self.lake.spark, table):
            return []
        return index_bronze(self.lake.pipeline, version(self.lake.spark, table)).offsets()

    def _is_told(self) -> bool:
        told = find_topic(self.lake.spark, self.lake.config.kafka).partitions
        known = self.admin.list_topics(self.name, timeout=10).topics[self.name].partitions.values()
        return told == self.partitions == sum(each.leader >= 0 for each in known)


class Modelled:
    """The models."""

    def __init__(self, name: str) -> None:
        self.world = SealingWorld(Replay([]), Random(0))  # noqa: S311 - it decides nothing here
        self.world.kernel.close()
        self.world.kernel = Unscheduled()
        self.world.topic.name = name
        self.world.topic.recreate(1)
        self.world.has_gaps = self.world.is_stamped = False
        kafka = self.world.config.kafka.model_copy(update={"topic": name})
        self.world.config = self.world.config.model_copy(update={"kafka": kafka})
        self._runs = 0

    def do(self, what: str, partition: int) -> object:
        world = self.world
        match what:
            case "send":
                world.topic.send(partition, world.time(), date(2013, 1, 1))
            case "delete":
                world.topic.delete(partition, 1_000)
            case "add":
                world.add_partition()
            case "ingest":
                self._runs += 1
                process = Process(f"run {self._runs}", 0)
                world.make_query(world, process, True, world.make_ingest(world)).run(5)
            case "reset":
                continuation(self.state())
                world.reset()
            case "restore":
                commits = [each for each in self.state().commits(50) if each.batch is not None]
                world.bronze.restore_to(commits[0].version - 1)
        world.kernel.now += 1
        return None

    def state(self) -> BackfillLake:
        return ModelBackfill(cast(BackfillWorld, self.world))

    def offsets(self) -> Sequence[PartitionOffsets]:
        return ModelSeal(self.world).index().offsets()


def outcome(side: Side, what: str, partition: int) -> dict[str, object]:
    """Does one thing; returns what came of it, and what is answered then."""
    try:
        came: object = side.do(what, partition)
    except OncelakeError as refused:
        came = type(refused).__name__
    state = side.state()
    files = state.files()
    answers: dict[str, object] = {
        "came": came,
        "batches": (files.next_batch, files.in_flight),
        "bounds": state.bounds(),
        "readable": state.readable(),
        "has begun": state.has_begun(files),
        "offsets": [(each.partition, each.first, each.last, each.distinct) for each in side.offsets()],
    }
    if files.next_batch:
        answers |= {
            "last": last_offsets(state),
            "began": state.began(),
            "lost": lost_tail_ranges(state),
            "within": state.records_within(state.bounds()),
            "same": state.compared(state.bounds()),
            "asked": end_offsets_after(state, LONG_AGO),
            "continues": continuation(state).starts,
            "held": state.held(),
            "blocks": state.blocks({0: range(1, 9)}, 2),
            "held within": state.held_within([(0, range(1, 3)), (1, range(9))]),
            "since": state.sent_since(LONG_AGO),
        }
    return answers


def compare(real: Side, modelled: Side, operations: Sequence[Operation]) -> None:
    for at, (what, partition) in enumerate(operations):
        expected = outcome(real, what, partition)
        assert (at, what, outcome(modelled, what, partition)) == (at, what, expected)


@pytest.fixture
def real(make_lake: MakeLake, broker: str, admin: AdminClient, topic: MakeTopic) -> Real:
    name = topic(partitions=1)
    lake = make_lake(
        f"kafka.bootstrap_servers={broker}", f"kafka.topic={name}", "kafka.connect_timeout=5 seconds"
    )
    return Real(lake, admin, broker, name)


@pytest.mark.thorough
def test_the_same_is_answered_of_what_kafka_deletes_and_what_bronze_loses(real: Real) -> None:
    operations = [
        *(("send", 0), ("send", 0), ("ingest", 0), ("send", 0), ("ingest", 0), ("restore", 0)),
        *(("ingest", 0), ("reset", 0), ("ingest", 0), ("add", 0), ("send", 1), ("delete", 1)),
        # With nothing to read, Spark begins a checkpoint by an empty micro-batch, and the model by none.
        *(("ingest", 0), ("reset", 0), ("send", 1), ("ingest", 0), ("delete", 0), ("ingest", 0)),
    ]
    compare(real, Modelled(real.name), operations)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(4))
def test_random_operations_have_the_same_answers(real: Real, seed: int) -> None:
    random = Random(seed)  # noqa: S311 - nothing here is secret
    kinds = ("send", "send", "send", "delete", "ingest", "ingest", "reset", "restore")
    chosen = [(random.choice(kinds), 0) for _ in range(12)]
    compare(real, Modelled(real.name), [("send", 0), ("ingest", 0), *chosen])
