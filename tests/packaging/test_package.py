"""`make package` touches nothing of a checkout while another one packages it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from pipelines.resources import home
from pipelines.runtime.jars import exclusively
from tests.packaging.conftest import ROOT, WITHIN_S, package_command

pytestmark = pytest.mark.packaging
FOLDERS = ("pipelines", "jvm", "conf", "data_contracts", "deploy", "jobs", "scripts")
FILES = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md")


def test_it_waits_for_the_one_before_and_packs_the_jar(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    for name in FOLDERS:
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("build", "__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, checkout)
    with exclusively(home() / "package.lock", "a test of make package is packaging; waiting for it"):
        packaging = subprocess.Popen(
            package_command(checkout, tmp_path / "dist"),
            env={**os.environ, "PYTHONPATH": str(checkout)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert packaging.stderr is not None
        assert "another process is packaging" in packaging.stderr.readline()
        assert not (checkout / "jvm" / "build").exists()
    assert packaging.wait(WITHIN_S) == 0
    assert len(list(checkout.glob("jvm/build/oncelake-rack-*.jar"))) == 1
    assert len(list((tmp_path / "dist").glob("*.whl"))) == 1
