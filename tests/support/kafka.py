"""What the tests on a real broker share."""

import itertools
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic

from pipelines.runtime.jars import ensure_jars
from pipelines.runtime.java import find_java
from pipelines.runtime.local_broker import EmbeddedBroker, start_broker
from pipelines.runtime.processes import graceful_shutdown
from testbed.short_lived_settings import BRIEF_JAVA
from testbed.waiting import wait_until

MakeTopic = Callable[..., str]
_FORMATTED: Final = dict[str, bytes]()
"""The files of formatted storage, once a broker has them."""


def make_topic(admin: AdminClient, fresh: NewTopic) -> None:
    """Makes a topic, and waits until the broker tells of it.

    The controller has made it when it answers; the broker hears of it afterwards.
    """
    admin.create_topics([fresh])[fresh.topic].result(30)
    wait_until(lambda: _identifier(admin, fresh.topic) is not None, f"the broker tells of {fresh.topic}", 30)


def ordered_producer(servers: str) -> Producer:
    """Makes a producer whose records come once, in their order, also to a topic that has no leader yet."""
    return Producer({"bootstrap.servers": servers, "enable.idempotence": True})


def start_brief_broker(folder: Path) -> EmbeddedBroker:
    """Starts a broker in a folder that lives so briefly that compiling does not pay.

    All but the first of a process get the files that Kafka's tool has made for that one.
    """
    data = folder / "data"
    if _FORMATTED and not data.exists():
        data.mkdir(parents=True)
        for name, content in _FORMATTED.items():
            (data / name).write_bytes(content)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("JDK_JAVA_OPTIONS", BRIEF_JAVA)
        broker = start_broker(folder)
    if not _FORMATTED:
        names = ("bootstrap.checkpoint", "meta.properties")
        _FORMATTED.update({name: (data / name).read_bytes() for name in names})
    return broker


@contextmanager
def brief_broker() -> Iterator[str]:
    """Runs such a broker for a block, in a temporary folder; yields its bootstrap servers."""
    with tempfile.TemporaryDirectory(prefix="oncelake-broker-") as folder, graceful_shutdown():
        broker = start_brief_broker(Path(folder))
        try:
            yield broker.bootstrap_servers
        finally:
            broker.stop()


@contextmanager
def fresh_topics(admin: AdminClient) -> Iterator[MakeTopic]:
    """Makes topics with names of their own, and deletes them at the end of a block."""
    numbers, made = itertools.count(), []

    def make(partitions: int = 3, name: str = "topic", **config: str) -> str:
        fresh = f"{name}-{os.getpid()}-{os.urandom(4).hex()}-{next(numbers)}"
        make_topic(admin, NewTopic(fresh, partitions, 1, config=config))
        made.append(fresh)
        return fresh

    try:
        yield make
    finally:
        if made:
            for deleted in admin.delete_topics(made).values():
                deleted.exception(30)


def described_by_kafka(broker: str, group: str) -> list[dict[str, str]]:
    """Describes a consumer group with Kafka's own `kafka-consumer-groups`, a row for each partition."""
    java = [str(find_java().executable), *BRIEF_JAVA.split(), "-cp"]
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    asked = ["--bootstrap-server", broker, "--describe", "--group", group]
    jars = os.pathsep.join(map(str, ensure_jars("broker")))
    answer = subprocess.run([*java, jars, tool, *asked], check=True, capture_output=True, text=True)
    lines = [line.split() for line in answer.stdout.splitlines() if line.strip()]
    head = next(number for number, words in enumerate(lines) if words[0] == "GROUP")
    return [dict(zip(lines[head], words, strict=False)) for words in lines[head + 1 :]]


def make_anew(admin: AdminClient, topic: str, partitions: int) -> None:
    """Deletes a topic, makes another under its name, and waits until the broker tells of that one."""
    before = _identifier(admin, topic)
    admin.delete_topics([topic])[topic].result(30)
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
    old = {None, before}
    wait_until(lambda: _identifier(admin, topic) not in old, f"the broker tells of the new {topic}", 30)


def _identifier(admin: AdminClient, topic: str) -> str | None:
    with suppress(KafkaException):
        return str(admin.describe_topics(TopicCollection([topic]))[topic].result(30).topic_id)
    return None
