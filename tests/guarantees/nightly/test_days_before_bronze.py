"""No day is certified of which Kafka had deleted records before bronze was begun."""

import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from delta.tables import DeltaTable

from pipelines.contracts.contract import DataContract
from pipelines.delta.record_tables import ensure_bronze
from pipelines.delta.table_properties import WHOLE_FROM, set_table_property, table_property
from pipelines.delta.tables import version
from pipelines.errors import ConfigError, SourceError
from pipelines.fault_points import Point, armed
from pipelines.kafka.log_start import first_sent
from pipelines.kafka.topics import find_topic
from pipelines.steps.checkpoints import reset_checkpoint
from pipelines.steps.ingest import ingest
from testbed.waiting import wait_until
from tests.support.accidents import start_ingest_that_dies
from tests.support.kafka import MakeTopic, ordered_producer
from tests.support.lakes import Lake
from tests.support.nights import ONE, TWO, begin, on, run

pytestmark = [pytest.mark.spark, pytest.mark.integration]
MakeLake = Callable[..., Lake]

FOUR = date(2013, 1, 4)


def whole_from(lake: Lake) -> str | None:
    return table_property(lake.spark, lake.config.table("bronze"), WHOLE_FROM)


def send(broker: str, name: str, partition: int) -> None:
    """Sends events of the first, second and fourth day to a partition, and of the first more than decide."""
    producer = ordered_producer(broker)
    for number in (*[1] * 12, 2, 4):
        sent = int(datetime(2013, 1, number, 12, tzinfo=UTC).timestamp() * 1000)
        value = on(number, 10 * number + partition).value
        producer.produce(name, value, partition=partition, timestamp=sent)
    assert producer.flush(30) == 0


def delete(admin: AdminClient, *before: TopicPartition) -> None:
    for deleted in admin.delete_records([*before]).values():
        deleted.result(30)


def test_days_that_kafka_had_begun_to_delete_are_refused_also_after_a_first_start_that_failed(
    broker: str, admin: AdminClient, topic: MakeTopic, make_lake: MakeLake, small: DataContract
) -> None:
    name = topic(partitions=2)
    for partition in range(2):
        send(broker, name, partition)
    lake = make_lake(f"kafka.bootstrap_servers={broker}", f"kafka.topic={name}", contract=small)
    # A start that fails before it begins is not taken for one on a whole topic.
    start_ingest_that_dies(lake)
    assert lake.count("bronze") == 0
    assert whole_from(lake) is None

    # An event may be dated a day ahead (`decode.max_future`), so the second day may lack some as well.
    delete(admin, TopicPartition(name, 0, 1))
    ingest(lake.pipeline, once=True)
    assert whole_from(lake) == "2013-01-03"
    for day in (ONE, TWO):
        with pytest.raises(ConfigError, match="Kafka had deleted them when bronze was begun"):
            run(lake, day)
    begin(lake, FOUR)
    # What Kafka deletes once it is in bronze means nothing.
    delete(admin, TopicPartition(name, 0, 14))
    ingest(lake.pipeline, once=True)
    assert whole_from(lake) == "2013-01-03"

    # Nobody knows when the records were sent that a partition no longer has. All of the lake is lost, and the
    # streams begin anew; the first is that of speed, which makes bronze.
    shutil.rmtree(lake.config.root)
    ensure_bronze(lake.pipeline)
    ingest(lake.pipeline, once=True)
    today = datetime.now(UTC).date()
    assert today <= date.fromisoformat(str(whole_from(lake))) - timedelta(days=1)


def test_a_partition_that_kafka_had_begun_to_delete_when_ingest_was_reset_is_noted(
    broker: str, admin: AdminClient, topic: MakeTopic, make_lake: MakeLake, small: DataContract
) -> None:
    name = topic(partitions=1)
    send(broker, name, 0)
    lake = make_lake(f"kafka.bootstrap_servers={broker}", f"kafka.topic={name}", contract=small)
    ingest(lake.pipeline, once=True)
    assert whole_from(lake) is None
    before = version(lake.spark, lake.config.table("bronze"))

    # It is added and filled while ingest is down, for longer than Kafka keeps records.
    admin.create_partitions([NewPartitions(name, 2)])[name].result(30)
    kafka = lake.config.kafka
    wait_until(lambda: find_topic(lake.spark, kafka).partitions == 2, "it has a second partition", 30)
    send(broker, name, 1)
    # Another client than the one that knew the topic before.
    delete(AdminClient({"bootstrap.servers": broker}), TopicPartition(name, 1, 1))
    with pytest.raises(SourceError, match="records were deleted from Kafka before they were read"):
        ingest(lake.pipeline, once=True)
    reset_checkpoint(lake.pipeline, "reset", "ingest")
    ingest(lake.pipeline, once=True)
    assert lake.count("bronze") == 27
    assert whole_from(lake) == "2013-01-03"
    with pytest.raises(ConfigError, match="records of it are gone"):
        run(lake, ONE)

    # Bronze as it was before it said so, and before it had a record of the partition.
    DeltaTable.forPath(lake.spark, lake.config.table("bronze")).restoreToVersion(before)
    assert whole_from(lake) is None
    with pytest.raises(SourceError, match=r"bronze does not|rolled back"):
        ingest(lake.pipeline, once=True)
    reset_checkpoint(lake.pipeline, "reset", "ingest")
    ingest(lake.pipeline, once=True)
    assert lake.count("bronze") == 27
    assert whole_from(lake) == "2013-01-03"

    # A person knows better, and a further reset does not.
    table = lake.config.table("bronze")
    set_table_property(lake.spark, table, WHOLE_FROM, "2013-01-02")
    reset_checkpoint(lake.pipeline, "reset", "ingest")
    ingest(lake.pipeline, once=True)
    assert whole_from(lake) == "2013-01-02"
    # In a copy that a query made, all properties are gone; ingest was not reset.
    lake.spark.sql(f"ALTER TABLE delta.`{table}` UNSET TBLPROPERTIES ('{WHOLE_FROM}')")
    ingest(lake.pipeline, once=True)
    assert whole_from(lake) == "2013-01-03"


def test_a_gap_that_audits_accept_keeps_days_from_being_certified_if_kafka_had_deleted_what_was_unread(
    broker: str, topic: MakeTopic, admin: AdminClient, make_lake: MakeLake, small: DataContract
) -> None:
    name = topic(partitions=1)
    settings = (f"kafka.bootstrap_servers={broker}", f"kafka.topic={name}", "audit.offset_gaps=warn")
    lake = make_lake(*settings, contract=small)
    send(broker, name, 0)
    ingest(lake.pipeline, once=True)
    assert whole_from(lake) is None
    # Ingest is down for longer than Kafka keeps records.
    send(broker, name, 0)
    delete(admin, TopicPartition(name, 0, 15))
    with pytest.raises(SourceError, match="records were deleted from Kafka before they were read"):
        ingest(lake.pipeline, once=True)
    reset_checkpoint(lake.pipeline, "reset", "ingest")
    ingest(lake.pipeline, once=True)
    assert whole_from(lake) == "2013-01-03"
    with pytest.raises(ConfigError, match="records of it are gone"):
        run(lake, ONE)


def test_a_first_record_that_came_late_does_not_decide_which_days_are_complete(
    broker: str, topic: MakeTopic, make_lake: MakeLake
) -> None:
    def sent(day: int) -> int:
        return int(datetime(2013, 1, day, tzinfo=UTC).timestamp())

    producer, name = ordered_producer(broker), topic(partitions=2)
    for partition in range(2):
        # The first ones have come late, and the clock of the producer of the fifth was ahead.
        for day in (1, 1, 3, 3, 9, *[4] * 995):
            producer.produce(name, b"x", partition=partition, timestamp=1000 * sent(day))
    assert producer.flush(30) == 0
    lake = make_lake(f"kafka.bootstrap_servers={broker}", f"kafka.topic={name}")
    # Of a thousand records twenty count, and ten at least; of fewer than that all do.
    assert first_sent(lake.pipeline, {0: range(1_000), 1: range(60)}) == {0: sent(4), 1: sent(4)}
    assert first_sent(lake.pipeline, {0: range(4), 1: range(2)}) == {0: sent(3), 1: sent(1)}


def test_what_ingest_notes_when_a_run_has_begun_holds_for_that_run(
    make_lake: MakeLake, small: DataContract
) -> None:
    lake = make_lake(contract=small)
    ensure_bronze(lake.pipeline)

    def ingest_begins() -> None:
        set_table_property(lake.spark, lake.config.table("bronze"), WHOLE_FROM, "2013-01-03")
        lake.ingest([on(1, 1)])

    with armed(Point.LEASE_HELD, ingest_begins), pytest.raises(ConfigError, match="records of it are gone"):
        run(lake, ONE)
