"""A micro-batch of which a part was published is published with what it was begun with, or not at all."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from pipelines.config.loader import load_config
from pipelines.contracts.contract import DataContract
from pipelines.errors import ConfigError, SourceError
from pipelines.publishing.cluster import asking, fence_slots, read_slot_progress, write_slot_progress
from pipelines.publishing.progress_check import publisher
from pipelines.publishing.settings import sink_of
from pipelines.publishing.slots import SlotProgress
from pipelines.publishing.transactional_sink import TransactionalSink, publish_rows
from pipelines.steps.publish import publish, publishing_status
from pipelines.steps.publish_reset import reset_publishing
from tests.support.kafka import MakeTopic, fresh_topics
from tests.support.lakes import Lake, flight, lake_that_publishes
from tests.support.readers import messages_of

ROWS = 40
DONE = SlotProgress(6, "query", "topic", 2)


@pytest.fixture
def sink(broker: str, topic: MakeTopic) -> TransactionalSink:
    name = topic(partitions=2, name="content")
    client = {"bootstrap.servers": broker}
    return TransactionalSink(name, name, 2, client, progress_topic=topic(2, "progress"))


@pytest.fixture(scope="module")
def make(
    spark: SparkSession,
    contract: DataContract,
    broker: str,
    admin: AdminClient,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., Lake]]:
    """A lake by several settings and contracts, of which one micro-batch of eight events is published."""
    with fresh_topics(admin) as topic:
        output, folder = topic(partitions=2, name="content"), tmp_path_factory.mktemp("content")

        def made(*settings: str, **changes: Any) -> Lake:
            changed = replace(contract, **changes)
            return lake_that_publishes(spark, broker, folder, changed, output, *settings)

        lake = made()
        lake.enter([flight(flight=number) for number in range(1, 9)])
        publish(lake.pipeline, once=True)
        yield made


def rows(spark: SparkSession, first: int = 0) -> DataFrame:
    return spark.range(first, ROWS).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")


def undone(sink: TransactionalSink, slot: int, batch: int) -> None:
    """Says that one slot of a micro-batch was not published, as when the driver died before."""
    with asking(sink) as cluster:
        known = read_slot_progress(cluster, sink, is_stable=True)[slot]
    write_slot_progress(sink, fence_slots(sink, {}), {slot: replace(known, next_batch=batch)})


def test_a_retry_with_other_rows_is_refused_before_anything_is_sent(
    spark: SparkSession, sink: TransactionalSink, broker: str
) -> None:
    with asking(sink) as cluster:
        # Waits for the coordinator of a broker that has just begun.
        read_slot_progress(cluster, sink)
    publish_rows(rows(spark), sink, DONE, is_new=True)
    undone(sink, 1, 5)
    # One row of each slot is not there, as when a file is skipped.
    with pytest.raises(SourceError, match=r"slot 0 of micro-batch 5 was published with \d+ rows"):
        publish_rows(rows(spark, first=4), sink, DONE, is_new=False)
    assert len(messages_of(broker, sink.topic)) == ROWS
    done = publish_rows(rows(spark).repartition(3), sink, DONE, is_new=False)
    assert (done.rows, done.slots_done_before) == (ROWS, 1)
    assert len(messages_of(broker, sink.topic)) > ROWS
    # What is done as a whole is done, by whatever it would be made of now.
    all_done = publish_rows(rows(spark, first=4), sink, DONE, is_new=False)
    assert (all_done.rows, all_done.slots_done_before) == (ROWS, 2)
    # So it is where not all progress tells what it was made of.
    write_slot_progress(sink, fence_slots(sink, {}), {1: DONE})
    assert publish_rows(rows(spark, first=4), sink, DONE, is_new=False).slots_done_before == 2


def under_way(lake: Lake) -> TransactionalSink:
    """Makes the micro-batch that is done one that was under way; returns where it goes."""
    for name in ("0", ".0.crc"):
        Path(lake.config.checkpoint("publish"), "commits", name).unlink(missing_ok=True)
    return sink_of(lake.config)


def sent(lake: Lake) -> int:
    assert lake.config.publish
    return len(messages_of(lake.config.kafka.bootstrap_servers, lake.config.publish.topic))


def is_finished_by(lake: Lake) -> None:
    """Asserts that the slot that was done is not published again, and that the other is."""
    done = publish(lake.pipeline, once=True)
    assert (done.rows, done.slots_done_before, done.batches) == (8, 1, 1)


@pytest.mark.thorough
def test_a_retry_by_other_rules_is_refused_before_anything_is_sent(make: Callable[..., Lake]) -> None:
    lake = make()
    undone(under_way(lake), 1, 0)
    before = sent(lake)
    for setting, said in (
        ("publish.retraction=record", r"publish\.retraction: found record, expected tombstone"),
        ("batch.dedup_horizon_days=3", r"dedup_horizon_days: found 3, expected \d"),
    ):
        with pytest.raises(
            SourceError, match=rf"slot 0 of micro-batch 0 was published by other rules.*{said}"
        ):
            publish(make(setting).pipeline, once=True)
    assert sent(lake) == before
    is_finished_by(lake)


@pytest.mark.thorough
def test_a_transaction_that_was_committed_in_the_middle_is_told(make: Callable[..., Lake]) -> None:
    lake = make()
    sink = under_way(lake)
    with asking(sink) as cluster:
        begun = {1: replace(read_slot_progress(cluster, sink, is_stable=True)[1], is_begun=True)}
    write_slot_progress(sink, fence_slots(sink, {}), begun)
    with pytest.raises(SourceError, match=r"slots 1 were committed before all .* --in-flight unpublished"):
        publish(lake.pipeline, once=True)
    assert publishing_status(lake.pipeline).problem
    reset_publishing(lake.pipeline, "checkpoint", "unpublished")
    is_finished_by(lake)


@pytest.mark.thorough
def test_a_contract_may_grow_between_two_tries(make: Callable[..., Lake], contract: DataContract) -> None:
    undone(under_way(make()), 1, 0)
    grown = StructType([*contract.schema, StructField("gate", StringType())])
    is_finished_by(make(version="1.1.0", schema=grown))


@pytest.mark.parametrize("kind", ["Missing", "Corrupt"])
def test_no_file_is_passed_over(spark: SparkSession, broker: str, tmp_path: Path, kind: str) -> None:
    setting, checkpoint = f"spark.sql.files.ignore{kind}Files", str(tmp_path / "checkpoint")
    assert spark.conf.get(setting) == "false"
    with pytest.raises(ConfigError, match=f"Oncelake sets {setting} itself"):
        load_config("flights", environ={}, settings=[f"spark.conf.{setting}=true"])
    spark.conf.set(setting, "true")
    try:
        with pytest.raises(ConfigError, match=f"{setting}: expected false"):
            publisher(spark, TransactionalSink("s", "t", 2, {"bootstrap.servers": broker}), checkpoint)
    finally:
        spark.conf.set(setting, "false")
