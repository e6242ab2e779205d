"""A real schema registry (Apicurio) on a free port."""

import shutil
import socket
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import requests

from pipelines.errors import InfrastructureError
from pipelines.resources import home
from pipelines.runtime.ivy import retrieve
from pipelines.runtime.jars import exclusively, sha256
from pipelines.runtime.java import find_java
from testbed.waiting import wait_until

_LIST: Final = Path(__file__).parent / "registry" / "ivy.xml"
_ARCHIVE: Final = "apicurio-registry-app-3.0.9-all.tar.gz"
_SHA256: Final = "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43"
_MAIN_JAR: Final = "apicurio-registry-app-3.0.9-runner.jar"
_READY_WITHIN_S: Final = 120.0
_STOP_WITHIN_S: Final = 20.0


@contextmanager
def schema_registry() -> Iterator[str]:
    """Run a registry that forgets everything at its end.

    Yields:
        The address of its interface like Confluent's.
    """
    with tempfile.TemporaryDirectory(prefix="oncelake-registry-") as folder:
        with tarfile.open(_archive()) as archive:
            archive.extractall(folder, filter="data")
        port = _free_port()
        with (Path(folder) / "registry.log").open("w") as log:
            process = subprocess.Popen(  # the command is this module's own
                [
                    *(str(find_java().executable), "-Xmx256m", "-XX:TieredStopAtLevel=1"),
                    *("-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}"),
                    *("-jar", _MAIN_JAR),
                ],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
            _wait(process, url, Path(log.name))
            yield url
        finally:
            process.terminate()
            try:
                process.wait(_STOP_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _archive() -> Path:
    """Return the archive, fetched once and checked."""
    folder = home() / "jars" / "registry"
    path = folder / _ARCHIVE
    folder.mkdir(parents=True, exist_ok=True)
    with exclusively(folder / ".lock", "another process is fetching the registry; waiting for it"):
        if not path.exists() or sha256(path) != _SHA256:
            scratch = Path(tempfile.mkdtemp(prefix=".fetch-", dir=folder))
            try:
                retrieve("registry", scratch, 1, list_of=_LIST)
                fetched = scratch / "registry" / _ARCHIVE
                found = sha256(fetched)
                if found != _SHA256:
                    raise InfrastructureError(f"{_ARCHIVE}: expected SHA-256 {_SHA256}, found {found}")
                fetched.replace(path)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return path


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    def answers() -> bool:
        if process.poll() is not None:
            raise InfrastructureError(f"the registry ended: {log.read_text()[-3000:]}")
        with suppress(requests.RequestException):
            return requests.get(f"{url}/subjects", timeout=5).ok
        return False

    wait_until(answers, "the registry answers", _READY_WITHIN_S)
