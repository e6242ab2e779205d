"""Records that Kafka has lost, and whose offsets it gave to others, are not passed over in silence."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from delta.tables import DeltaTable
from pyspark.sql import Column, SparkSession

from pipelines.delta.io import small_rows
from pipelines.delta.table_properties import DIVERGENCE_ACCEPTED
from pipelines.delta.tables import set_table_property
from pipelines.errors import SourceError
from pipelines.kafka.source import client_options, records_between
from pipelines.ledger.bronze_index import BronzeIndex
from pipelines.ledger.leases import lease
from pipelines.nightly.seal import seal
from pipelines.runtime.local_broker import start_broker
from pipelines.steps.ingest import ingest
from pipelines.steps.reconcile import reconcile
from tests.support.kafka import make_topic
from tests.support.lakes import Lake, flight
from tests.support.nights import ONE

MakeLake = Callable[..., Lake]
SENT = datetime(2013, 1, 1, 12, tzinfo=UTC)


class Cluster:
    """A broker of its own, whose disk can be cut."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.broker = start_broker(folder)
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers})
        make_topic(admin, NewTopic("flights", 2, 1))

    def send(self, numbers: range, partition: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap_servers})
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
        self.broker = start_broker(self.folder)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    running = Cluster(tmp_path / "kafka")
    yield running
    running.broker.stop()


def lake_of(make_lake: MakeLake, cluster: Cluster) -> Lake:
    servers = cluster.broker.bootstrap_servers
    return make_lake(
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
    return {row["flight"] for row in rows.toLocalIterator()}


def send_again(spark: SparkSession, lake: Lake, offsets: range) -> None:
    """The block of the runbook."""
    kafka = lake.config.kafka
    again = records_between(spark, kafka, {0: offsets}, headers=True).select("key", "value", "headers")
    options = {f"kafka.{name}": value for name, value in client_options(kafka).items()}
    again.write.format("kafka").options(**options).option("topic", kafka.topic).save()


def sealed(lake: Lake) -> BronzeIndex:
    with lease(lake.pipeline, "seal") as held:
        return seal(lake.pipeline, ONE, held)


def test_offsets_that_were_given_to_others_are_refused_and_their_records_can_be_had(
    make_lake: MakeLake, cluster: Cluster
) -> None:
    lake = lake_of(make_lake, cluster)
    cluster.send(range(1, 11))
    cluster.send(range(1, 4), partition=1)
    ingest(lake.pipeline, once=True)
    cluster.loses()
    lake = of(lake, cluster)
    cluster.send(range(101, 107))
    # Bronze has offsets that Kafka has not.
    with pytest.raises(SourceError, match=r"flights-0 up to offset 9, but Kafka's end offset is 6"):
        sealed(lake)
    with pytest.raises(SourceError, match=r"flights-0 up to offset 9, but Kafka's end offset is 6"):
        ingest(lake.pipeline, once=True)
    cluster.send(range(107, 116))
    other = r"lost records and given their offsets to others: .* at flights-0 @ 0\.\.9, expected the same"
    with pytest.raises(SourceError, match=other):
        ingest(lake.pipeline, once=True)
    with pytest.raises(SourceError, match=other) as refused:
        reconcile(lake.pipeline)
    assert refused.value.exit_code == 4
    assert flights_in(lake) == set(range(1, 11))

    # The way back: what stands there now is sent again, and the divergence is accepted.
    send_again(lake.spark, lake, range(10))
    set_table_property(lake.spark, lake.config.table("bronze"), DIVERGENCE_ACCEPTED, "flights-0@9")
    ingest(lake.pipeline, once=True)
    assert flights_in(lake) == {*range(1, 11), *range(101, 116)}
    assert reconcile(lake.pipeline).missing == 0
    assert sealed(lake).total() == 28


@pytest.mark.thorough
def test_the_seal_sees_it_where_ingest_went_on_before(make_lake: MakeLake, cluster: Cluster) -> None:
    lake = lake_of(make_lake, cluster)
    cluster.send(range(1, 11))
    ingest(lake.pipeline, once=True)
    cluster.loses()
    lake = of(lake, cluster)
    cluster.send(range(101, 111))
    with pytest.raises(SourceError, match=r"at flights-0 @ 0\.\.9, expected the same"):
        sealed(lake)


def test_what_was_forgotten_or_is_the_same_is_no_divergence(make_lake: MakeLake, cluster: Cluster) -> None:
    lake = lake_of(make_lake, cluster)
    cluster.send(range(1, 4))
    ingest(lake.pipeline, once=True)
    bronze = lake.config.table("bronze")
    set_table_property(lake.spark, bronze, "delta.appendOnly", "false")
    emptied: dict[str, str | Column] = {"key": "NULL", "value": "NULL"}
    DeltaTable.forPath(lake.spark, bronze).update("_offset = 2", emptied)
    assert reconcile(lake.pipeline).missing == 0
    cluster.send(range(4, 5))
    assert ingest(lake.pipeline, once=True)["counts"]["records"] == 1
    assert len(small_rows(lake.table("bronze").select("_offset"))) == 4
