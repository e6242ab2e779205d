"""Virtual environments and jars of peers: made once, in `.venv-peers/` of the checkout."""

import os
import subprocess
import sys
import tempfile
import zlib
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from benchmarks.peers.catalogue import Peer
from pipelines.runtime.ivy import retrieve
from pipelines.runtime.java import use_java
from pipelines.runtime.own_jar import spark_jars

_HERE: Final = Path(__file__).parent
_ROOT: Final = _HERE.parents[1]
_PLACE: Final = _ROOT / ".venv-peers"


class NotToBeHad(Exception):
    """What a peer needs cannot be installed here."""


def python_of(peer: Peer) -> Path:
    """Return the Python that runs a peer; make its environment if it is missing.

    Raises:
        NotToBeHad: it cannot be made.
    """
    if peer.environment is None:
        return Path(sys.executable)
    folder, wanted = _PLACE / peer.environment, _HERE / "requirements" / f"{peer.environment}.txt"
    made, text = folder / "made", wanted.read_text(encoding="utf-8")
    python = folder / "bin/python"
    if not made.exists() or made.read_text(encoding="utf-8") != text:
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(folder)],
            [str(python), "-m", "pip", "install", "--quiet", "--requirement", str(wanted)],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise NotToBeHad(f"{wanted.name}: {(done.stderr or done.stdout).strip()[-300:]}")
        made.write_text(text, encoding="utf-8")
    return python


def jars_of(peer: Peer) -> list[str]:
    """Return the jars of a peer; fetch them if they are missing.

    Raises:
        InfrastructureError: Ivy cannot fetch them.
    """
    if peer.jars is None:
        return []
    if peer.jars == "spark":
        return [str(jar) for jar in spark_jars()]
    wanted = _HERE / "ivy.xml"
    folder = _PLACE / f"jars-{zlib.crc32(wanted.read_bytes()):08x}"
    if not (folder / peer.jars).is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_PLACE) as scratch:
            retrieve(peer.jars, Path(scratch), None, list_of=wanted)
            Path(scratch, peer.jars).rename(folder / peer.jars)
    return [str(jar) for jar in sorted((folder / peer.jars).glob("*.jar"))]


def variables_of(peer: Peer) -> dict[str, str]:
    """Return the environment variables that a peer runs with."""
    use_java()
    variables = {**os.environ, "PYTHONPATH": str(_ROOT)}
    spec = find_spec("pyspark")
    if peer.needs_hadoop and spec and spec.submodule_search_locations:
        jars = Path(spec.submodule_search_locations[0], "jars")
        variables["HADOOP_CLASSPATH"] = ":".join(map(str, sorted(jars.glob("hadoop-client-*.jar"))))
    if peer.environment is not None:
        # Of Oncelake's Spark, not of theirs.
        variables.pop("SPARK_HOME", None)
    return variables
