"""Places that were forgotten are known by the cluster and the topic that they are of."""

from collections.abc import Callable

import pytest
from pyspark.sql import functions as F

from pipelines.delta.record_tables import ensure_bronze
from pipelines.delta.table_properties import set_table_property, to_hex, topic_key
from pipelines.ledger.forgotten_places import places, remember_places
from tests.support.lakes import Lake

SETTINGS = ("batch.seal_by=kafka", "kafka.clusters.eu.bootstrap_servers=eu:1")


def name_topic(lake: Lake, cluster: str | None, topic_id: str) -> None:
    """As ingest does it with Kafka's id."""
    set_table_property(lake.spark, lake.config.table("bronze"), topic_key(cluster), to_hex(topic_id))


def remember(lake: Lake, *topics: str) -> None:
    values = ", ".join(f"('{topic}', 0, 17L, now())" for topic in topics)
    rows = lake.spark.sql(
        f"SELECT * FROM VALUES {values} AS _(_topic, _partition, _offset, event_time)"  # noqa: S608 - names
    )
    remember_places(lake.pipeline, rows, "run")


def known(lake: Lake) -> list[str]:
    found = places(lake.pipeline)
    return [] if found is None else sorted(row["_topic"] for row in found.collect())


@pytest.fixture
def lake(make_lake: Callable[..., Lake]) -> Lake:
    lake = make_lake(*SETTINGS)
    ensure_bronze(lake.pipeline)
    return lake


@pytest.fixture
def other(lake: Lake) -> Lake:
    """Another pipeline of the lake that reads the same topics."""
    other = lake.variant(config=lake.config.model_copy(update={"name": "flights_2"}))
    ensure_bronze(other.pipeline)
    return other


def test_a_topic_that_one_cluster_has_anew_has_other_records(lake: Lake, other: Lake) -> None:
    name_topic(lake, None, "first")
    name_topic(lake, "eu", "of eu")
    remember(lake, "flights", "eu/flights")
    assert known(lake) == ["eu/flights", "flights"]
    name_topic(other, None, "first")
    assert known(other) == ["flights"]
    name_topic(other, "eu", "of eu anew")
    assert known(other) == ["flights"]
    name_topic(other, None, "first anew")
    name_topic(other, "eu", "of eu")
    assert known(other) == ["eu/flights"]


def test_what_was_forgotten_before_a_cluster_was_read_is_known_to_its_pipeline(
    lake: Lake, other: Lake
) -> None:
    name_topic(lake, "eu", "of eu")
    remember(lake, "flights", "eu/flights")
    assert known(lake) == ["eu/flights", "flights"]
    assert known(other) == []
    name_topic(other, "eu", "of eu")
    assert known(other) == ["eu/flights"]


def test_what_an_earlier_release_remembered_by_the_first_cluster_is_known_to_its_pipeline(
    lake: Lake, other: Lake
) -> None:
    name_topic(lake, None, "first")
    name_topic(lake, "eu", "of eu")
    remember(lake, "eu/flights")
    table = lake.config.ops_table("forgotten")
    rows = lake.spark.read.format("delta").load(table).withColumn("topic_id", F.lit("first"))
    rows.localCheckpoint().write.format("delta").mode("overwrite").save(table)
    assert known(lake) == ["eu/flights"]
    name_topic(other, None, "first")
    name_topic(other, "eu", "of another eu")
    assert known(other) == []
