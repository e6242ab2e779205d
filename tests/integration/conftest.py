"""One real broker for all integration tests, and a fresh topic for each that asks."""

import itertools
import os
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient

from pipelines.ops.broker import broker as running_broker
from tests.support.kafka import MakeTopic
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
        admin.create_topics([NewTopic(fresh, partitions, 1, config=config)])[fresh].result(30)
        made.append(fresh)
        return fresh

    yield make
    if made:
        for deleted in admin.delete_topics(made).values():
            deleted.exception(30)


@pytest.fixture
def jobs() -> Iterator[list[Job]]:
    """Jobs that a test starts; they end with it at the latest."""
    started: list[Job] = []
    yield started
    for job in started:
        job.kill()
