"""A small YARN on this machine: a resource manager, and a node manager in each rack; each is a process.

They are the servers that Hadoop ships for tests (`hadoop-client-minicluster`), with the configuration of a
cluster that stores nothing: what is shipped to containers lies on the local disk.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

import psutil
import pyspark

from pipelines.resources import home
from pipelines.runtime.ivy import retrieve
from pipelines.runtime.jars import exclusively, sha256
from pipelines.runtime.java import find_java
from pipelines.runtime.local_broker import unused_ports
from testbed.rack_cluster import Process, wait_for_text
from testbed.short_lived_settings import BRIEF_JAVA

_LIST: Final = Path(__file__).parent / "yarn_jars" / "ivy.xml"
_JARS: Final = {
    "bcpkix-jdk18on-1.82.jar": "bdc723e20834832ac6af136cb5b5ff05e43b71d4fa151cc6510d9212ee086e63",
    "bcprov-jdk18on-1.82.jar": "14cde2fdfaa8890480a8e5b67aceef0c90f96682c1e23c133bafdc9e0b3255ce",
    "bcutil-jdk18on-1.82.jar": "4420691958ad1c0ba275a6d6d8a6317adbdbdc9277055b6a72aa89c88cda8c7d",
    "hadoop-client-minicluster-3.5.0.jar": "06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c",
}
_OF_SPARK: Final = ("hadoop-client*.jar", "slf4j-api*.jar", "log4j*.jar", "jcl-over-slf4j*.jar")
_RACK_FILES: Final = Path(__file__).resolve().parents[2] / "deploy" / "rack" / "emr-configurations.json"
_SERVER: Final = "org.apache.hadoop.yarn.server"
_LOG4J: Final = """
rootLogger.level=info
rootLogger.appenderRef.console.ref=console
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %p %c{1}: %m%n
"""
# Of memory a node has room for a driver and one executor, or for one executor: each rack then has one.
NODE_MB: Final = 2_600
EXECUTORS: Final = (
    "spark.executor.instances=2",
    "spark.executor.cores=1",
    "spark.executor.memory=1100m",
    "spark.driver.memory=600m",
    "spark.scheduler.minRegisteredResourcesRatio=1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime=120s",
)


@dataclass
class Yarn:
    """What runs.

    Attributes:
        conf: the configuration for clients, `HADOOP_CONF_DIR`.
        logs: the folder with the output of containers.
        nodes: the node managers, by rack.
    """

    conf: Path
    logs: Path
    nodes: Mapping[str, Process]

    def executors(self, rack: str) -> list[psutil.Process]:
        """The executors in a rack."""
        found = []
        for each in self.nodes[rack].process.children(recursive=True):
            try:
                words = each.cmdline()
            except psutil.NoSuchProcess:
                continue
            if "java" in Path(words[0] if words else "").name and any("ExecutorBackend" in w for w in words):
                found.append(each)
        return found


@contextmanager
def yarn(folder: Path, racks: Sequence[str]) -> Iterator[Yarn]:
    """Runs YARN for the length of a block.

    Args:
        folder: where it writes.
        racks: the rack of each node manager.
    """
    names = ("address", "scheduler.address", "resource-tracker.address", "admin.address", "webapp.address")
    ports = unused_ports(len(names))
    manager = {f"yarn.resourcemanager.{n}": f"127.0.0.1:{port}" for n, port in zip(names, ports, strict=True)}
    scheduler = f"{_SERVER}.resourcemanager.scheduler.fifo.FifoScheduler"
    shared = {
        **manager,
        "yarn.resourcemanager.hostname": "127.0.0.1",
        "yarn.resourcemanager.scheduler.class": scheduler,
        "yarn.scheduler.minimum-allocation-mb": "256",
    }
    conf, logs = _configured(folder / "client", shared), folder / "containers"
    (folder / "log4j2.properties").write_text(_LOG4J)
    nodes: dict[str, Process] = {}
    with ExitStack() as stack:
        server = _start(folder, "resourcemanager.ResourceManager", conf, {})
        stack.callback(server.kill)
        for rack in racks:
            mine = _configured(folder / f"node-{rack}", shared | _of_node(folder, rack, logs))
            # As the file of `deploy/rack` has it.
            told = {"NODE_RACK": rack, "SPARK_EXECUTOR_ATTRIBUTE_RACK": rack}
            nodes[rack] = _start(folder, "nodemanager.NodeManager", mine, told)
            stack.callback(nodes[rack].kill)
        for node in nodes.values():
            wait_for_text(node, "Registered with ResourceManager as")
        yield Yarn(conf, logs, nodes)


def _of_node(folder: Path, rack: str, logs: Path) -> dict[str, str]:
    (site,) = (each for each in json.loads(_RACK_FILES.read_text()) if each["Classification"] == "yarn-site")
    return {
        **site["Properties"],
        **{f"yarn.nodemanager.{name}address": "127.0.0.1:0" for name in ("", "localizer.", "webapp.")},
        "yarn.nodemanager.local-dirs": str(folder / f"local-{rack}"),
        "yarn.nodemanager.log-dirs": str(logs / rack),
        "yarn.nodemanager.resource.memory-mb": str(NODE_MB),
        "yarn.nodemanager.disk-health-checker.enable": "false",
        "yarn.nodemanager.vmem-check-enabled": "false",
        "yarn.nodemanager.pmem-check-enabled": "false",
    }


def _configured(folder: Path, properties: Mapping[str, str]) -> Path:
    folder.mkdir()
    lines = (
        f"<property><name>{name}</name><value>{escape(value)}</value></property>"
        for name, value in properties.items()
    )
    (folder / "yarn-site.xml").write_text("<configuration>\n" + "\n".join(lines) + "\n</configuration>\n")
    (folder / "core-site.xml").write_text("<configuration/>\n")
    return folder


def _start(folder: Path, server: str, conf: Path, told: Mapping[str, str]) -> Process:
    java, of_spark = find_java(), Path(pyspark.__file__).parent / "jars"
    jars = [*_jars(), *(path for pattern in _OF_SPARK for path in of_spark.glob(pattern))]
    command = [str(java.executable), "-Xmx256m", *BRIEF_JAVA.split()]
    command += [f"-Dlog4j2.configurationFile={folder}/log4j2.properties"]
    command += ["-cp", os.pathsep.join(map(str, (conf, *jars))), f"{_SERVER}.{server}"]
    log = conf.with_suffix(".log") if told else folder / "manager.log"
    with log.open("w") as said:
        process = psutil.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "JAVA_HOME": str(java.home), **told},
        )
    return Process(process, log)


def _jars() -> list[Path]:
    """The jars of the servers, fetched once and checked."""
    folder = home() / "jars" / "yarn"
    folder.mkdir(parents=True, exist_ok=True)
    with exclusively(folder / ".lock", "another process is fetching YARN; waiting for it"):
        if not all((folder / name).exists() and sha256(folder / name) == of for name, of in _JARS.items()):
            scratch = Path(tempfile.mkdtemp(prefix=".fetch-", dir=folder))
            try:
                retrieve("yarn", scratch, len(_JARS), list_of=_LIST)
                for name, expected in _JARS.items():
                    found = sha256(scratch / "yarn" / name)
                    assert found == expected, f"{name}: expected SHA-256 {expected}, found {found}"
                    (scratch / "yarn" / name).replace(folder / name)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return [folder / name for name in _JARS]
