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
        running.add(java_executor(jvm, ex))
    for name, number in (before or {}).items():
        known.put(name, number)
    found = rack.Assignment.assign(ranges, running, known)
    return {name: found[name].id() for name in found}


def java_executor(jvm: Any, ex: Ex) -> Any:
    return jvm.oncelake.rack.Executor(ex.number, ex.host or f"host-{ex.number}", ex.rack, ex.cores)


def loads(pieces: list[Piece], executors: list[Ex], given_to: dict[str, str]) -> dict[str, float]:
    """Records by core of each executor."""
    sums: Counter[str] = Counter()
    for piece in pieces:
        sums[given_to[piece.name]] += piece.records
    return {ex.number: sums[ex.number] / ex.cores for ex in executors}


def shares(pieces: list[Piece], executors: list[Ex]) -> float:
    """What a core would read if everything were spread over all."""
    return sum(max(piece.records, 1) for piece in pieces) / sum(ex.cores for ex in executors)


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


@pytest.mark.thorough
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


def test_an_executor_is_not_idle_while_another_has_twice_its_share(spark: SparkSession) -> None:
    pieces = topic(8, [{"a"}])
    running = [Ex("1", "a"), Ex("2", "b"), Ex("3", "")]
    found = assign(spark, pieces, running)
    spread = loads(pieces, running, found)
    share = 800_000 / 3
    assert max(spread.values()) < 2 * share
    assert min(spread.values()) > 0
    assert assign(spark, pieces, running, found) == found, "what is lent stays"
    # Where its own rack has room again, each is read there.
    more = [*running, *(Ex(str(n), "a") for n in range(4, 11))]
    racks = {ex.number: ex.rack for ex in more}
    assert {racks[number] for number in assign(spark, pieces, more, found).values()} == {"a"}


def test_one_large_range_is_not_taken_from_its_rack(spark: SparkSession) -> None:
    pieces = [Piece("big/1", 1_000_000, frozenset("a"))]
    assert assign(spark, pieces, [Ex("1", "a"), Ex("2", "b")]) == {"big/1": "1"}


def test_the_rack_s_other_hosts_come_before_any(spark: SparkSession) -> None:
    running = [Ex("1", "a", host="x"), Ex("2", "a", host="z"), Ex("3", "b", host="w"), Ex("4", "a", host="y")]
    assert locations(spark, running[0], running) == ["executor_x_1", "y", "z"]
    assert locations(spark, running[2], running) == ["executor_w_3"]
    nowhere = [Ex("1", "", host="x"), Ex("2", "", host="y")]
    assert locations(spark, nowhere[0], nowhere) == ["executor_x_1"]


def locations(spark: SparkSession, given_to: Ex, running: list[Ex]) -> list[str]:
    jvm: Any = spark.sparkContext._jvm
    executors = jvm.java.util.ArrayList()
    for ex in running:
        executors.add(java_executor(jvm, ex))
    return list(jvm.oncelake.rack.Locations.of(java_executor(jvm, given_to), executors))


def test_a_broker_that_does_not_answer_is_as_it_was(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._jvm
    known = jvm.oncelake.rack.Selectors()
    take(jvm, known, {1: "", 2: "org.example.Selector"})
    assert (known.isDeaf(1), known.isDeaf(2), known.isDeaf(3)) == (True, False, False)
    take(jvm, known, {1: None, 2: "org.example.Selector"})
    assert (known.isDeaf(1), known.isDeaf(2)) == (True, False)
    take(jvm, known, {1: "org.example.Selector", 2: ""})
    assert (known.isDeaf(1), known.isDeaf(2)) == (False, True)


def take(jvm: Any, known: Any, answers: dict[int, str | None]) -> None:
    """Answers of brokers as the admin client gives them; None is one that does not come."""
    admin, given_in = jvm.org.apache.kafka.clients.admin, jvm.java.util.HashMap()
    for broker, selector in answers.items():
        answer = jvm.org.apache.kafka.common.internals.KafkaFutureImpl()
        if selector is None:
            answer.completeExceptionally(jvm.org.apache.kafka.common.errors.TimeoutException("no answer"))
        else:
            entries = jvm.java.util.ArrayList()
            entries.add(admin.ConfigEntry("replica.selector.class", selector))
            answer.complete(admin.Config(entries))
        given_in.put(broker, answer)
    known.take(given_in, 1)


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
    spread, share = loads(pieces, running, found), shares(pieces, running)
    for piece in pieces:
        near = piece.racks & (set(racks.values()) - {""})
        if near and racks[found[piece.name]] not in near:
            # Lent: at home all have enough.
            home = [ex for ex in running if ex.rack in near]
            assert min(spread[ex.number] + piece.records / ex.cores for ex in home) > share
    if not all(spread.values()):
        several = {number for number, count in Counter(found.values()).items() if count > 1}
        # A few records move nothing.
        small = [p for p in pieces if found[p.name] in several and 20_000 < p.records <= share]
        assert not [p for p in small if spread[found[p.name]] >= 2 * share]
    assert assign(spark, pieces, running, found) == found, "what is settled stays"
