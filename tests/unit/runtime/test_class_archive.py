"""The archive of classes is for one Java and one class path, and gives way to what the user says."""

from pathlib import Path

import pytest

from pipelines.runtime.class_archive import archive_path, class_settings
from pipelines.runtime.java import Java

OPTIONS, CLASS_PATH = "spark.driver.extraJavaOptions", "spark.driver.extraClassPath"


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Java:
    monkeypatch.setenv("ONCELAKE_HOME", str(tmp_path / "home"))
    (tmp_path / "java").mkdir()
    (tmp_path / "java/release").write_text('JAVA_VERSION="17.0.1"')
    return Java(tmp_path / "java", 17, "a test")


@pytest.fixture
def jars(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / name for name in ("a.jar", "b.jar")]
    for path in paths:
        path.write_bytes(b"jar")
    return paths


def test_without_an_archive_the_jars_are_on_the_class_path_and_java_is_told_nothing(
    java: Java, jars: list[Path]
) -> None:
    assert class_settings(java, jars, {}) == {CLASS_PATH: f"{jars[0]}:{jars[1]}"}


def test_an_archive_is_used_beside_the_options_and_class_path_of_the_user(
    java: Java, jars: list[Path]
) -> None:
    archive = archive_path(java, jars)
    archive.parent.mkdir(parents=True)
    archive.touch()
    found = class_settings(java, jars, {OPTIONS: "-Xmx2g", CLASS_PATH: "/own.jar"})
    assert found[CLASS_PATH] == f"{jars[0]}:{jars[1]}:/own.jar"
    assert found[OPTIONS].startswith(f'"-XX:SharedArchiveFile={archive}" ')
    assert found[OPTIONS].endswith(" -Xmx2g")


def test_another_java_or_another_jar_has_another_archive(java: Java, jars: list[Path]) -> None:
    before = archive_path(java, jars)
    assert archive_path(java, jars[:1]) != before
    (java.home / "release").write_text('JAVA_VERSION="17.0.2"')
    assert archive_path(java, jars) != before
    (java.home / "release").write_text('JAVA_VERSION="17.0.1"')
    assert archive_path(java, jars) == before
    jars[1].write_bytes(b"another jar")
    assert archive_path(java, jars) != before
