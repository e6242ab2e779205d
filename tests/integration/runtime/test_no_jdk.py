"""Our own Java is compiled where only a runtime is."""

import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.runtime import own_jar
from pipelines.runtime.java import find_java
from pipelines.runtime.own_jar import build_rack_jar


def test_the_eclipse_compiler_makes_the_same_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = find_java()
    runtime = tmp_path / "runtime" / "bin"
    runtime.mkdir(parents=True)
    (runtime / "java").symlink_to(java.executable.resolve())
    usual = own_jar.own_jar()
    monkeypatch.setattr(own_jar, "find_java", lambda: replace(java, home=runtime.parent))
    build_rack_jar(tmp_path / "ecj.jar")
    made = [sorted(zipfile.ZipFile(jar).namelist()) for jar in (usual, tmp_path / "ecj.jar")]
    assert made[0] == made[1]
    assert "oncelake/rack/Placement.class" in made[1]
