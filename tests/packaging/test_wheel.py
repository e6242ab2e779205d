"""The wheel gives a working `oncelake` and a project that it can run, without the checkout."""

import subprocess
import zipfile
from collections.abc import Callable
from email import message_from_bytes
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]
pytestmark = pytest.mark.packaging


def test_it_carries_what_a_project_starts_from_and_nothing_else_of_the_checkout(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "pipelines/py.typed",
        "pipelines/runtime/project_files/Makefile.txt",
        "pipelines/report/render/templates/report.html.j2",
        "pipelines/report/render/templates/report.css",
        "pipelines/report/render/templates/data_docs/page.j2",
        "pipelines/_bundled/conf/ivy.xml",
        "pipelines/_bundled/conf/jars.lock",
        "pipelines/_bundled/conf/log4j2.properties",
        "pipelines/_bundled/conf/spark-defaults.conf",
        "pipelines/_bundled/conf/base/oncelake.yml",
        "pipelines/_bundled/conf/local/oncelake.yml",
        "pipelines/_bundled/data_contracts/flights.odcs.yaml",
        "pipelines/_bundled/deploy/airflow/oncelake_nightly.py",
        "pipelines/_bundled/deploy/cron/oncelake-pipeline",
        "pipelines/_bundled/deploy/systemd/oncelake-stream@.service",
        "pipelines/_bundled/jobs/ingest_stream.py",
    } <= names
    assert {name.partition("/")[0] for name in names} == {"pipelines", "oncelake-0.1.0.dist-info"}
    assert not [name for name in names if "__pycache__" in name]


def test_wheel_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        metadata = message_from_bytes(archive.read("oncelake-0.1.0.dist-info/METADATA"))
        names = archive.namelist()
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == "<3.13,>=3.11"
    assert "pyspark==4.2.0" in metadata.get_all("Requires-Dist", [])
    assert "oncelake-0.1.0.dist-info/licenses/LICENSE" in names


def test_the_zip_is_the_wheel_under_a_name_that_executors_import_from(wheel: Path, packed: Path) -> None:
    assert packed.name == "oncelake-0.1.0.zip"
    assert packed.read_bytes() == wheel.read_bytes()


def test_the_command_comes_from_the_wheel_and_helps(installed_python: Path, run: Run) -> None:
    where = run(installed_python, "-c", "import pipelines; print(pipelines.__file__, pipelines.__version__)")
    assert where.stdout.split()[0].startswith(str(installed_python.parent.parent)), where
    help_text = run(installed_python.with_name("oncelake"), "--help")
    assert help_text.returncode == 0, help_text.stderr
    for command in ("ingest_stream", "nightly_batch", "plan", "broker", "jars", "init"):
        assert command in help_text.stdout


def test_a_mistake_is_one_message_with_exit_code_2(installed_python: Path, run: Run, tmp_path: Path) -> None:
    refused = run(installed_python.with_name("oncelake"), "init", tmp_path.parent)
    assert refused.returncode == 2
    assert "is not empty" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_new_project_plans_at_once(installed_python: Path, run: Run, tmp_path: Path) -> None:
    oncelake = installed_python.with_name("oncelake")
    made = run(oncelake, "init", "project")
    assert made.returncode == 0, made.stderr
    planned = run("make", "plan", cwd=tmp_path / "project", ONCELAKE=str(oncelake))
    assert planned.returncode == 0, planned.stderr
    assert "bronze/flights" in planned.stdout
    deployed = run(oncelake, "deploy", "systemd", "--pipeline", "flights", cwd=tmp_path / "project")
    assert deployed.returncode == 0, deployed.stderr
