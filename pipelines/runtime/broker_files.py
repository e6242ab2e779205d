"""The configuration files of the embedded broker."""

from pathlib import Path

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
        folder: its data goes below.
        port: for clients, on the loopback address.
        controller_port: for its own controller, likewise.

    Returns:
        The text of ``server.properties``.
    """
    data = _as_property(str(folder / "data"))
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


def _as_property(text: str) -> str:
    """Text as a value of a Java properties file, which is read as Latin-1.

    Source: https://docs.oracle.com/en/java/javase/17/docs/api/java.base/java/util/Properties.html
    """
    units = text.replace("\\", "\\\\").encode("utf-16-be", "surrogatepass")
    codes = (int.from_bytes(units[place : place + 2]) for place in range(0, len(units), 2))
    return "".join(chr(code) if 0x20 <= code < 0x7F else f"\\u{code:04x}" for code in codes)
