"""Three brokers on this machine, each a process that can be killed, behind a proxy that can be cut."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from chaos.disks import mount_disk, unmount_disk
from chaos.proxy import Proxy
from chaos.schedule import BROKERS
from pipelines.errors import InfrastructureError
from pipelines.runtime.jars import ensure_jars
from pipelines.runtime.java import find_java
from pipelines.runtime.local_broker import CLUSTER_ID, LOG4J
from testbed.waiting import wait_until

_LASTING: Final = range(15_000, 30_000)
_WITHIN_S: Final = 120.0
_STOP_S: Final = 20.0
_ACL_S: Final = 10.0
_JAVA: Final = ("-Xmx320m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
# Events are of years ago: they may neither expire nor cut the log into a segment a day.
_COMMON: Final = """\
process.roles=broker,controller
controller.listener.names=CONTROLLER
inter.broker.listener.name=BROKERS
listener.security.protocol.map=CLIENTS:PLAINTEXT,BROKERS:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT
default.replication.factor=3
min.insync.replicas=2
offsets.topic.replication.factor=3
offsets.topic.num.partitions=2
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
transaction.state.log.num.partitions=2
share.coordinator.state.topic.replication.factor=3
share.coordinator.state.topic.min.isr=2
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
log.retention.ms=-1
log.roll.hours=876000
replica.lag.time.max.ms=5000
broker.session.timeout.ms=6000
unclean.leader.election.enable=false
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
super.users=User:broker
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
sasl.mechanism.controller.protocol=PLAIN
"""
# Of brokers among each other: clients need none, and are somebody else to the rules on permissions.
_LOGIN: Final = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="broker" password="broker"'
    ' user_broker="broker";'
)
_WHO: Final = "User:ANONYMOUS"
_ANY: Final = "*"


@dataclass
class Broker:
    """A broker, which is a controller as well.

    Attributes:
        home: its files.
        proxy: where clients connect.
        peers: where the other brokers connect.
        has_own_disk: whether its data have a file system of their own, which can be filled.
        process: it, since its last start.
    """

    home: Path
    proxy: Proxy
    peers: Proxy
    has_own_disk: bool = False
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def data(self) -> Path:
        """The folder of its data."""
        return self.home / "data"

    @property
    def has_ended(self) -> bool:
        """Whether it was started and does not run any more."""
        return self.process is not None and self.process.poll() is not None

    def start(self) -> None:
        """Start it, or start it again with what it has kept."""
        java = [
            str(find_java().executable),
            *_JAVA,
            f"-Dlog4j2.configurationFile={self.home}/log4j2.properties",
        ]
        command = [*java, "-cp", os.pathsep.join(map(str, ensure_jars("broker"))), "kafka.Kafka"]
        with self.home.with_suffix(".log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, str(self.home / "server.properties")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(number)

    def stop(self) -> None:
        """Ask it to end, as an operator does; it hands over what it leads."""
        self.send(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            if self.process:
                self.process.wait(_STOP_S)
        self.kill()

    def kill(self) -> None:
        """End it at once."""
        self.send(signal.SIGKILL)
        if self.process:
            self.process.wait(_WITHIN_S)


@dataclass(frozen=True)
class Denied:
    """A permission that clients do not have.

    Attributes:
        operation: `Read` or `Write`.
        name: of the topic, or what transactional ids begin with.
        is_transactional_id: which of them.
    """

    operation: str
    name: str
    is_transactional_id: bool = False

    @property
    def pattern(self) -> ResourcePatternType:
        """How the name is meant."""
        return ResourcePatternType.PREFIXED if self.is_transactional_id else ResourcePatternType.LITERAL


@dataclass(frozen=True)
class Cluster:
    """What runs.

    Attributes:
        brokers: by their ids.
    """

    brokers: dict[int, Broker]

    @property
    def servers(self) -> str:
        """The addresses for clients, which are those of the proxies."""
        return ",".join(f"127.0.0.1:{broker.proxy.port}" for broker in self.brokers.values())

    @property
    def admin(self) -> AdminClient:
        """A client of the cluster."""
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def is_whole(self) -> bool:
        """Return whether all brokers answer, and all replicas are in sync."""
        with suppress(KafkaException):
            found = self.admin.list_topics(timeout=5)
            partitions = [each for topic in found.topics.values() for each in topic.partitions.values()]
            return len(found.brokers) == len(self.brokers) and all(
                len(each.isrs) == len(each.replicas) and each.leader >= 0 for each in partitions
            )
        return False

    def create(self, topic: str, partitions: int) -> None:
        """Make a topic with three replicas, and wait until it is known."""
        # Its answers come for as long as the client lives.
        admin = self.admin
        admin.create_topics([NewTopic(topic, partitions, 3)])[topic].result(_WITHIN_S)
        wait_until(lambda: topic in admin.list_topics(timeout=10).topics, f"topic {topic} is there")

    def deny(self, denied: "Denied") -> None:
        """Take a permission away from all clients.

        Raises:
            KafkaException: the cluster did not answer in time.
        """
        operation = AclOperation.READ if denied.operation == "Read" else AclOperation.WRITE
        kind = ResourceType.TRANSACTIONAL_ID if denied.is_transactional_id else ResourceType.TOPIC
        # Where a resource has rules, what none of them allows is denied.
        rules = [
            AclBinding(
                kind, denied.name, denied.pattern, _WHO, _ANY, AclOperation.ALL, AclPermissionType.ALLOW
            ),
            AclBinding(kind, denied.name, denied.pattern, _WHO, _ANY, operation, AclPermissionType.DENY),
        ]
        admin = self.admin
        for rule in rules:
            for made in admin.create_acls([rule], request_timeout=_ACL_S).values():
                made.result(_ACL_S)

    def allow_all(self) -> bool:
        """Give all permissions back; return whether the cluster has done it."""
        # What its types do not say: without a name and so on it is about all of them.
        any_text: Any = None
        every = AclBindingFilter(
            ResourceType.ANY,
            any_text,
            ResourcePatternType.ANY,
            any_text,
            any_text,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        admin = self.admin
        with suppress(KafkaException):
            for gone in admin.delete_acls([every], request_timeout=_ACL_S).values():
                gone.result(_ACL_S)
            return True
        return False

    def stop(self) -> None:
        """End all brokers and proxies."""
        for broker in self.brokers.values():
            broker.send(signal.SIGCONT)
            broker.kill()
            broker.proxy.close()
            broker.peers.close()


@contextmanager
def running_cluster(folder: Path, disk_mb: int = 0) -> Iterator[Cluster]:
    """Run three brokers for the length of a block.

    Args:
        folder: everything that they write.
        disk_mb: the size of a file system of its own for each broker, in MB, where this user may mount one;
            0 for none.
    """
    ports = _lasting_ports(3 * len(BROKERS))
    clients, brokers, controllers = (ports[n : n + len(BROKERS)] for n in range(0, len(ports), len(BROKERS)))
    voters = ",".join(f"{n}@127.0.0.1:{port}" for n, port in zip(BROKERS, controllers, strict=True))
    cluster = Cluster({})
    with ExitStack() as stack:
        for number, *own in zip(BROKERS, clients, brokers, controllers, strict=True):
            proxy, peers = Proxy(own[0]), Proxy(own[1])
            broker = Broker(folder / f"broker-{number}", proxy, peers)
            cluster.brokers[number] = broker
            own_lines = _listeners(own, broker)
            _lay_out(broker.home, f"node.id={number}\ncontroller.quorum.voters={voters}\n{own_lines}")
            if disk_mb and mount_disk(broker.data, disk_mb):
                stack.callback(unmount_disk, broker.data)
                broker.has_own_disk = True
        # Before their file systems can be taken away.
        stack.callback(cluster.stop)
        _format(folder)
        for broker in cluster.brokers.values():
            broker.start()
        wait_until(cluster.is_whole, "three brokers answer", _WITHIN_S)
        yield cluster


def _listeners(own: list[int], broker: Broker) -> str:
    clients, brokers, controller = (f"127.0.0.1:{port}" for port in own)
    return (
        f"listeners=CLIENTS://{clients},BROKERS://{brokers},CONTROLLER://{controller}\n"
        f"advertised.listeners=CLIENTS://127.0.0.1:{broker.proxy.port},"
        f"BROKERS://127.0.0.1:{broker.peers.port}\n"
        f"listener.name.brokers.plain.sasl.jaas.config={_LOGIN}\n"
        f"listener.name.controller.plain.sasl.jaas.config={_LOGIN}\n"
    )


def _lay_out(home: Path, own: str) -> None:
    home.mkdir(parents=True)
    (home / "log4j2.properties").write_text(LOG4J, encoding="utf-8")
    (home / "server.properties").write_text(f"{_COMMON}log.dirs={home}/data\n{own}", encoding="utf-8")


def _format(folder: Path) -> None:
    """Format the storage of the first broker; that of the others differs in its ids only."""
    first, *others = (folder / f"broker-{number}" for number in BROKERS)
    tool = [str(find_java().executable), *_JAVA, "-cp", os.pathsep.join(map(str, ensure_jars("broker")))]
    tool += ["kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID]
    done = subprocess.run(
        [*tool, "--config", str(first / "server.properties")], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise InfrastructureError(f"{first}: the storage cannot be formatted: {done.stderr[-1000:]}")
    for number, home in zip(BROKERS[1:], others, strict=True):
        shutil.copytree(first / "data", home / "data", dirs_exist_ok=True)
        meta = home / "data" / "meta.properties"
        own = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        lines = meta.read_text(encoding="utf-8").splitlines()
        ids = {"node.id": str(number), "directory.id": own}
        named = (line.partition("=") for line in lines)
        text = "\n".join(f"{name}={ids.get(name, value)}" if mark else name for name, mark, value in named)
        meta.write_text(f"{text}\n", encoding="utf-8")


def _lasting_ports(count: int) -> list[int]:
    """Return ports that systems give to no outgoing connection: a broker that restarts finds its own free."""
    found = list[int]()
    for port in secrets.SystemRandom().sample(_LASTING, len(_LASTING)):
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise InfrastructureError(f"no {count} ports of {_LASTING.start} to {_LASTING.stop} are free")
