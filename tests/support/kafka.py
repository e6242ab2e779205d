"""What the tests on a real broker share."""

from collections.abc import Callable
from contextlib import suppress

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic

from demo.waiting import wait_until

MakeTopic = Callable[..., str]


def make_anew(admin: AdminClient, topic: str, partitions: int) -> None:
    """Deletes a topic, makes another under its name, and waits until the broker tells of that one.

    The controller has done both when it answers; the broker hears of them afterwards.
    """

    def known() -> str | None:
        with suppress(KafkaException):
            return str(admin.describe_topics(TopicCollection([topic]))[topic].result(30).topic_id)
        return None

    before = known()
    admin.delete_topics([topic])[topic].result(30)
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
    wait_until(lambda: known() not in {None, before}, f"the broker tells of the new {topic}", 30)
