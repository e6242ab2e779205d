"""A plain consumer that reads a little of a topic: how fast brokers answer fetches, and which keys come.

It commits nothing and has no group. What it reads is bounded in records, bytes and seconds, whatever the
topic holds. It logs in as the streams do, so a quota of the brokers for their user holds for it, too.
"""

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

from pipelines.config.model import PipelineConfig
from pipelines.kafka.source import client_options
from pipelines.spark.pipeline import Pipeline

SECONDS: Final = 5.0
"""How long a look at a broker, or at a partition, takes at most, but for the time that closing takes."""

THROTTLED_S: Final = 0.1
"""What a broker makes a client wait because of a quota is told from this on."""

# A broker sends a whole batch of records, whatever its size.
_FETCH_BYTES: Final = 64 << 10
_AT_ONCE: Final = 125
_POLL_MS: Final = 200
_CLOSE_S: Final = 1
# Of more brokers, those are asked that lead the partitions that are most behind.
_MOST_BROKERS: Final = 8
_MOST_SECONDS: Final = 10.0
_ANSWERS: Final = 4
_PLACES: Final = 16
_BYTES: Final = 4 << 20
_FETCHES: Final = "consumer-fetch-manager-metrics"


class Unread(NamedTuple):
    """What of a partition is to be read.

    Attributes:
        broker: The id of its leader.
        offsets: From the first one to the end.
    """

    broker: int
    offsets: range


class SampledRecord(NamedTuple):
    """A record of a sample.

    Attributes:
        key: Its key in Kafka; None if it has none.
        offset: Where it lies in its partition.
    """

    key: bytes | None
    offset: int


@dataclass(frozen=True)
class FetchFigures:
    """How brokers answer fetches.

    Attributes:
        latency_s: Seconds until a fetch is answered, on average, by the id of the broker.
        silent: Brokers that have answered no fetch within `SECONDS`.
        throttled_s: The longest time for which a broker made the client wait because of a quota, in seconds.
    """

    latency_s: Mapping[int, float]
    silent: tuple[int, ...] = ()
    throttled_s: float = 0.0


def fetch_figures(pipeline: Pipeline, unread: Mapping[int, Unread]) -> FetchFigures:
    """Fetch the first unread records from each broker, a few times, and return how it answers.

    Args:
        pipeline: The pipeline, as it is for the source of a cluster.
        unread: What is to be read, by partition, of at least one.

    Raises:
        Py4JJavaError: The cluster refuses, or has just deleted what was unread.
    """
    until = time.monotonic() + _MOST_SECONDS
    latency, throttled = dict[int, float | None](), 0.0
    for number, (broker, offsets) in one_for_each_broker(unread).items():
        # Who is not given time to answer is not silent.
        if throttled >= THROTTLED_S or time.monotonic() + SECONDS > until:
            break
        # A client of its own, since the client tells no latency by broker.
        with _reader(pipeline) as reader:
            _fetch(reader, number, offsets)
            latency[broker] = reader.latency_s()
            throttled = max(throttled, reader.throttled_s())
    return FetchFigures(
        {broker: seconds for broker, seconds in latency.items() if seconds is not None},
        tuple(broker for broker, seconds in latency.items() if seconds is None),
        throttled,
    )


def sampled_records(pipeline: Pipeline, partition: int, offsets: range) -> Iterator[SampledRecord]:
    """Yield some 2,000 records at most of a partition, from places that are spread over a range of offsets.

    Args:
        pipeline: The pipeline, as it is for the source of a cluster.
        partition: The partition.
        offsets: The range; Kafka must still cover it.

    Raises:
        Py4JJavaError: The cluster refuses, or has just deleted what is asked for.
    """
    with _reader(pipeline) as reader:
        until = time.monotonic() + SECONDS
        for place in places(offsets):
            reader.assign(partition, place.start)
            yield from _records_at(reader, partition, place, until)


def one_for_each_broker(unread: Mapping[int, Unread]) -> dict[int, Unread]:
    """Return the partition of each broker that is most behind; of many brokers, those of the first eight."""
    by_lag = sorted(unread.items(), key=lambda each: len(each[1].offsets), reverse=True)
    of_broker = dict[int, int]()
    for number, each in by_lag:
        of_broker.setdefault(each.broker, number)
    return {number: unread[number] for number in list(of_broker.values())[:_MOST_BROKERS]}


def places(offsets: range) -> list[range]:
    """Return the parts of a range that are sampled, each from its beginning."""
    parts = max(min(_PLACES, len(offsets) // _AT_ONCE), 1)
    bounds = [offsets.start + len(offsets) * part // parts for part in range(parts + 1)]
    return [range(first, after) for first, after in pairwise(bounds)]


def _fetch(reader: "_Reader", number: int, offsets: range) -> None:
    """Fetch a few times from a partition, or up to its end; not longer than is allowed."""
    until = time.monotonic() + SECONDS
    reader.assign(number, offsets.start)
    while time.monotonic() < until and reader.answers() < _ANSWERS and reader.throttled_s() < THROTTLED_S:
        reader.poll()
        # Where records of a transaction were aborted, a fetch brings none, and moves on.
        if reader.position(number) >= offsets.stop:
            return


def _records_at(reader: "_Reader", partition: int, place: range, until: float) -> Iterator[SampledRecord]:
    """Yield the first records of a place, up to its share of all that may be read."""
    left, begun = _AT_ONCE, reader.consumed_bytes()
    while left and time.monotonic() < until and reader.position(partition) < place.stop:
        records = reader.poll().records(reader.partition(partition))
        for at in range(min(records.size(), left)):
            record = records.get(at)
            if record.offset() >= place.stop:
                return
            left -= 1
            yield SampledRecord(record.key(), record.offset())
        if reader.consumed_bytes() - begun > _BYTES / _PLACES:
            return


@dataclass(frozen=True)
class _Reader:
    """A consumer in the session's JVM.

    Attributes:
        jvm: The JVM, for the consumer's arguments.
        consumer: The consumer, a Java object.
        topic: The topic that it reads.
        client: Its `client.id`.
    """

    jvm: Any
    consumer: Any
    topic: str
    client: str

    def partition(self, number: int) -> Any:
        return self.jvm.org.apache.kafka.common.TopicPartition(self.topic, number)

    def assign(self, number: int, offset: int) -> None:
        """Read a partition from an offset on, and no other."""
        partition = self.partition(number)
        self.consumer.assign(self.jvm.java.util.Collections.singletonList(partition))
        self.consumer.seek(partition, offset)

    def poll(self) -> Any:
        return self.consumer.poll(self.jvm.java.time.Duration.ofMillis(_POLL_MS))

    def position(self, number: int) -> int:
        return int(self.consumer.position(self.partition(number)))

    def answers(self) -> float:
        """Return how many fetches were answered."""
        return self._figure("fetch-total") or 0.0

    def latency_s(self) -> float | None:
        """Return how long a fetch took, on average; None if none was answered."""
        ms = self._figure("fetch-latency-avg")
        return None if ms is None else ms / 1000

    def throttled_s(self) -> float:
        return (self._figure("fetch-throttle-time-max") or 0.0) / 1000

    def consumed_bytes(self) -> float:
        return self._figure("bytes-consumed-total") or 0.0

    def _figure(self, name: str) -> float | None:
        """Return a metric of all fetches; None if it has no value yet."""
        own = self.jvm.java.util.Collections.singletonMap("client-id", self.client)
        metric = self.jvm.org.apache.kafka.common.MetricName(name, _FETCHES, "", own)
        found = self.consumer.metrics().get(metric)
        value = math.nan if found is None else float(found.metricValue())
        return None if math.isnan(value) else value


@contextmanager
def _reader(pipeline: Pipeline) -> Iterator[_Reader]:
    """Yield a consumer; closed afterwards."""
    jvm: Any = pipeline.spark.sparkContext._jvm
    settings = _settings(pipeline.config)
    properties = jvm.java.util.Properties()
    for key, value in settings.items():
        properties.setProperty(key, value)
    as_bytes = jvm.org.apache.kafka.common.serialization.ByteArrayDeserializer
    consumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(properties, as_bytes(), as_bytes())
    try:
        yield _Reader(jvm, consumer, pipeline.config.kafka.topic, settings["client.id"])
    finally:
        consumer.close(jvm.java.time.Duration.ofSeconds(_CLOSE_S))


def _settings(config: PipelineConfig) -> dict[str, str]:
    return {
        "client.id": f"oncelake.{config.env}.{config.name}.lag",
        **client_options(config.kafka),
        "allow.auto.create.topics": "false",
        # Without a group there is no offset to go back to.
        "auto.offset.reset": "none",
        "default.api.timeout.ms": str(int(SECONDS * 1000)),
        "enable.auto.commit": "false",
        "fetch.max.wait.ms": "10",
        "fetch.min.bytes": "1",
        "max.partition.fetch.bytes": str(_FETCH_BYTES),
        "max.poll.records": str(_AT_ONCE),
    }
