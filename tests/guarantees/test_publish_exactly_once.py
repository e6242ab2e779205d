"""Each row is published once for `read_committed` readers, whoever dies and whenever."""

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from pipelines.fault_points import Point
from pipelines.publishing.progress_reader import progress
from pipelines.publishing.transactional_sink import TransactionalSink
from testbed.rack_cluster import RackCluster, rack_cluster
from testbed.short_lived_settings import BRIEF_JAVA, BRIEF_SPARK
from testbed.waiting import wait_until
from tests.support.kafka import make_topic
from tests.support.publish_app import TIMES, Stream, run, save
from tests.support.publish_faults import IN_DRIVER, IN_TASKS, Fault, Moment, Victim
from tests.support.readers import messages_of

BATCHES, ROWS, SLOTS = 3, 60, 3
FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
COPY_SLOW_TASKS = (
    "spark.speculation=true",
    "spark.speculation.interval=100ms",
    "spark.speculation.quantile=0.3",
    "spark.speculation.minTaskRuntime=2s",
    # Each time a copy takes the slot counts as a failure of the other.
    "spark.task.maxFailures=8",
    "spark.executor.memory=600m",
    "spark.cores.max=2",
)

pytestmark = [pytest.mark.timeout(900)]


class Kill(NamedTuple):
    """Who dies, and when: at a point of a slot of a micro-batch."""

    point: Moment
    victim: Victim
    batch: int = 1
    slot: int = 1


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RackCluster]:
    """A broker that may be killed."""
    with rack_cluster(tmp_path_factory.mktemp("broker"), brokers=("a",), workers=()) as running:
        yield running


@pytest.fixture
def stream(cluster: RackCluster, tmp_path: Path) -> Callable[..., Stream]:
    """Makes a stream of some micro-batches, with a topic of its own."""
    source = tmp_path / "source"
    source.mkdir()
    for batch in range(BATCHES):
        ids = range(batch * ROWS, (batch + 1) * ROWS)
        file = source / f"{batch}.parquet"
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), file)
        # Spark reads the oldest file first.
        os.utime(file, (batch, batch))

    def make(*kills: Kill, blind: bool = False, on: RackCluster = cluster) -> Stream:
        name = f"sink-{os.urandom(4).hex()}"
        client = AdminClient({"bootstrap.servers": on.bootstrap_servers})
        make_topic(client, NewTopic(name, SLOTS, len(on.brokers)))
        faults = tuple(
            Fault(kill.batch, kill.slot, kill.point, kill.victim, f"{tmp_path}/{name}-{number}.fault")
            for number, kill in enumerate(kills)
        )
        return Stream(
            name, name, on.bootstrap_servers, SLOTS, str(source), f"{tmp_path}/{name}", faults, blind
        )

    return make


def start(streams: list[Stream], folder: Path, master: str, *settings: str) -> "subprocess.Popen[bytes]":
    """Starts the app that publishes what is left of the streams."""
    todo, log = folder / "streams.json", folder / "app.log"
    save(streams, todo)
    brief = [setting.removeprefix("spark.conf.") for setting in BRIEF_SPARK]
    with log.open("ab") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.support.publish_app", str(todo), master, *brief, *settings],
            stdout=said,
            stderr=said,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.getcwd(), "JDK_JAVA_OPTIONS": BRIEF_JAVA},  # noqa: PTH109
        )


def broken(stream: Stream) -> Iterator[Fault]:
    """Each fault that has struck a broker, which is then put right."""
    for fault in stream.faults:
        struck = Path(f"{fault.marker}.struck")
        if struck.exists():
            yield fault
            struck.unlink()
            Path(f"{fault.marker}.fixed").touch()


def move_coordinator(cluster: RackCluster, stream: Stream) -> None:
    """Kills the broker that coordinates transactions, where a fault asks for it, and waits for another."""
    for _ in broken(stream):
        before = cluster.leaders("__transaction_state")
        cluster.brokers[before[0]].kill()
        wait_until(partial(has_moved, cluster, before), "another leads")


def has_moved(cluster: RackCluster, before: list[int]) -> bool:
    """Whether another broker coordinates transactions."""
    return cluster.leaders("__transaction_state") not in (before, [-1])


def are_committed(stream: Stream, fault: Fault, slots: set[int]) -> bool:
    """Whether slots have committed the micro-batch in which a fault strikes, with all markers."""
    client = {"bootstrap.servers": stream.servers}
    sink = TransactionalSink(stream.name, stream.topic, stream.slots, client)
    with suppress(KafkaException):
        known = progress(sink.connection, slots, is_stable=True)
        following = fault.batch + 1
        return all(slot in known and known[slot].next_batch >= following for slot in slots) and not any(
            mark.is_begun for mark in known.values()
        )
    return False


def mend_broker(cluster: RackCluster, stream: Stream) -> None:
    """Kills the broker and starts it again, where a fault asks for it.

    What the other slots commit is let through before. Brokers 4.3.1 that start again in the middle of a
    commit, with no other replica, may take its partitions for deleted: the transaction is committed, and its
    partitions never get to know (docs/publishing.md, 'A transaction that hangs'). Where a coordinator dies
    and replicas live, nothing waits.
    """
    for fault in broken(stream):
        is_done = fault.point == Point.SLOT_COMMITTED
        slots = {slot for slot in range(stream.slots) if is_done or slot != fault.slot}
        wait_until(partial(are_committed, stream, fault, slots), "the other slots are committed")
        cluster.brokers[1].kill()
        cluster.brokers[1].again()


def publish(
    cluster: RackCluster,
    streams: list[Stream],
    folder: Path,
    master: str = "local[2,4]",
    *settings: str,
    fix: Callable[[RackCluster, Stream], None] = mend_broker,
    then: str | SparkSession | None = None,
) -> None:
    """Publishes streams to their end: the app is started again as often as a fault has killed it.

    Args:
        cluster: where they go.
        streams: what is published.
        folder: for the app's files.
        master: Spark's.
        settings: more of Spark.
        fix: puts right what a fault has broken.
        then: Spark's master when the app is started again, if it is another; or a session in which the
            streams go on instead.
    """
    kills = sum(fault.victim == "driver" for stream in streams for fault in stream.faults)
    for number in range(1 + kills):
        if number and isinstance(then, SparkSession):
            for stream in [stream for stream in streams if not stream.done.exists()]:
                run(then, stream)
            break
        app = start(streams, folder, then if isinstance(then, str) and number else master, *settings)
        try:
            while app.poll() is None:
                for stream in streams:
                    fix(cluster, stream)
                with suppress(subprocess.TimeoutExpired):
                    app.wait(0.1)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(app.pid, signal.SIGKILL)
        if app.returncode == 0:
            break
        assert app.returncode == -signal.SIGKILL, _ends_of_logs(cluster, folder / "app.log")
    assert [stream.name for stream in streams if not stream.done.exists()] == []


def _ends_of_logs(cluster: RackCluster, app: Path) -> str:
    logs = [app, *(broker.log for broker in cluster.brokers.values())]
    return "\n".join(f"{log}:\n{log.read_text(errors='replace')[-4000:]}" for log in logs)


def hold(stream: Stream) -> None:
    """Each row is there once, with its own payload, for those who read what is committed."""
    assert [fault for fault in stream.faults if not Path(fault.marker).exists()] == [], "has not struck"
    found = messages_of(stream.servers, stream.topic)
    times = Counter(message.key for message in found)
    what = stream.faults
    assert {key: count for key, count in times.items() if count != 1} == {}, what
    assert set(times) == {str(number).encode() for number in range(BATCHES * ROWS)}, what
    assert all(message.value == (message.key or b"") * TIMES for message in found), what


KILLS: list[list[Kill]] = [
    [
        Kill(Point.SLOT_COMMITTED, "worker", batch=0, slot=2),
        Kill(Point.ROWS_PRODUCED, "worker", batch=1, slot=0),
        Kill(Point.SLOT_SENT, "task", batch=2, slot=1),
    ],
    [
        Kill(Point.SLOT_SENT, "broker", batch=0, slot=1),
        Kill(Point.SLOT_COMMITTED, "driver", batch=1, slot=0),
    ],
]
"""Of each stream. Each micro-batch has its own, and what it leaves is what the next one begins with."""
MORE_KILLS: list[tuple[Moment, Victim]] = [
    (Point.SLOT_TAKEN, "worker"),
    (Point.ROWS_PRODUCED, "task"),
    (Point.ROWS_PRODUCED, "driver"),
    (Point.SLOT_SENT, "worker"),
    (Point.SLOT_COMMITTED, "task"),
    ("after the task", "driver"),
    ("after the batch", "driver"),
]


@pytest.fixture
def zombie(stream: Callable[..., Stream]) -> Iterator[Stream]:
    """A stream of which a task is stopped; its process ends with the test."""
    one = stream(Kill(Point.SLOT_SENT, "zombie", batch=1, slot=0))
    yield one
    with suppress(FileNotFoundError, psutil.NoSuchProcess):
        process_of(one).kill()


def process_of(stream: Stream) -> psutil.Process:
    return psutil.Process(int(Path(f"{stream.faults[0].marker}.pid").read_text()))


def test_each_row_once_whoever_dies_and_whenever_and_a_zombie_that_wakes_up_is_fenced(
    spark: SparkSession,
    cluster: RackCluster,
    stream: Callable[..., Stream],
    zombie: Stream,
    tmp_path: Path,
) -> None:
    # The app goes on beside a task that is stopped, until all but this task is killed with the driver.
    # Another driver goes on with what is left.
    streams = [zombie, *(stream(*kills) for kills in KILLS)]
    publish(cluster, streams, tmp_path, "local[3,4]", then=spark)
    for each in streams:
        hold(each)
    process = process_of(zombie)
    assert process.status() == psutil.STATUS_STOPPED
    process.resume()
    refused = Path(f"{zombie.faults[0].marker}.refused")
    wait_until(lambda: refused.exists() and bool(refused.read_text()), "the zombie was refused")
    assert refused.read_text() in FENCED
    hold(zombie)


@pytest.mark.thorough
def test_each_row_once_whoever_else_dies(
    cluster: RackCluster, stream: Callable[..., Stream], tmp_path: Path
) -> None:
    rng = random.Random(7)  # noqa: S311 - nothing secret
    streams = [stream(Kill(*kill, rng.randrange(2), rng.randrange(SLOTS))) for kill in MORE_KILLS]
    publish(cluster, streams, tmp_path)
    for each in streams:
        hold(each)


@pytest.mark.thorough
def test_each_row_once_when_executors_die(
    cluster: RackCluster, stream: Callable[..., Stream], tmp_path: Path
) -> None:
    streams = [stream(Kill(point, "executor")) for point in (Point.ROWS_PRODUCED, Point.SLOT_COMMITTED)]
    publish(cluster, streams, tmp_path, "local-cluster[2,1,600]", "spark.executor.memory=600m")
    for each in streams:
        hold(each)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has 127.0.0.2 without being told to")
@pytest.mark.thorough
def test_each_row_once_when_a_slow_task_is_copied(stream: Callable[..., Stream], tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir()
    # Spark copies a task to another host only.
    hosts = {"a": "127.0.0.1", "b": "127.0.0.2"}
    with rack_cluster(folder, brokers=("a",), workers=("a", "b"), hosts=hosts) as two:
        points = (Point.SLOT_SENT, Point.SLOT_COMMITTED)
        streams = [stream(Kill(point, "straggler"), on=two) for point in points]
        publish(two, streams, tmp_path, two.master, *COPY_SLOW_TASKS)
        for each in streams:
            hold(each)
            slow, first = (Path(f"{each.faults[0].marker}{name}").read_text() for name in ("", ".done"))
            assert slow != first, "no copy has done it"
        refused = Path(f"{streams[0].faults[0].marker}.refused")
        wait_until(lambda: refused.exists() and bool(refused.read_text()), "the slow task was refused")
        assert refused.read_text() in FENCED
        hold(streams[0])


@pytest.mark.thorough
def test_each_row_once_when_the_coordinator_moves(stream: Callable[..., Stream], tmp_path: Path) -> None:
    folder = tmp_path / "brokers"
    folder.mkdir()
    with rack_cluster(folder, workers=(), replicas=3) as three:
        one = stream(Kill(Point.SLOT_SENT, "broker"), on=three)
        publish(three, [one], tmp_path, fix=move_coordinator)
        hold(one)
        assert any(not broker.process.is_running() for broker in three.brokers.values())


@pytest.mark.thorough
def test_two_of_three_write_partitions_committed_and_the_third_failed(
    cluster: RackCluster, stream: Callable[..., Stream], tmp_path: Path
) -> None:
    # The driver dies when the last slot has sent its rows and the two others are done.
    one = stream(Kill(Point.SLOT_SENT, "driver", batch=1, slot=2))
    publish(cluster, [one], tmp_path, "local[1]", then="local[3]")
    hold(one)
    visible = messages_of(one.servers, one.topic, "read_uncommitted")
    assert len(visible) > BATCHES * ROWS, "nothing was rolled back"


@pytest.mark.thorough
def test_without_a_look_at_progress_there_are_duplicates(
    cluster: RackCluster, stream: Callable[..., Stream], tmp_path: Path
) -> None:
    """So these tests can fail."""
    one = stream(Kill(Point.SLOT_COMMITTED, "task"), blind=True)
    publish(cluster, [one], tmp_path)
    with pytest.raises(AssertionError):
        hold(one)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(10))
def test_each_row_once_in_random_runs(
    cluster: RackCluster, stream: Callable[..., Stream], tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)  # noqa: S311 - nothing secret
    streams = []
    for _ in range(20):
        victim: Victim = rng.choice(("task", "worker", "driver", "broker"))
        point: Moment = rng.choice((*IN_TASKS, *IN_DRIVER) if victim in ("task", "driver") else IN_TASKS)
        streams.append(stream(Kill(point, victim, rng.randrange(BATCHES - 1), rng.randrange(SLOTS))))
    publish(cluster, streams, tmp_path)
    for each in streams:
        hold(each)
