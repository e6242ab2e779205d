"""Records that Kafka has lost, and whose offsets it gave to others, are not passed over in silence."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from delta.tables import DeltaTable
from pyspark.sql import Column, SparkSession

from pipelines.contracts.contract import DataContract
from pipelines.delta.io import small_rows
from pipelines.delta.table_properties import DIVERGENCE_ACCEPTED, set_table_property
from pipelines.errors import SourceError
from pipelines.kafka.source import client_options, records_between
from pipelines.ledger.bronze_index import BronzeIndex
from pipelines.ledger.leases import lease
from pipelines.nightly.seal import seal
from pipelines.steps.ingest import ingest
from pipelines.steps.reconcile import reconcile
from tests.support.kafka import make_topic, ordered_producer, start_brief_broker
from tests.support.lake_copies import lake_in
from tests.support.lakes import Lake, flight
from tests.support.nights import ONE

SENT = datetime(2013, 1, 1, 12, tzinfo=UTC)


class Cluster:
    """A broker of its own, whose disk can be cut."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.broker = start_brief_broker(folder)
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers})
        make_topic(admin, NewTopic("flights", 2, 1))

    def send(self, numbers: range, partition: int = 0) -> None:
        producer = ordered_producer(self.broker.bootstrap_servers)
        for n in numbers:
            at = SENT + timedelta(seconds=1)
            stamp = int(at.timestamp() * 1000)
            producer.produce("flights", flight(flight=n), partition=partition, timestamp=stamp)
        assert producer.flush(30) == 0

    def loses(self, partition: int = 0) -> None:
        """The disk of a partition is wiped, as where the one replica was lost."""
        self.broker.stop()
        for log in self.folder.rglob(f"flights-{partition}"):
            for file in log.iterdir():
                if file.name != "partition.metadata":
                    file.unlink()
        self.broker = start_brief_broker(self.folder)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    running = Cluster(tmp_path / "kafka")
    yield running
    running.broker.stop()


def lake_of(spark: SparkSession, contract: DataContract, cluster: Cluster, folder: Path) -> Lake:
    servers = cluster.broker.bootstrap_servers
    return lake_in(
        *(folder, spark, contract),
        "batch.seal_by=kafka",
        "batch.seal_wait=0 seconds",
        f"kafka.bootstrap_servers={servers}",
        "kafka.topic=flights",
    )


def of(lake: Lake, cluster: Cluster) -> Lake:
    """The lake, told where the broker is by now."""
    servers = {"bootstrap_servers": cluster.broker.bootstrap_servers}
    kafka = lake.config.kafka.model_copy(update=servers)
    return Lake(replace(lake.pipeline, config=lake.config.model_copy(update={"kafka": kafka})))


def flights_in(lake: Lake) -> set[int]:
    rows = lake.table("bronze").selectExpr("int(get_json_object(string(value), '$.flight')) AS flight")
    return {row["flight"] for row in rows.where("flight IS NOT NULL").collect()}


def send_again(spark: SparkSession, lake: Lake, offsets: range) -> None:
    """The block of the runbook."""
    kafka = lake.config.kafka
    again = records_between(spark, kafka, {0: offsets}, headers=True).select("key", "value", "headers")
    options = {f"kafka.{name}": value for name, value in client_options(kafka).items()}
    again.write.format("kafka").options(**options).option("topic", kafka.topic).save()


def sealed(lake: Lake) -> BronzeIndex:
    with lease(lake.pipeline, "seal") as held:
        return seal(lake.pipeline, ONE, held)


def refusal(act: Callable[[], object]) -> tuple[str, int]:
    """The message and the exit code with which something is refused; empty if it is not."""
    try:
        act()
    except SourceError as error:
        return str(error), error.exit_code
    return "", 0


@dataclass
class Loss:
    """A lake whose cluster lost a partition, and what became of it."""

    lake: Lake
    missing_before: int = -1
    refused_behind: dict[str, tuple[str, int]] = field(default_factory=dict)
    """By step, how it was refused while Kafka ended before bronze did."""
    refused_ahead: dict[str, tuple[str, int]] = field(default_factory=dict)
    """By step, how it was refused when Kafka had come further than bronze."""
    held: set[int] = field(default_factory=set)
    ingested: int = -1

    def happens(self, cluster: Cluster) -> None:
        """Lose the partition, give its offsets to others, and go the way back."""
        cluster.send(range(1, 11))
        cluster.send(range(1, 4), partition=1)
        ingest(self.lake.pipeline, once=True)
        bronze = self.lake.config.table("bronze")
        set_table_property(self.lake.spark, bronze, "delta.appendOnly", "false")
        # The last record of the other partition is forgotten, and stays so.
        emptied: dict[str, str | Column] = {"key": "NULL", "value": "NULL"}
        DeltaTable.forPath(self.lake.spark, bronze).update("_partition = 1 AND _offset = 2", emptied)
        self.missing_before = reconcile(self.lake.pipeline).missing

        cluster.loses()
        lake = self.lake = of(self.lake, cluster)
        cluster.send(range(101, 107))
        steps: dict[str, Callable[[], object]] = {
            "seal": lambda: sealed(lake),
            "ingest": lambda: ingest(lake.pipeline, once=True),
            "reconcile": lambda: reconcile(lake.pipeline),
        }
        self.refused_behind = {name: refusal(steps[name]) for name in ("seal", "ingest")}
        cluster.send(range(107, 116))
        self.refused_ahead = {name: refusal(steps[name]) for name in ("ingest", "reconcile")}
        self.held = flights_in(lake)

        # The way back: what stands there now is sent again, and the divergence is accepted.
        send_again(lake.spark, lake, range(10))
        set_table_property(lake.spark, bronze, DIVERGENCE_ACCEPTED, "flights-0@9")
        # Also behind the record that was forgotten.
        cluster.send(range(4, 5), partition=1)
        self.ingested = ingest(lake.pipeline, once=True).records


@pytest.fixture(scope="module")
def loss(
    spark: SparkSession, contract: DataContract, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Loss]:
    folder = tmp_path_factory.mktemp("loss")
    cluster = Cluster(folder / "kafka")
    try:
        passed = Loss(lake_of(spark, contract, cluster, folder / "lake"))
        passed.happens(cluster)
        yield passed
    finally:
        cluster.broker.stop()


def test_offsets_that_were_given_to_others_are_refused_and_their_records_can_be_had(loss: Loss) -> None:
    # First bronze has offsets that Kafka has not.
    for step, (message, _) in loss.refused_behind.items():
        assert "flights-0 up to offset 9, but Kafka's end offset is 6" in message, step
    other = r"lost records and reused their offsets: .* at flights-0 @ 0\.\.9, expected the same"
    for step, (message, exit_code) in loss.refused_ahead.items():
        assert re.search(other, message), step
        assert exit_code == 4, step
    assert loss.held == set(range(1, 11))

    assert flights_in(loss.lake) == {*range(1, 11), *range(101, 116)}
    assert reconcile(loss.lake.pipeline).missing == 0
    assert sealed(loss.lake).total() == 29


@pytest.mark.thorough
def test_the_seal_sees_it_where_ingest_went_on_before(
    spark: SparkSession, contract: DataContract, cluster: Cluster, tmp_path: Path
) -> None:
    lake = lake_of(spark, contract, cluster, tmp_path / "lake")
    cluster.send(range(1, 11))
    ingest(lake.pipeline, once=True)
    cluster.loses()
    lake = of(lake, cluster)
    cluster.send(range(101, 111))
    with pytest.raises(SourceError, match=r"at flights-0 @ 0\.\.9, expected the same"):
        sealed(lake)


def test_what_was_forgotten_or_is_the_same_is_no_divergence(loss: Loss) -> None:
    assert loss.missing_before == 0
    # Ingest went on behind the record that was forgotten: five that are new, and ten that were sent again.
    assert loss.ingested == 16
    emptied = loss.lake.table("bronze").where("value IS NULL").select("_partition", "_offset")
    assert [(row["_partition"], row["_offset"]) for row in small_rows(emptied)] == [(1, 2)]
