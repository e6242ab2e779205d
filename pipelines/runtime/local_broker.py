"""A real Kafka broker on this machine (KRaft, one node), for demos, tests and trying things out."""

import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from pipelines.errors import InfrastructureError
from pipelines.runtime.jars import ensure_jars, exclusively
from pipelines.runtime.java import find_java
from pipelines.runtime.java_properties import as_property
from pipelines.runtime.processes import end_processes, graceful_shutdown

# Any 16 bytes in base64; the same each time, so that a folder can be started again.
CLUSTER_ID = "b25jZWxha2UtYnJva2VyMQ"

# To standard output, which goes into the log file together with what Java itself says.
LOG4J = """\
rootLogger.level = INFO
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %m (%c)%n
"""


def server_properties(folder: Path, port: int, controller_port: int) -> str:
    """Write out the broker's configuration.

    Args:
        folder: Its data goes below.
        port: For clients, on the loopback address.
        controller_port: For its own controller, likewise.

    Returns:
        The text of ``server.properties``.
    """
    data = as_property(str(folder / "data"))
    return f"""\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}

# one node holds everything once
default.replication.factor=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1

# small, and quick to start
offsets.topic.num.partitions=4
transaction.state.log.num.partitions=4
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0

# a misspelt topic is an error, as it should be in production
auto.create.topics.enable=false
num.partitions=3

# replayed events carry old timestamps: they must neither expire nor cut the log into a segment a week
log.retention.ms=-1
log.retention.bytes=-1
log.roll.hours=876000
"""


BOOTSTRAP_VARIABLE = "KAFKA_BOOTSTRAP_SERVERS"
_STATE = "broker.json"
_START_ATTEMPTS = 5
_READY_WITHIN_S = 90.0
_STOP_WITHIN_S = 30.0
_LOG_TAIL_LINES = 15
_HEAP = "512m"


class _PortTakenError(InfrastructureError):
    """Another process took a port between our choosing it and the broker's binding it."""


@dataclass(frozen=True)
class EmbeddedBroker:
    """A broker to talk to.

    Attributes:
        bootstrap_servers: ``host:port``, what clients connect to.
        pid: Its process, or None for a cluster that Oncelake did not start.
        started: When that process started, in seconds since the epoch; a pid alone can be used again.
        folder: Its data, configuration and log, or None as above.
    """

    bootstrap_servers: str
    pid: int | None = None
    started: float | None = None
    folder: Path | None = None

    def is_running(self) -> bool:
        """Tell whether the process that was started still lives; a recycled pid does not count."""
        return self._process() is not None

    def stop(self, within_s: float = _STOP_WITHIN_S) -> None:
        """End the process: ask it, and kill it if it has not ended in time.

        Does nothing when it has ended or was not started by Oncelake.

        Args:
            within_s: How long it may take, in seconds.
        """
        process = self._process()
        if process is not None:
            end_processes([process], within_s)
        if self.folder is not None:
            (self.folder / _STATE).unlink(missing_ok=True)

    def _process(self) -> psutil.Process | None:
        if self.pid is None:
            return None
        try:
            process = psutil.Process(self.pid)
            alive = process.create_time() == self.started and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return None
        return process if alive else None


@contextmanager
def broker(folder: Path | None = None) -> Iterator[EmbeddedBroker]:
    """Run a broker for the length of a block; it ends with the block, also on Ctrl-C, SIGTERM and SIGHUP.

    With ``KAFKA_BOOTSTRAP_SERVERS`` in the environment that cluster is given instead and nothing is started.

    Args:
        folder: Where its data, configuration and log go and stay; without it a temporary folder, removed at
            the end.

    Yields:
        The broker, ready for clients.

    Raises:
        InfrastructureError: It did not come up in time; the message ends with the tail of its log.
    """
    if servers := os.environ.get(BOOTSTRAP_VARIABLE):
        yield EmbeddedBroker(servers)
        return
    own = Path(tempfile.mkdtemp(prefix="oncelake-broker-")) if folder is None else None
    with graceful_shutdown():
        try:
            running = start_broker(folder or own or Path())
            try:
                yield running
            finally:
                running.stop()
        finally:
            if own is not None:
                shutil.rmtree(own, ignore_errors=True)


def start_broker(folder: Path, port: int = 0) -> EmbeddedBroker:
    """Start a broker that outlives this process, or give the one that already runs in `folder`.

    A folder used before keeps its topics, and its port if that is still free.

    Args:
        folder: Where its data, configuration and log go.
        port: For clients of a new folder; when it is taken, or 0, a free one.

    Returns:
        The broker, ready for clients.

    Raises:
        InfrastructureError: As `broker`.
    """
    folder = folder.absolute()
    class_path = os.pathsep.join(map(str, ensure_jars("broker")))
    attempts = Retrying(
        stop=stop_after_attempt(_START_ATTEMPTS),
        retry=retry_if_exception_type(_PortTakenError),
        reraise=True,
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with exclusively(folder / ".lock", "another process is starting this broker; waiting for it"):
            return running_broker(folder) or attempts(_start, folder, class_path, port)
    except OSError as error:
        raise InfrastructureError(
            f"The broker's folder {folder} cannot be used: {error}. Name another one."
        ) from None


def running_broker(folder: Path) -> EmbeddedBroker | None:
    """Give the broker that was started in `folder` and still runs, else None."""
    try:
        state = json.loads((folder / _STATE).read_text(encoding="utf-8"))
        embedded = EmbeddedBroker(
            str(state["bootstrap_servers"]), int(state["pid"]), float(state["started"]), Path(state["folder"])
        )
        return embedded if embedded.is_running() else None
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _start(folder: Path, class_path: str, wanted_port: int) -> EmbeddedBroker:
    """One attempt: configure, format the storage, start, wait until it answers."""
    port, controller_port = free_ports(folder, wanted_port)
    properties = folder / "server.properties"
    properties.write_text(server_properties(folder, port, controller_port), encoding="utf-8")
    log4j = folder / "log4j2.properties"
    log4j.write_text(LOG4J, encoding="utf-8")
    java = [
        str(find_java().executable),
        f"-Xmx{_HEAP}",
        f"-Dlog4j2.configurationFile={log4j}",
        "-cp",
        class_path,
    ]
    log = folder / "broker.log"
    with log.open("wb") as output:
        # the last file that formatting writes
        if not (folder / "data" / "meta.properties").exists():
            _format([*java, "kafka.tools.StorageTool"], properties, output)
        # a session of its own: Ctrl-C in the terminal reaches Oncelake alone, which then ends the broker
        process = psutil.Popen(
            [*java, "kafka.Kafka", str(properties)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        started = EmbeddedBroker(f"127.0.0.1:{port}", process.pid, process.create_time(), folder)
        _wait_until_ready(started, log)
        _write_state(folder, started)
    except BaseException:
        end_processes([process], _STOP_WITHIN_S)
        raise
    return started


def _format(tool: Sequence[str], properties: Path, output: IO[bytes]) -> None:
    """Format the storage of a new folder."""
    formatted = subprocess.run(
        [*tool, "format", "--ignore-formatted", "--cluster-id", CLUSTER_ID, "--config", str(properties)],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if formatted.returncode != 0:
        folder, log = properties.parent, Path(str(output.name))
        raise InfrastructureError(f"The broker's storage in {folder} cannot be formatted. {_tail(log)}")


def _wait_until_ready(started: EmbeddedBroker, log: Path) -> None:
    admin = AdminClient({"bootstrap.servers": started.bootstrap_servers, "log_level": 0})
    deadline = time.monotonic() + _READY_WITHIN_S
    while started.is_running():
        try:
            if admin.list_topics(timeout=1).brokers:
                return
        except KafkaException:
            pass
        if time.monotonic() > deadline:
            raise InfrastructureError(
                f"The broker did not answer within {_READY_WITHIN_S:.0f} s. {_tail(log)}"
            )
    if "Address already in use" in log.read_text(encoding="utf-8", errors="replace"):
        raise _PortTakenError(f"The broker found its port taken, {_START_ATTEMPTS} times. {_tail(log)}")
    raise InfrastructureError(f"The broker died while starting. {_tail(log)}")


def _write_state(folder: Path, running: EmbeddedBroker) -> None:
    draft = folder / f"{_STATE}.{os.getpid()}"
    draft.write_text(json.dumps(asdict(running), default=str), encoding="utf-8")
    draft.replace(folder / _STATE)


def unused_ports(count: int) -> list[int]:
    """Return ports of the loopback address that nobody uses now, all different."""
    with ExitStack() as stack:
        return [stack.enter_context(_bound(0)).getsockname()[1] for _ in range(count)]


def free_ports(folder: Path, client_port: int) -> tuple[int, int]:
    """Choose two ports: for clients that of the last start, or the wanted one, if it is free; free ones else.

    Args:
        folder: Of the broker.
        client_port: The port for clients of a new folder; 0 for any.

    Returns:
        The ports for clients and for the broker's own controller.
    """
    properties = folder / "server.properties"
    if properties.exists():
        last = re.search(r"^advertised\..*:(\d+)$", properties.read_text(encoding="utf-8"), re.MULTILINE)
        client_port = int(last.group(1)) if last else client_port
    with _bound(client_port) as first, _bound(0) as second:
        return first.getsockname()[1], second.getsockname()[1]


def _bound(port: int) -> socket.socket:
    """Return a socket bound to `port` on the loopback address, or to a free one if it is taken."""
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(("127.0.0.1", port))
    except OSError:
        bound.bind(("127.0.0.1", 0))
    return bound


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_TAIL_LINES:]
    return f"The end of {log}:\n" + "\n".join(lines)
