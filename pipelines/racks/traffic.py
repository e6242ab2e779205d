"""What a run read from which rack: by the executors' own byte counters, and by the driver's placement."""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

from pipelines.config.kafka import KafkaConfig
from pipelines.config.values import RackMode
from pipelines.racks.topology import broker_racks
from pipelines.spark.stream_metrics import StreamMetric

Received = Mapping[tuple[str, str], Mapping[int, int]]
"""Bytes by executor (its name and rack) and broker."""

_TOLD_EVERY_S: Final = 1.5
_SAME_TIMES: Final = 2
_TOLD_WITHIN_S: Final = 10
_UNKNOWN: Final = "?"
_PREFIX: Final = "rack"


@dataclass(frozen=True)
class RackTraffic:
    """What a run has read, by rack.

    Attributes:
        mode: `kafka.rack.mode` as configured.
        received: Bytes by reading rack and serving rack, such as `{"a": {"a": 10, "b": 1}}`, with `?` for an
            unknown rack.
        placement: What the driver decided, in the source's own metrics; empty if it decided nothing.
    """

    mode: RackMode
    received: Mapping[str, Mapping[str, int]]
    placement: Mapping[str, str]

    @property
    def share(self) -> float | None:
        """The share of the bytes that stayed in their rack; None without any."""
        return rack_share(self.received)


class RackTrafficMeter:
    """What is read from the moment on at which this is made.

    Args:
        spark: The session, with the plugin of `pipelines.runtime.own_jar`.
        kafka: The cluster, which is asked for its racks now, so that nothing can fail when all is read.

    Raises:
        InfrastructureError: The cluster does not answer.
    """

    def __init__(self, spark: SparkSession, kafka: KafkaConfig) -> None:
        self._spark = spark
        self._mode = kafka.rack.mode
        self._racks = broker_racks(spark, kafka)
        self._before = received(spark)

    def so_far(self) -> StreamMetric:
        """Return what was read until now, as executors have last reported it, as a metric."""
        return read_bytes(traffic(since(self._before, received(self._spark)), self._racks))

    def measured(self, metrics: Mapping[str, str]) -> RackTraffic:
        """Return what was read until now.

        Args:
            metrics: The source's own, as its last progress had them.
        """
        by_rack = traffic(since(self._before, _settled(self._spark)), self._racks)
        placement = {name: value for name, value in metrics.items() if name.startswith(_PREFIX)}
        return RackTraffic(self._mode, by_rack, placement)


def since(before: Received, now: Received) -> Received:
    """Return what has come between two looks."""
    return {
        executor: {broker: count - before.get(executor, {}).get(broker, 0) for broker, count in got.items()}
        for executor, got in now.items()
    }


def received(spark: SparkSession) -> Received:
    """Return the bytes that each executor got from each broker, by the executor's name and rack."""
    jvm: Any = spark.sparkContext._jvm
    plugin = jvm.oncelake.rack.RackPlugin
    racks = dict(plugin.racks())
    return {
        (name, racks.get(name) or _UNKNOWN): dict(by_broker) for name, by_broker in plugin.received().items()
    }


def _settled(spark: SparkSession) -> Received:
    """Return what executors have counted, once they have reported it all, which they do every second."""
    until = time.monotonic() + _TOLD_WITHIN_S
    now, same = received(spark), 0
    while same < _SAME_TIMES and time.monotonic() < until:
        time.sleep(_TOLD_EVERY_S)
        before, now = now, received(spark)
        same = same + 1 if now == before else 0
    return now


def traffic(got: Received, racks: Mapping[int, str | None]) -> dict[str, dict[str, int]]:
    """Return bytes by the rack that read them and the rack that served them."""
    pairs: dict[str, Counter[str]] = {}
    for (_, reader), by_broker in sorted(got.items()):
        for broker, count in sorted(by_broker.items()):
            if count:
                pairs.setdefault(reader, Counter())[racks.get(broker) or _UNKNOWN] += count
    return {reader: dict(served) for reader, served in pairs.items()}


def rack_share(pairs: Mapping[str, Mapping[str, int]]) -> float | None:
    """Return the share of the bytes that stayed in their rack.

    None without any. An unknown rack counts as another one.
    """
    near, far = _near_and_far(pairs)
    return near / (near + far) if near + far else None


def read_bytes(pairs: Mapping[str, Mapping[str, int]]) -> StreamMetric:
    """Return bytes by the rack that read them and the rack that served them as a metric.

    An unknown rack counts as another one.
    """
    near, far = _near_and_far(pairs)
    text = "Bytes received from brokers, by their rack: that of the executor, or another."
    return StreamMetric("read_bytes", text, "counter", {"own": float(near), "other": float(far)}, "rack")


def _near_and_far(pairs: Mapping[str, Mapping[str, int]]) -> tuple[int, int]:
    whole = sum(sum(served.values()) for served in pairs.values())
    near = sum(served.get(reader, 0) for reader, served in pairs.items() if reader != _UNKNOWN)
    return near, whole - near
