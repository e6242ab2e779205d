"""Which share of a topic's bytes can be read within a rack, and what would raise it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, get_args

from pipelines.config.clusters import RackConfig
from pipelines.config.values import RackMode
from pipelines.racks.topology import Partition, TopicReplicas

MODES: Final[tuple[RackMode, ...]] = get_args(RackMode)
_WHOLE: Final = 0.995


@dataclass(frozen=True)
class Advice:
    """What is to be said of a topic and the executors that read it.

    Attributes:
        shares: The share of bytes that stays in the rack, by `kafka.rack.mode`, as far as the replicas of
            now decide it. Without placement Spark's choice of executors is blind to racks, so it is the
            mean over them.
        near: For each partition the racks in which a consumer can read it.
        hints: What would raise the share that the configuration has now, the largest obstacle first.
    """

    shares: dict[RackMode, float]
    near: dict[int, list[str]]
    hints: list[str]


def advise(topic: TopicReplicas, executors: Sequence[str], mode: RackMode) -> Advice:
    """Weigh a topic's replicas against the racks of executors.

    Args:
        topic: The topic, with the racks of its brokers.
        executors: The rack of each executor; as many as there are, or one for each of equal numbers.
        mode: What the configuration says now.
    """
    shares = {each: _share(topic, executors, RackConfig(mode=each)) for each in MODES}
    near = {partition.number: sorted(topic.racks_of(partition)) for partition in topic.partitions}
    return Advice(shares, near, _hints(topic, executors, mode, shares))


class CrossRackCost(NamedTuple):
    """What crosses racks.

    Attributes:
        gigabytes: That cross.
        price: Of all of them.
    """

    gigabytes: float
    price: float


def crossing(share: float, gigabytes: float, price: float) -> CrossRackCost:
    """Return how many gigabytes cross racks, and what they cost.

    Args:
        share: Of the bytes that stay in the rack.
        gigabytes: That are read in all.
        price: Of a gigabyte that crosses.
    """
    crossed = (1 - share) * gigabytes
    return CrossRackCost(crossed, crossed * price)


def _share(topic: TopicReplicas, executors: Sequence[str], rack: RackConfig) -> float:
    weights = _weights(topic.partitions)
    return sum(
        weight * _local(topic, partition, executors, rack)
        for partition, weight in zip(topic.partitions, weights, strict=True)
    )


def _weights(partitions: Sequence[Partition]) -> list[float]:
    """Return the share of each partition in the bytes; all alike where sizes are not known."""
    sizes = [partition.size for partition in partitions]
    if not any(sizes):
        sizes = [1] * len(partitions)
    return [size / sum(sizes) for size in sizes]


def _local(topic: TopicReplicas, partition: Partition, executors: Sequence[str], rack: RackConfig) -> float:
    """Return the chance that a partition is read within the rack."""
    if not executors:
        return 0.0
    of_leader = {topic.racks.get(partition.leader)} if partition.leader is not None else set()
    near = of_leader if rack.is_off else topic.racks_of(partition)
    hits = sum(executor in near for executor in executors)
    return float(hits > 0) if rack.assigns_partitions else hits / len(executors)


def _hints(
    topic: TopicReplicas, executors: Sequence[str], mode: RackMode, shares: dict[RackMode, float]
) -> list[str]:
    hints = []
    named = {broker for partition in topic.partitions for broker in partition.replicas}
    if away := sorted(named - set(topic.racks)):
        hints.append(f"brokers {', '.join(map(str, away))} have replicas, and are not in the cluster")
    if headless := [str(partition.number) for partition in topic.partitions if partition.leader is None]:
        hints.append(f"partitions {', '.join(headless)} have no leader and cannot be read")
    if without := [str(number) for number, rack in topic.racks.items() if not rack]:
        hints.append(f"brokers {', '.join(without)} have no rack: set broker.rack on them")
    if topic.selectors is None:
        hints.append("replica.selector.class of brokers is unknown (needs DescribeConfigs on the cluster)")
    elif lacking := [str(number) for number, selector in topic.selectors.items() if not selector]:
        hints.append(
            f"brokers {', '.join(lacking)} send all consumers to leaders: set replica.selector.class to"
            " org.apache.kafka.common.replica.RackAwareReplicaSelector on them"
        )
    best = shares["placement"]
    if shares[mode] < best - (1 - _WHOLE):
        better: RackMode = "client" if shares["client"] >= _WHOLE * best else "placement"
        hints.append(f"kafka.rack.mode: {better} would raise the share to {shares[better]:.2f}")
    racks = {rack for rack in topic.racks.values() if rack}
    if empty := sorted(racks - set(executors)):
        hints.append(f"no executor runs in {', '.join(empty)}")
    if strange := sorted(set(executors) - racks):
        hints.append(
            f"no broker is in {', '.join(strange)}: check that executors and brokers use the same names for"
            " racks (zone ids or zone names)"
        )
    copies = Counter(len({topic.racks.get(b) for b in partition.replicas}) for partition in topic.partitions)
    few = sum(count for spread, count in copies.items() if spread < min(len(racks), 3))
    if few and racks:
        hints.append(
            f"{few} of {len(topic.partitions)} partitions have replicas in fewer than {min(len(racks), 3)}"
            " racks: spread or add replicas (oncelake rack moves), then placement has more to choose from"
        )
    return hints
