"""A consumer group that shows in Kafka how far ingest is, for tools that know lag by committed offsets.

Spark's Kafka source keeps its offsets in the checkpoint alone. Nobody reads by this group: it has no members.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from pipelines.config.kafka import KafkaConfig
from pipelines.errors import InfrastructureError, OncelakeError
from pipelines.kafka.admin import Admin, admin_client
from pipelines.kafka.client_errors import kafka_error_text
from pipelines.spark.stream_metrics import StreamMetric, gauge

Ends = Callable[[], Mapping[int, int]]
"""Returns the offset after the last record, by partition."""

# Brokers forget the offsets of a group without members after offsets.retention.minutes, a week by default.
_AGAIN_AFTER_S: Final = 6 * 3600.0
_RETRY_AFTER_S: Final = 30.0
_LAST_COMMIT_WITHIN_S: Final = 5.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CommitCounts:
    """What became of the commits of a run.

    Attributes:
        made: How many the coordinator took.
        failed: How many it did not.
        last_at: When it took the last one; None if it has taken none.
    """

    made: int = 0
    failed: int = 0
    last_at: datetime | None = None

    def metrics(self) -> Iterator[StreamMetric]:
        """Yield the metrics that show it."""
        by_result = {"made": float(self.made), "failed": float(self.failed)}
        text = "Commits of offsets to the consumer group, by result."
        yield StreamMetric("offset_commits", text, "counter", by_result, "result")
        if self.last_at:
            text = "When offsets were last committed to the consumer group."
            yield gauge("last_offset_commit_timestamp_seconds", text, self.last_at.timestamp())


class OffsetsGroup:
    """Commits offsets in a thread of its own: the stream neither waits for a commit nor fails with it.

    Only the newest offsets are committed: those of a micro-batch that is done while the one before is still
    being committed take their place.

    Args:
        group: The name of the group.
        topic: The topic.
        again_after_s: When the same offsets are committed again, in seconds.
        retry_after_s: When a commit that failed is tried again, in seconds.

    Attributes:
        counts: What became of its commits; replaced, never changed.
    """

    def __init__(
        self,
        group: str,
        topic: str,
        *,
        again_after_s: float = _AGAIN_AFTER_S,
        retry_after_s: float = _RETRY_AFTER_S,
    ) -> None:
        self._group, self._topic = group, topic
        self._again_after_s, self._retry_after_s = again_after_s, retry_after_s
        self._changed = threading.Condition()
        self._next: Ends | None = None
        self._is_closing = False
        self._is_failing = False
        self.counts = CommitCounts()

    def request_commit(self, ends: Ends) -> None:
        """Have offsets committed, which must be in bronze; `ends` is called in the other thread."""
        with self._changed:
            self._next = ends
            self._changed.notify()

    def work(self, spark: SparkSession, kafka: KafkaConfig) -> None:
        """Commit what `request_commit` gives until `close` is called and nothing is left to commit."""
        last: Ends | None = None
        while True:
            try:
                with admin_client(spark, kafka) as admin:
                    while ends := self._wait(last):
                        self._commit(admin, _called(ends))
                        last = ends
                return
            # Py4J's are of a JVM that ends before this thread does.
            except (OncelakeError, Py4JError) as error:
                self._failed(error)
                with self._changed:
                    if self._changed.wait_for(lambda: self._is_closing, self._retry_after_s):
                        return

    def close(self) -> None:
        """Let the thread end, once it has committed what it was given last."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()

    def _wait(self, last: Ends | None) -> Ends | None:
        """Return what is to be committed next, also again after some hours; None once there is no more."""
        with self._changed:
            while not self._changed.wait_for(
                lambda: self._is_closing or self._next is not last, self._again_after_s
            ):
                if last is not None:
                    return last
            return None if self._next is last else self._next

    def _commit(self, admin: Admin, ends: Mapping[int, int]) -> None:
        clients, common = admin.jvm.org.apache.kafka.clients, admin.jvm.org.apache.kafka.common
        offsets = admin.jvm.java.util.HashMap()
        for partition, end in ends.items():
            place = common.TopicPartition(self._topic, partition)
            offsets.put(place, clients.consumer.OffsetAndMetadata(end))
        admin.get(admin.client.alterConsumerGroupOffsets(self._group, offsets).all())
        self.counts = replace(self.counts, made=self.counts.made + 1, last_at=datetime.now(UTC))
        if self._is_failing:
            _log.info("consumer group %s: offsets are committed again", self._group)
        self._is_failing = False

    def _failed(self, error: Exception) -> None:
        self.counts = replace(self.counts, failed=self.counts.failed + 1)
        if not self._is_failing and not self._is_closing:
            _log.warning(
                "consumer group %s: the offsets of ingest are not committed, so lag tools do not see them;"
                " ingest continues. The next try is in %g s. Check that the user may READ the group and that"
                " no consumer is active in it, or set ingest.offsets_group: null. %s",
                *(self._group, self._retry_after_s, error),
            )
        self._is_failing = True


def _called(ends: Ends) -> Mapping[int, int]:
    try:
        return ends()
    except Py4JJavaError as error:
        # The admin client would take it for its own.
        raise InfrastructureError(f"ingest's checkpoint cannot be read: {kafka_error_text(error)}") from None


@contextmanager
def offsets_group(
    spark: SparkSession, kafka: KafkaConfig, group: str | None
) -> Iterator[OffsetsGroup | None]:
    """Yield a group whose commits end with the block, after some seconds at the latest.

    Args:
        spark: The session, whose JVM has the Kafka client.
        kafka: The cluster and the topic.
        group: The name of the group; with None, None is yielded.
    """
    if group is None:
        yield None
        return
    shown = OffsetsGroup(group, kafka.topic)
    thread = threading.Thread(target=shown.work, args=(spark, kafka), name="offsets-group", daemon=True)
    thread.start()
    try:
        yield shown
    finally:
        shown.close()
        thread.join(_LAST_COMMIT_WITHIN_S)
