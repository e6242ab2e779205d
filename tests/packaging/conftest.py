"""The distribution as users get it: built, and installed where nothing of the checkout can be seen.

The dependencies come from the environment that runs the tests, by a path file, so that nothing is fetched.
Path files found by way of a path file are not read, so that environment's editable install stays out.
"""

import os
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pyspark
import pytest

from pipelines.resources import home
from pipelines.runtime.java import find_java
from pipelines.runtime.own_jar import spark_jars
from testbed.short_lived_settings import BRIEF_SPARK
from tests.support.processes import BRIEF_ENVIRONMENT
from tests.support.shared_folders import made_once

WITHIN_S = 600
ROOT = Path(__file__).resolve().parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
Run = Callable[..., "subprocess.CompletedProcess[str]"]
Start = Callable[..., "subprocess.Popen[str]"]


def package_command(checkout: Path, folder: Path) -> list[str | Path]:
    """What `make package` runs."""
    return [sys.executable, checkout / "scripts" / "package.py", folder]


@pytest.fixture(scope="session")
def distribution(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """What `make package` makes, once for all workers: the wheel and the zip."""

    def make(folder: Path) -> None:
        subprocess.run(package_command(ROOT, folder), check=True, stdout=subprocess.DEVNULL)

    dist = made_once(tmp_path_factory, "dist", make)
    (wheel,) = dist.glob("*.whl")
    (packed,) = dist.glob("*.zip")
    return wheel, packed


@pytest.fixture(scope="session")
def wheel(distribution: tuple[Path, Path]) -> Path:
    return distribution[0]


@pytest.fixture(scope="session")
def packed(distribution: tuple[Path, Path]) -> Path:
    """The zip for --py-files."""
    return distribution[1]


@pytest.fixture(scope="session")
def clean_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the dependencies and without Oncelake."""
    return _environment(tmp_path_factory.mktemp("clean") / "venv")


@pytest.fixture(scope="session")
def installed_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the dependencies into which the wheel was installed."""
    python = _environment(tmp_path_factory.mktemp("installed") / "venv")
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps"]
    subprocess.run([*install, "--no-index", str(wheel)], check=True)
    return python


@pytest.fixture(scope="session")
def outside(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment that does not lead back into the checkout, and finds the jars that are there already."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    conf = tmp_path_factory.mktemp("spark-conf")
    brief = (setting.removeprefix("spark.conf.").replace("=", " ") for setting in BRIEF_SPARK)
    (conf / "spark-defaults.conf").write_text("\n".join(brief))
    return {**kept, **BRIEF_ENVIRONMENT, "SPARK_CONF_DIR": str(conf), "ONCELAKE_HOME": str(home())}


@pytest.fixture
def start(outside: dict[str, str], tmp_path: Path) -> Iterator[Start]:
    """Start a command outside the checkout; it and its children end with the test at the latest."""
    started: list[subprocess.Popen[str]] = []

    def start_command(*command: str | Path, cwd: Path = tmp_path, **more: str) -> "subprocess.Popen[str]":
        with (tmp_path / "stdout").open("w") as out, (tmp_path / "stderr").open("w") as err:
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env=outside | more,
                stdout=out,
                stderr=err,
                text=True,
                start_new_session=True,
            )
        started.append(process)
        return process

    yield start_command
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(WITHIN_S)


@pytest.fixture
def submit(start: Start, clean_python: Path, packed: Path, tmp_path: Path) -> Start:
    """Call spark-submit as docs/deploy.md says; `submit("yarn", SCRIPT, ..., options=[...])`."""
    jars = ",".join(map(str, spark_jars()))

    def submit_job(
        master: str, script: Path, *arguments: str, options: Sequence[str] = (), **more: str
    ) -> "subprocess.Popen[str]":
        return start(
            SPARK_HOME / "bin" / "spark-submit",
            *("--master", master),
            *("--properties-file", str(ROOT / "conf" / "spark-defaults.conf")),
            *options,
            *("--jars", jars),
            *("--py-files", str(packed)),
            script,
            *arguments,
            cwd=tmp_path,
            SPARK_HOME=str(SPARK_HOME),
            SPARK_SCALA_VERSION="2.13",
            JAVA_HOME=str(find_java().home),
            PYSPARK_PYTHON=str(clean_python),
            **more,
        )

    return submit_job


@pytest.fixture
def run(outside: dict[str, str], tmp_path: Path) -> Run:
    """Run a command outside the checkout and give its outcome, whatever it is."""

    def run_command(
        *command: str | Path, cwd: Path = tmp_path, **more: str
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command,
            cwd=cwd,
            env=outside | more,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )

    return run_command


def _environment(folder: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    (packages,) = (folder / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python
