"""One real broker for all integration tests, and fresh topics and lakes for each that asks."""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient
from pyspark.sql import SparkSession

from pipelines.config.loader import load_config
from pipelines.contracts.contract import DataContract
from pipelines.runtime.local_broker import broker as running_broker
from pipelines.spark.pipeline import Pipeline
from tests.support.kafka import MakeTopic, make_topic
from tests.support.lakes import Lake
from tests.support.processes import Job
from tests.support.schema_registry import schema_registry


@pytest.fixture(scope="session")
def broker() -> Iterator[str]:
    """Bootstrap servers of a running broker."""
    with running_broker() as running:
        yield running.bootstrap_servers


@pytest.fixture(scope="session")
def admin(broker: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker})


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """Where a real schema registry answers."""
    with schema_registry() as address:
        yield address


@pytest.fixture(scope="session")
def registry(url: str) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": url})


@pytest.fixture
def topic(admin: AdminClient) -> Iterator[MakeTopic]:
    """Make topics with names of their own: `topic(partitions=3, name="flights", **{"retention.ms": "1"})`."""
    numbers, made = itertools.count(), []

    def make(partitions: int = 3, name: str = "topic", **config: str) -> str:
        fresh = f"{name}-{os.getpid()}-{os.urandom(4).hex()}-{next(numbers)}"
        make_topic(admin, NewTopic(fresh, partitions, 1, config=config))
        made.append(fresh)
        return fresh

    yield make
    if made:
        for deleted in admin.delete_topics(made).values():
            deleted.exception(30)


@pytest.fixture
def publishing_lake(spark: SparkSession, broker: str, tmp_path: Path) -> Callable[..., Lake]:
    """Makes a lake that publishes to a topic in two slots: `publishing_lake(contract, output, "a.b=c")`."""

    def made(contract: DataContract, output: str, *settings: str) -> Lake:
        given = (
            f"lake.root={tmp_path}/lake",
            "batch.seal_by=bronze",
            f"kafka.bootstrap_servers={broker}",
            f"publish.topic={output}",
            "publish.slots=2",
            *settings,
        )
        config = load_config("flights", environ={}, settings=given)
        # All tests share a cluster, on which a sink is known by its pipeline and environment.
        return Lake(Pipeline(spark, config.model_copy(update={"env": output}), contract))

    return made


@pytest.fixture
def jobs() -> Iterator[list[Job]]:
    """Jobs that a test starts; they end with it at the latest."""
    started: list[Job] = []
    yield started
    for job in started:
        job.kill()
