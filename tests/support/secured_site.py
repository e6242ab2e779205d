"""Jobs of a pipeline that logs in to a cluster, and all that they leave, to be searched for secrets."""

import os
import shutil
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

from pipelines.config.loader import load_config
from pipelines.doctor.acls import acls
from tests.support.command_process import CommandProcess, command_process
from tests.support.processes import BRIEF_SETTINGS, Job
from tests.support.secured_broker import SecuredBroker

MARK: Final = f"hush{os.urandom(8).hex()}"
"""A part of every secret; wherever else it is found, one has leaked."""


def secret(name: str) -> str:
    """A secret of this name."""
    return f"{MARK}-{name}"


@dataclass
class Site:
    """Jobs of one pipeline.

    Attributes:
        broker: the broker.
        folder: all that the jobs leave, with what they say.
        secrets: files with secrets.
        process: runs them.
        further: secrets that do not have the mark, such as lines of keys.
    """

    broker: SecuredBroker
    folder: Path
    secrets: Path
    process: CommandProcess
    further: list[str] = field(default_factory=list)

    def allow(self, user: str, *jobs: str) -> None:
        """Allows a user what `doctor --acls` lists for jobs."""
        config = load_config("flights", env="secured", conf_dir=self.folder / "conf")
        self.broker.allow(user, [acl for acl in acls(config) if acl.job in jobs])

    def run(self, job: str, *arguments: str) -> tuple[int, dict[str, Any]]:
        """Runs a job; returns its exit code and its summary."""
        common = ("--pipeline=flights", "--env=secured", f"--conf-dir={self.folder}/conf")
        started = self.process.start(self.folder, job, *common, *arguments, *BRIEF_SETTINGS)
        return started.wait(), self.summary(started)

    def summary(self, job: Job) -> dict[str, Any]:
        """The summary of a job, whose whole output is kept."""
        summary = job.summary()
        job.log.with_suffix(".summary").write_text(repr(summary))
        return summary

    def leaks(self) -> list[str]:
        """The files with a secret among all that was left."""
        shutil.copy(self.process.path.with_name("log"), self.folder / "java.log")
        return files_with(self.folder, [MARK, *self.further], least=100)


def files_with(folder: Path, texts: Iterable[str], least: int) -> list[str]:
    """The files below a folder, of which there are more than a number, that have one of these texts."""
    files, hidden = [path for path in folder.rglob("*") if path.is_file()], [each.encode() for each in texts]
    assert len(files) > least
    return [str(path) for path in files if any(each in path.read_bytes() for each in hidden)]


@contextmanager
def secured_site(broker: SecuredBroker, folder: Path, configuration: str) -> Iterator[Site]:
    """Has jobs of the pipeline `flights` run in the environment `secured`, for the length of a block.

    Args:
        broker: the broker.
        folder: where all is.
        configuration: what the environment says, with places for `broker`, `folder` and `secrets`.
    """
    left, secrets = folder / "site", folder / "secrets"
    secrets.mkdir()
    shutil.copytree("conf", left / "conf")
    (left / "events").mkdir()
    (left / "conf/secured").mkdir()
    text = configuration.format(broker=broker, folder=left, secrets=secrets)
    (left / "conf/secured/oncelake.yml").write_text(text)
    with command_process() as process:
        yield Site(broker, left, secrets, process)


@contextmanager
def watched() -> Iterator[set[str]]:
    """Collects command lines with a secret of all processes of the machine, for the length of a block."""
    found, is_over = set[str](), threading.Event()

    def look() -> None:
        while not is_over.wait(0.05):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    if MARK.encode() in (line := path.read_bytes()):
                        found.add(line.replace(b"\0", b" ").decode(errors="replace"))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        is_over.set()
        thread.join()


def send(broker: SecuredBroker, *values: bytes, topic: str = "flights") -> None:
    """Sends records to a topic."""
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "admin", "sasl.password": "of the broker alone"}
    producer = Producer({**broker.client(login), "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(60) == 0
