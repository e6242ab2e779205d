"""Three brokers in three racks, and a standalone Spark with a worker in each, on this machine."""

import base64
import os
import re
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil
import pyspark
from confluent_kafka import ElectionType, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pipelines.errors import InfrastructureError
from pipelines.runtime.jars import ensure_jars
from pipelines.runtime.java import find_java
from pipelines.runtime.local_broker import CLUSTER_ID, LOG4J, unused_ports
from testbed.short_lived_settings import BRIEF_JAVA
from testbed.waiting import wait_until

RACKS: Final = ("a", "b", "c")
SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_WITHIN_S: Final = 120.0
_SPARK_HOME: Final = Path(pyspark.__file__).parent


@dataclass
class Process:
    """What was started; it and its children end together."""

    process: psutil.Popen
    log: Path

    def kill(self) -> None:
        """End it at once."""
        with suppress(psutil.NoSuchProcess):
            for child in self.process.children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    child.kill()
            self.process.kill()
        self.process.wait(_WITHIN_S)


@dataclass
class Server(Process):
    """What can be started again after it was killed, with what it has kept."""

    start: Callable[[], psutil.Popen]

    def again(self) -> None:
        """Start it again."""
        self.process = self.start()


@dataclass
class RackCluster:
    """What runs.

    Attributes:
        bootstrap_servers: of the brokers.
        master: the address of Spark's master.
        folder: everything that they write.
        hosts: the address of the worker of a rack, unless it is 127.0.0.1.
        brokers: the brokers' processes, by id.
        workers: the workers' processes, by rack.
    """

    bootstrap_servers: str
    master: str
    folder: Path
    hosts: Mapping[str, str]
    brokers: dict[int, Server] = field(default_factory=dict)
    workers: dict[str, Server] = field(default_factory=dict)

    def stop(self) -> None:
        """End brokers and workers."""
        for each in (*self.workers.values(), *self.brokers.values()):
            each.kill()

    @property
    def admin(self) -> AdminClient:
        """A client of the cluster."""
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

    def create(self, topic: str, replicas: Sequence[Sequence[int]]) -> None:
        """Make a topic whose partitions lie on the given brokers, the first of which leads."""
        placed = [list(each) for each in replicas]
        made = NewTopic(topic, num_partitions=len(placed), replica_assignment=placed)
        # Its answers come for as long as the client lives.
        admin = self.admin
        admin.create_topics([made])[topic].result(_WITHIN_S)
        wait_until(lambda: topic in admin.list_topics(timeout=10).topics, f"topic {topic} is there")

    def fill(self, topic: str, partitions: int, records: int, size: int) -> None:
        """Send records of a size in bytes, the same number to each partition."""
        producer = Producer({"bootstrap.servers": self.bootstrap_servers, "acks": "all", "linger.ms": 20})
        for number in range(records):
            value = os.urandom(size // 2).hex()
            while True:
                with suppress(BufferError):
                    producer.produce(topic, value, partition=number % partitions)
                    break
                # What the brokers have taken makes room.
                producer.poll(0.1)
        if producer.flush(_WITHIN_S):
            raise InfrastructureError(f"{topic}: the brokers did not take all records in time")

    def in_sync(self, topic: str) -> int:
        """Return the number of in-sync replicas of the partition that has the fewest."""
        partitions = self.admin.list_topics(topic, timeout=10).topics[topic].partitions.values()
        return min(len(partition.isrs) for partition in partitions)

    def leaders(self, topic: str) -> list[int]:
        """Return the leader of each partition."""
        partitions = self.admin.list_topics(topic, timeout=10).topics[topic].partitions
        return [partitions[number].leader for number in sorted(partitions)]

    def move_leaders(self, topic: str) -> None:
        """Make the first replica of each partition its leader; do not wait for it."""
        partitions = [TopicPartition(topic, number) for number in range(len(self.leaders(topic)))]
        admin = self.admin
        admin.elect_leaders(ElectionType.PREFERRED, partitions).result(_WITHIN_S)

    def kill_executor(self, rack: str) -> None:
        """Kill the executor of a rack; its worker starts another."""
        for child in self.workers[rack].process.children(recursive=True):
            if any("CoarseGrainedExecutorBackend" in word for word in child.cmdline()):
                child.kill()
                return
        raise InfrastructureError(f"no executor runs in rack {rack}")

    def start_worker(self, rack: str) -> None:
        """Start a worker whose executors are in a rack, as `oncelake-rack` would have told them."""
        told = {"NODE_RACK": rack, "SPARK_EXECUTOR_ATTRIBUTE_RACK": rack}
        host = self.hosts.get(rack, "127.0.0.1")
        command = ["org.apache.spark.deploy.worker.Worker", "--host", host, "--webui-port", "0"]
        command += ["--cores", "1", "--memory", "1g", "--work-dir", str(self.folder / f"work-{rack}")]
        self.workers[rack] = _spark([*command, self.master], self.folder / f"worker-{rack}.log", told)
        wait_for_text(self.workers[rack], "Successfully registered with master")


def wait_for_text(started: Process, text: str) -> None:
    """Wait until a server's log has a text."""

    def found() -> bool:
        said = started.log.read_text(errors="replace")
        if not started.process.is_running():
            raise InfrastructureError(f"{started.log.name} ended: {said[-3000:]}")
        return text in said

    wait_until(found, f"{started.log.name} says {text!r}")


@contextmanager
def rack_cluster(
    folder: Path,
    brokers: Sequence[str] = RACKS,
    workers: Sequence[str] = RACKS,
    replicas: int = 1,
    hosts: Mapping[str, str] | None = None,
) -> Iterator[RackCluster]:
    """Run the cluster for the length of a block.

    Args:
        folder: where it writes.
        brokers: the rack of each broker, whose ids count from 1.
        workers: the rack of each worker; none without a Spark.
        replicas: of what the brokers keep of groups and transactions.
        hosts: the address of the worker of a rack, unless it is 127.0.0.1.
    """
    count = len(brokers)
    ports = unused_ports(2 * count + 1)
    clients, controllers, master_port = ports[:count], ports[count : 2 * count], ports[-1]
    voters = ",".join(f"{n}@127.0.0.1:{port}" for n, port in enumerate(controllers, 1))
    shared = (
        f"controller.quorum.voters={voters}\n"
        f"offsets.topic.replication.factor={replicas}\n"
        f"transaction.state.log.replication.factor={replicas}\n"
    )
    servers = ",".join(f"127.0.0.1:{port}" for port in clients)
    cluster = RackCluster(servers, f"spark://127.0.0.1:{master_port}", folder, hosts or {})
    with ExitStack() as stack:
        stack.callback(cluster.stop)
        for number, rack in enumerate(brokers, 1):
            ours = (clients[number - 1], controllers[number - 1])
            cluster.brokers[number] = _broker(folder / f"broker-{number}", number, rack, ours, shared)
        wait_until(lambda: _answers(cluster, count), f"{count} brokers answer")
        if not workers:
            yield cluster
            return
        command = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--webui-port", "0"]
        master = _spark([*command, "--port", str(master_port)], folder / "master.log", {})
        stack.callback(master.kill)
        wait_for_text(master, "I have been elected leader")
        for rack in workers:
            cluster.start_worker(rack)
        yield cluster


def _answers(cluster: RackCluster, count: int) -> bool:
    with suppress(KafkaException):
        return len(cluster.admin.list_topics(timeout=2).brokers) == count
    return False


def _broker(home: Path, number: int, rack: str, ports: tuple[int, int], shared: str) -> Server:
    home.mkdir()
    (home / "log4j2.properties").write_text(LOG4J)
    properties = home / "server.properties"
    properties.write_text(
        f"""\
process.roles=broker,controller
node.id={number}
broker.rack={rack}
replica.selector.class={SELECTOR}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{ports[0]},CONTROLLER://127.0.0.1:{ports[1]}
advertised.listeners=PLAINTEXT://127.0.0.1:{ports[0]}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={home}/data
offsets.topic.num.partitions=1
transaction.state.log.num.partitions=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
auto.create.topics.enable=false
auto.leader.rebalance.enable=false
replica.lag.time.max.ms=5000
broker.session.timeout.ms=6000
{shared}"""
    )
    java = [str(find_java().executable), "-Xmx320m", *BRIEF_JAVA.split()]
    java += [f"-Dlog4j2.configurationFile={home}/log4j2.properties"]
    java += ["-cp", os.pathsep.join(map(str, ensure_jars("broker")))]
    first = home.with_name("broker-1")
    if home == first:
        formatting = ["kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID, "--config"]
        subprocess.run([*java, *formatting, str(properties)], check=True, stdout=subprocess.DEVNULL)
        # As it is before that broker starts, for the others.
        shutil.copytree(home / "data", first.with_name("formatted"))
    else:
        _as_formatted(first.with_name("formatted"), home / "data", number)
    return _start([*java, "kafka.Kafka", str(properties)], home.with_suffix(".log"), {})


def _as_formatted(formatted: Path, data: Path, number: int) -> None:
    """Make the folder of a broker from that of the first, which spares a Java that does the same."""
    shutil.copytree(formatted, data)
    meta = data / "meta.properties"
    own = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    text = re.sub(r"(?m)^node\.id=.*$", f"node.id={number}", meta.read_text())
    meta.write_text(re.sub(r"(?m)^directory\.id=.*$", f"directory.id={own}", text))


def _spark(command: Sequence[str], log: Path, told: Mapping[str, str]) -> Server:
    java = [str(find_java().executable), "-Xmx256m", *BRIEF_JAVA.split()]
    class_path = str(_SPARK_HOME / "jars" / "*")
    # The folder that pip installs does not tell its version of Scala to those who start executors.
    spark = {"SPARK_HOME": str(_SPARK_HOME), "SPARK_SCALA_VERSION": "2.13"}
    spark["JAVA_HOME"] = str(find_java().home)
    return _start([*java, "-cp", class_path, *command], log, {**spark, **told})


def _start(command: Sequence[str], log: Path, more: Mapping[str, str]) -> Server:
    def start() -> psutil.Popen:
        with log.open("a") as said:
            return psutil.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **more},
            )

    return Server(start(), log, start)
