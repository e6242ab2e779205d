"""What a job shows on a terminal is its own: no line of Spark's or Java's start."""

import subprocess
import sys
from pathlib import Path

import pytest

from testbed.short_lived_settings import BRIEF_JAVA

pytestmark = pytest.mark.spark


def run(lake: Path, *options: str) -> subprocess.CompletedProcess[str]:
    # Java says so on the terminal if it takes options from the environment.
    settings = (f"lake.root={lake}", f"spark.conf.spark.driver.extraJavaOptions={BRIEF_JAVA}")
    command = [sys.executable, "-m", "jobs.validate", "--pipeline", "flights"]
    command += [f"--set={setting}" for setting in settings]
    return subprocess.run([*command, *options], capture_output=True, text=True, check=False, timeout=300)


def test_a_terminal_shows_the_job_s_own_lines_alone(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout.startswith("validate flights: failed in ")


@pytest.mark.thorough
def test_verbose_shows_those_of_spark_as_well(tmp_path: Path) -> None:
    done = run(tmp_path, "--verbose")
    assert "WARN" in done.stderr
    assert "\nerror: " in done.stderr
