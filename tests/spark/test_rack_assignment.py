"""Which executor reads which range: near a replica, balanced by cores, and the same as before."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Ex:
    """An executor."""

    number: str
    rack: str
    cores: int = 1
    host: str = ""


@dataclass(frozen=True)
class Piece:
    """A range of offsets."""

    name: str
    records: int
    racks: frozenset[str]


def assign(
    spark: SparkSession, pieces: list[Piece], executors: list[Ex], before: dict[str, str] | None = None
) -> dict[str, str]:
    """The executor of each range, by the one algorithm there is: the driver's."""
    jvm: Any = spark.sparkContext._jvm
    rack = jvm.oncelake.rack
    ranges, running, known = jvm.java.util.ArrayList(), jvm.java.util.ArrayList(), jvm.java.util.HashMap()
    for piece in pieces:
        racks = jvm.java.util.HashSet()
        for each in piece.racks:
            racks.add(each)
        ranges.add(rack.Range(piece.name, piece.records, racks))
    for ex in executors:
        running.add(rack.Executor(ex.number, ex.host or f"host-{ex.number}", ex.rack, ex.cores))
    for name, number in (before or {}).items():
        known.put(name, number)
    found = rack.Assignment.assign(ranges, running, known)
    return {name: found[name].id() for name in found}


def loads(pieces: list[Piece], executors: list[Ex], given_to: dict[str, str]) -> dict[str, float]:
    """Records by core of each executor."""
    sums: Counter[str] = Counter()
    for piece in pieces:
        sums[given_to[piece.name]] += piece.records
    return {ex.number: sums[ex.number] / ex.cores for ex in executors}


def topic(partitions: int, racks: list[set[str]], records: int = 100_000) -> list[Piece]:
    """Partitions whose replicas lie in the given racks, in turn."""
    return [Piece(f"t-{n}/1", records, frozenset(racks[n % len(racks)])) for n in range(partitions)]


@pytest.mark.parametrize("partitions", [31, 32, 93])
@pytest.mark.parametrize("executors", [3, 31])
def test_no_executor_has_more_than_its_share_where_spark_gives_all_to_one(
    spark: SparkSession, partitions: int, executors: int
) -> None:
    # Spark's own choice: TopicPartition.hashCode is 31 * (31 + partition) + topic.hashCode, modulo executors.
    jvm: Any = spark.sparkContext._jvm
    hashes = [jvm.org.apache.kafka.common.TopicPartition("t", n).hashCode() for n in range(partitions)]
    stock = Counter(code % executors for code in hashes)
    if executors == 31:
        assert list(stock.values()) == [partitions]
    running = [Ex(str(n), "abc"[n % 3]) for n in range(executors)]
    pieces = topic(partitions, [{"a", "b", "c"}])
    found = loads(pieces, running, assign(spark, pieces, running))
    assert max(found.values()) <= 100_000 * -(-partitions // executors)


def test_each_is_read_where_a_replica_is_and_a_rack_that_can_give_only_by_way_of_another_is_relieved(
    spark: SparkSession,
) -> None:
    # All lies in a; what lies in a and b can go to b, and only what lies in b and c on to c.
    pieces = [*topic(4, [{"a"}]), *(Piece(f"u-{n}/1", 100_000, frozenset("ab")) for n in range(4))]
    pieces += [Piece(f"v-{n}/1", 100_000, frozenset("bc")) for n in range(4)]
    running = [Ex("1", "a"), Ex("2", "b"), Ex("3", "c")]
    before = {piece.name: "1" if "a" in piece.racks else "2" for piece in pieces}
    found = assign(spark, pieces, running, before)
    racks = {ex.number: ex.rack for ex in running}
    assert all(racks[found[piece.name]] in piece.racks for piece in pieces)
    assert loads(pieces, running, found) == {"1": 400_000, "2": 400_000, "3": 400_000}


def test_hosts_share_before_the_executors_of_one_host_do(spark: SparkSession) -> None:
    running = [Ex(f"{host}{n}", "a", host=host) for host in ("x", "y", "z") for n in range(3)]
    found = assign(spark, topic(3, [{"a"}]), running)
    assert {number[0] for number in found.values()} == {"x", "y", "z"}


def test_cores_weigh_and_large_ranges_stand_alone(spark: SparkSession) -> None:
    running = [Ex("1", "a", cores=4), Ex("2", "a")]
    pieces = topic(50, [{"a"}])
    found = loads(pieces, running, assign(spark, pieces, running))
    assert found["1"] == pytest.approx(found["2"], rel=0.05)
    uneven = [Piece("big/1", 1_000_000, frozenset("a")), *topic(10, [{"a"}])]
    given_to = assign(spark, uneven, [Ex("1", "a"), Ex("2", "a")])
    assert len({given_to[piece.name] for piece in uneven[1:]} - {given_to["big/1"]}) == 1


def test_what_was_settled_stays_while_sizes_change_a_little_and_executors_come_and_go(
    spark: SparkSession,
) -> None:
    running = [Ex(str(n), "abc"[n % 3]) for n in range(6)]
    pieces = topic(30, [{"a", "b"}, {"b", "c"}, {"c", "a"}])
    first = assign(spark, pieces, running)
    wavy = [Piece(p.name, 100_000 + 3_700 * (n % 5), p.racks) for n, p in enumerate(pieces)]
    assert assign(spark, wavy, running, first) == first
    # One is lost: what the others have stays with them.
    rest = running[1:]
    then = assign(spark, pieces, rest, first)
    orphans = {name for name, number in first.items() if number == "0"}
    moved = {name for name in first if then[name] != first[name]}
    assert orphans <= moved
    assert len(moved - orphans) <= len(orphans)
    # It comes back under another name, and gets its share.
    last = assign(spark, pieces, [*rest, Ex("9", "a")], then)
    assert 3 <= sum(number == "9" for number in last.values()) <= 7


def test_few_records_move_nothing_that_is_settled(spark: SparkSession) -> None:
    running = [Ex("1", "a"), Ex("2", "a")]
    pieces = topic(6, [{"a"}], records=100)
    before = {piece.name: "1" for piece in pieces}
    assert assign(spark, pieces, running, before) == before
    assert len(set(assign(spark, topic(6, [{"a"}]), running, before).values())) == 2


def test_thousands_of_ranges_are_shared_by_hundreds_of_executors_old_and_new(spark: SparkSession) -> None:
    running = [Ex(str(n), "abc"[n % 3], host=f"host-{n // 4}") for n in range(400)]
    pieces = topic(2_000, [{"a", "b"}, {"b", "c"}, {"c", "a"}])
    first = assign(spark, pieces, running)
    found = loads(pieces, running, first)
    assert max(found.values()) <= 600_000
    # A third of the executors is new, and none of them stays idle.
    before = {name: str(int(number) % 260) for name, number in first.items()}
    assert len(set(assign(spark, pieces, running, before).values())) > 350


def test_without_a_near_executor_all_take_part(spark: SparkSession) -> None:
    running = [Ex("1", "a"), Ex("2", "b"), Ex("3", "")]
    pieces = topic(9, [{"z"}, set()])
    assert set(loads(pieces, running, assign(spark, pieces, running)).values()) == {300_000.0}


_racks = st.frozensets(st.sampled_from("abcd"), max_size=3)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    replicas=st.lists(st.tuples(st.integers(0, 500_000), _racks), min_size=1, max_size=40),
    executors=st.lists(
        st.tuples(st.sampled_from(["a", "b", "c", ""]), st.integers(1, 4)), min_size=1, max_size=12
    ),
    shuffled=st.randoms(use_true_random=False),
)
def test_whatever_the_cluster_is_like(
    spark: SparkSession,
    replicas: list[tuple[int, frozenset[str]]],
    executors: list[tuple[str, int]],
    shuffled: Any,
) -> None:
    running = [Ex(str(n), rack, cores) for n, (rack, cores) in enumerate(executors)]
    pieces = [Piece(f"t-{n}/1", records, racks) for n, (records, racks) in enumerate(replicas)]
    before = {piece.name: str(shuffled.randrange(15)) for piece in pieces if shuffled.random() < 0.5}
    found = assign(spark, pieces, running, before)
    assert found.keys() == {piece.name for piece in pieces}
    racks = {ex.number: ex.rack for ex in running}
    for piece in pieces:
        if near := piece.racks & (set(racks.values()) - {""}):
            assert racks[found[piece.name]] in near

    assert assign(spark, pieces, running, found) == found, "what is settled stays"
