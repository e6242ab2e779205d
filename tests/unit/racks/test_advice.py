"""What a topic's replicas and the executors' racks allow, and the plan that spreads replicas."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.errors import ConfigError
from pipelines.racks.advice import MODES, advise, crossing
from pipelines.racks.reassignment import reassignment, spread
from pipelines.racks.topology import Partition, TopicReplicas

THREE = {1: "a", 2: "b", 3: "c"}
AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def topic(
    *replicas: tuple[int, ...], racks: dict[int, str | None] | None = None, selector: str = AWARE
) -> TopicReplicas:
    known = racks or dict(THREE)
    partitions = tuple(Partition(n, each[0], each, each, 0) for n, each in enumerate(replicas))
    return TopicReplicas("flights", known, dict.fromkeys(known, selector), partitions)


def test_shares_are_those_of_the_measured_table() -> None:
    """One executor in each of three racks, leaders spread evenly."""
    executors = ["a", "b", "c"]
    whole = topic((1, 2, 3), (2, 3, 1), (3, 1, 2))
    single = topic((1,), (2,), (3,))
    pairs = topic((1, 2), (2, 3), (3, 1))
    shares = [
        [round(advise(each, executors, "off").shares[mode], 3) for mode in MODES]
        for each in (whole, pairs, single)
    ]
    assert shares == [[0.333, 1.0, 1.0], [0.333, 0.667, 1.0], [0.333, 0.333, 1.0]]


def test_bytes_weigh_where_they_are_known_and_cost_what_they_cost() -> None:
    large, small = Partition(0, 1, (1,), (1,), 900), Partition(1, 2, (2,), (2,), 100)
    uneven = TopicReplicas("flights", THREE, None, (large, small))
    share = advise(uneven, ["a"], "off").shares["off"]
    assert share == pytest.approx(0.9)
    assert crossing(share, 1000, 0.02) == pytest.approx((100, 2))


def test_a_follower_that_is_down_or_a_cluster_without_selector_is_not_read() -> None:
    down = TopicReplicas("flights", THREE, None, (Partition(0, 1, (1, 2, 3), (1, 3), 0),))
    assert advise(down, ["a", "b", "c"], "off").near == {0: ["a", "c"]}
    deaf = advise(topic((1, 2, 3), selector=""), ["b"], "placement")
    assert deaf.shares == {"off": 0.0, "client": 0.0, "placement": 0.0}
    assert "brokers 1, 2, 3 send all consumers to leaders: set replica.selector.class" in deaf.hints[0]


def test_hints_name_what_is_in_the_way() -> None:
    half = topic((1, 2), racks={1: "a", 2: None, 3: "c"})
    said = "\n".join(advise(half, ["a", "use1-az1"], "off").hints)
    assert "brokers 2 have no rack" in said
    assert "no executor runs in c" in said
    assert "no broker is in use1-az1: check that executors and brokers use the same names for" in said
    assert "kafka.rack.mode: placement would raise the share to 1.00" in said
    assert advise(topic((1, 2, 3), (2, 3, 1)), ["a", "b", "c"], "client").hints == []


def test_replicas_are_spread_by_the_fewest_moves() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    badly = topic((1, 2, 3), (1, 3, 5), (1, 2), (3, 4, 5), racks=racks)
    moved = spread(badly)
    expected = {0: (1, 6, 3), 2: (1, 4), 3: (3, 2, 5)}
    assert {each.number: each.replicas for each in moved} == expected
    assert reassignment("flights", moved[:1]) == {
        "version": 1,
        "partitions": [{"topic": "flights", "partition": 0, "replicas": [1, 6, 3]}],
    }
    with pytest.raises(ConfigError, match="brokers 2 have no rack"):
        spread(topic((1, 2), racks={1: "a", 2: None}))


@given(
    racks=st.lists(st.sampled_from("abc"), min_size=3, max_size=7),
    data=st.data(),
)
def test_after_the_plan_no_rack_has_two_while_another_has_none(racks: list[str], data: st.DataObject) -> None:
    known: dict[int, str | None] = dict(enumerate(racks))
    chosen = st.lists(st.sampled_from(sorted(known)), min_size=1, max_size=3, unique=True).map(tuple)
    badly = topic(*data.draw(st.lists(chosen, min_size=1, max_size=12)), racks=known)
    moved = {each.number: each.replicas for each in spread(badly)}
    for partition in badly.partitions:
        after = moved.get(partition.number, partition.replicas)
        counts = Counter(known[broker] for broker in after)
        assert len(set(after)) == len(after) == len(partition.replicas)
        assert after[0] == partition.replicas[0], "the leader stays"
        assert max(counts.values()) == 1 or len(counts) == len(set(racks))
        lacking = min(len(set(racks)), len(after)) - len({known[b] for b in partition.replicas})
        assert sum(old != new for old, new in zip(partition.replicas, after, strict=True)) == lacking
