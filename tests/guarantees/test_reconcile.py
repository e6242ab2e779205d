"""Kafka against bronze, on a real broker: what is lost is told from what Kafka never had as records."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from pipelines.cli.reconcile import message_of, summary_of
from pipelines.delta.io import append, read
from pipelines.delta.record_tables import ensure_bronze
from pipelines.steps.ingest import ingest
from pipelines.steps.reconcile import Reconciliation, RecordsMissing, reconcile
from testbed.waiting import wait_until
from tests.support.kafka import MakeTopic, ordered_producer
from tests.support.lakes import Lake, flight

MakeLake = Callable[..., Lake]


def send(broker: str, topic: str, numbers: range, *, key: str | None = None, partition: int = -1) -> None:
    producer = ordered_producer(broker)
    for n in numbers:
        producer.produce(topic, flight(flight=n + 1), key=key or str(n), partition=partition)
    assert producer.flush(60) == 0


def lake_of(make_lake: MakeLake, broker: str, name: str, *settings: str) -> Lake:
    return make_lake(f"kafka.bootstrap_servers={broker}", f"kafka.topic={name}", *settings)


def filled(lake: Lake) -> Lake:
    ingest(lake.pipeline, once=True)
    return lake


def findings(lake: Lake) -> list[tuple[str, int, bool]]:
    return in_short(reconcile(lake.pipeline))


def in_short(found: Reconciliation) -> list[tuple[str, int, bool]]:
    return [(finding.kind, finding.offsets, finding.alarm) for finding in found.findings]


def refusal(lake: Lake) -> str:
    with pytest.raises(RecordsMissing) as refused:
        reconcile(lake.pipeline)
    return message_of(refused.value.reconciliation)


def send_in_transactions(broker: str, topic: str, partition: int) -> None:
    """Three records that are committed, three that are aborted, and three that are committed."""
    producer = Producer({"bootstrap.servers": broker, "transactional.id": topic})
    producer.init_transactions(30)
    for kept in (True, False, True):
        producer.begin_transaction()
        for n in range(3):
            producer.produce(topic, flight(flight=n + 1), partition=partition)
        producer.flush(30)
        if kept:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)


# A marker, three aborted records and their marker; the last marker lies behind all records, and was read.
NO_LOSS = [("gap", 5, False), ("gap", 1, False)]


def test_what_is_lost_is_told_from_what_was_not_read_yet_and_from_markers_and_aborted_records(
    broker: str, admin: AdminClient, topic: MakeTopic, make_lake: MakeLake
) -> None:
    name = topic(partitions=2)
    lake = lake_of(make_lake, broker, name)
    send(broker, name, range(20), partition=0)
    send_in_transactions(broker, name, partition=1)
    filled(lake)
    assert lake.table("bronze").where("_partition = 1").count() == 6
    send(broker, name, range(20, 25), partition=0)
    assert findings(lake) == [("lag", 5, False), *NO_LOSS]

    # Bronze with a hole, of which Kafka has two records still and one not any more.
    whole, holed = (
        lake.config.table("bronze"),
        lake_of(make_lake, broker, name, f"lake.root={lake.config.root}2"),
    )
    ensure_bronze(replace(lake.pipeline, config=holed.config))
    rows = read(lake.spark, whole).where("_partition = 1 OR _offset NOT IN (3, 5, 6, 18)")
    append(rows, holed.config.table("bronze"))
    assert "4 records within 0..19 (the first: 3, 5..6, 18): Kafka has them" in refusal(holed)
    admin.delete_records([TopicPartition(name, 0, 5)])[TopicPartition(name, 0)].result(30)
    with pytest.raises(RecordsMissing) as refused:
        reconcile(holed.pipeline)
    assert refused.value.exit_code == 4
    assert in_short(refused.value.reconciliation) == [
        *(("gap", 3, True), ("gap", 1, True), ("lag", 5, False)),
        # That the last marker was read is said by the checkpoint of ingest, which this bronze has not.
        *(("gap", 5, False), ("lag", 1, False)),
    ]
    assert summary_of(refused.value.reconciliation)["counts"] == {
        "partitions": 2,
        "missing": 4,
        "explained": 5,
        "not_read_yet": 6,
    }
    admin.delete_records([TopicPartition(name, 0, 22)])[TopicPartition(name, 0)].result(30)
    assert "20..21: deleted from Kafka before they were read" in refusal(lake)
    accepted = "audit.known_gaps=[{partition: 0, first: 20, last: 21, why: retention}]"
    assert findings(lake_of(make_lake, broker, name, accepted)) == [
        *(("deleted", 2, False), ("lag", 3, False)),
        *NO_LOSS,
    ]


def test_what_compaction_removed_is_no_loss(
    broker: str, admin: AdminClient, topic: MakeTopic, make_lake: MakeLake
) -> None:
    settings = {"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0.001"}
    name = topic(partitions=1, **settings)
    for key in ("first", *["same"] * 9, "last"):
        send(broker, name, range(1), key=key)
    # The cleaner looks every 15 seconds, and at once when it is told of another interval.
    interval = ConfigEntry("log.cleaner.backoff.ms", "200", incremental_operation=AlterConfigOpType.SET)
    node = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[interval])
    for changed in admin.incremental_alter_configs([node]).values():
        changed.result(30)
    wait_until(lambda: count(broker, name) < 11, "Kafka has compacted the topic", 90)
    lake = filled(lake_of(make_lake, broker, name))
    done = reconcile(lake.pipeline)
    assert [(kind, alarm) for kind, _, alarm in in_short(done)] == [("gap", False)]
    assert done.topic.cleanup_policy == "compact"
    assert summary_of(done)["counts"]["explained"] == 11 - lake.count("bronze")


def count(broker: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": broker, "group.id": "counting", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = 0
    try:
        while (message := consumer.poll(30)) is not None and not message.error():
            found += 1
        return found
    finally:
        consumer.close()
