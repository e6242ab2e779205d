"""A plan that spreads replicas over racks with the fewest moves, for Kafka's own reassignment tool."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pipelines.errors import ConfigError, InfrastructureError
from pipelines.racks.topology import Partition, TopicReplicas


def spread(topic: TopicReplicas) -> tuple[Partition, ...]:
    """Return the partitions whose replicas have to move, as they ought to be.

    Each partition ends with its replicas in as many racks as there are, up to its number of replicas. A
    replica moves only if another of its partition is in the same rack while a rack has none, and it moves to
    the broker of such a rack that holds the fewest replicas of the topic. Leaders stay where they are.

    Raises:
        ConfigError: A broker has no rack.
        InfrastructureError: A broker that ought to hold replicas is not there.
    """
    replica_counts = Counter(broker for partition in topic.partitions for broker in partition.replicas)
    if away := sorted(replica_counts.keys() - topic.racks.keys()):
        raise InfrastructureError(
            f"brokers {', '.join(map(str, away))} have replicas of {topic.name} and are not in the cluster;"
            " start them, or replace them, before replicas are moved"
        )
    if without := [str(number) for number, rack in topic.racks.items() if not rack]:
        raise ConfigError(
            f"brokers {', '.join(without)} have no rack, so replicas cannot be spread: set broker.rack"
        )
    racks = {number: str(rack) for number, rack in topic.racks.items()}
    replica_counts.update(dict.fromkeys(racks, 0))
    moved = []
    for partition in topic.partitions:
        replicas = _spread(partition, racks, replica_counts)
        if replicas != partition.replicas:
            moved.append(replace(partition, replicas=replicas))
    return tuple(moved)


def reassignment(topic: str, partitions: Sequence[Partition]) -> dict[str, object]:
    """Return what `kafka-reassign-partitions --reassignment-json-file` reads.

    Args:
        topic: The topic.
        partitions: With the replicas that they should have.
    """
    return {
        "version": 1,
        "partitions": [
            {"topic": topic, "partition": each.number, "replicas": list(each.replicas)} for each in partitions
        ],
    }


def _spread(partition: Partition, racks: Mapping[int, str], replica_counts: Counter[int]) -> tuple[int, ...]:
    placed = list(partition.replicas)
    # The leader's rack is taken from the beginning, wherever in the list it stands.
    seen = {racks[partition.leader]} if partition.leader in partition.replicas else set()
    for position, broker in enumerate(partition.replicas):
        rack = racks[broker]
        free = set(racks.values()) - {racks[each] for each in placed}
        if broker == partition.leader or rack not in seen or not free:
            seen.add(rack)
            continue
        to = min(
            (each for each in racks if racks[each] in free), key=lambda each: (replica_counts[each], each)
        )
        replica_counts[broker] -= 1
        replica_counts[to] += 1
        placed[position] = to
        seen.add(racks[to])
    return tuple(placed)
