"""Whether the topic that a run reads is still the one that it began with."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pipelines.config.model import PipelineConfig
from pipelines.errors import ConfigError, SourceError
from pipelines.kafka.admin import Admin, open_admin
from pipelines.kafka.client_errors import kafka_error_text
from pipelines.kafka.topics import Topic, describe_topic, refuse_other_topic, topic_of

# A micro-batch waits for the answer, so a cluster that is slow to give it is not asked for long.
_ANSWER_MS: Final = 5_000
_AGAIN_AFTER_S: Final = 2.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TopicWatch:
    """Asks a cluster for a topic, again and again, by one client.

    Attributes:
        admin: The client.
        config: The cluster, for messages, and the table that is filled from the topic.
        topic: The topic that the run began with.
    """

    admin: Admin
    config: PipelineConfig
    topic: Topic

    def require_same(self) -> None:
        """Make sure that what was read so far is of this topic; without an answer it is taken for granted.

        Spark's source knows partitions and offsets alone. A topic that was recreated, and has as many records
        as the old one had, would be read on in the middle.

        Raises:
            SourceError: The topic was recreated or deleted since the run began.
        """
        kafka = self.config.kafka
        try:
            # A broker that was started a moment ago may not know of it yet.
            found = self._ask() or self._ask(after_s=_AGAIN_AFTER_S)
        except Py4JJavaError as error:
            said = kafka_error_text(error)
            _log.warning("topic %s: whether it was recreated is unknown: %s", self.topic.name, said)
            return
        if found is None:
            raise SourceError(
                f"{kafka.setting('topic')}: topic '{self.topic.name}' was deleted while it was read, so what"
                f" {self.config.table('bronze')} lacks of it is gone. Nothing of this micro-batch was"
                " written. See docs/runbook.md, 'The topic was recreated'"
            )
        refuse_other_topic(self.config, self.topic.topic_id, found)

    def _ask(self, after_s: float = 0.0) -> Topic | None:
        """Return the topic as it is now; None if there is none."""
        time.sleep(after_s)
        options = self.admin.jvm.org.apache.kafka.clients.admin.DescribeTopicsOptions().timeoutMs(_ANSWER_MS)
        try:
            return topic_of(describe_topic(self.admin, self.config.kafka, self.topic.name, None, options))
        except ConfigError:
            return None


@contextmanager
def topic_watch(spark: SparkSession, config: PipelineConfig, topic: Topic) -> Iterator[TopicWatch]:
    """Yield a watch of a topic for the length of a run.

    Raises:
        ConfigError: The client refuses its settings.
        InfrastructureError: The cluster's name is not found.
    """
    with open_admin(spark, config.kafka) as admin:
        yield TopicWatch(admin, config, topic)
