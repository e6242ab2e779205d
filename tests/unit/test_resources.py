import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import pipelines
from pipelines.errors import ConfigError
from pipelines.resources import home, resource

PACKAGE = Path(pipelines.__file__).parent


def test_a_checkout_uses_its_own_files() -> None:
    assert resource("conf/ivy.xml") == PACKAGE.parent / "conf" / "ivy.xml"


def test_what_is_not_there_is_named_together_with_the_place_looked_at() -> None:
    with pytest.raises(ConfigError, match=r"conf/nothing\.yml is missing from .*Install it again"):
        resource("conf/nothing.yml")


def test_a_zip_on_the_path_gives_files_and_folders_that_other_programs_can_open(tmp_path: Path) -> None:
    packed = tmp_path / "oncelake.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for module in ("__init__", "errors", "resources"):
            archive.write(PACKAGE / f"{module}.py", f"pipelines/{module}.py")
        archive.writestr("pipelines/_bundled/conf/base/a.yml", "one")
        archive.writestr("pipelines/_bundled/conf/ivy.xml", "two")
    program = (
        "from pipelines.resources import resource;"
        "print((resource('conf') / 'base' / 'a.yml').read_text(), open(resource('conf/ivy.xml')).read())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(packed)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "one two"), done.stderr


def test_home_is_the_configured_folder_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCELAKE_HOME", str(tmp_path))
    assert home() == tmp_path


def test_home_goes_with_a_virtual_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONCELAKE_HOME", raising=False)
    monkeypatch.setattr(sys, "prefix", "/some/venv")
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    assert home() == Path("/some/venv/share/oncelake")


@pytest.mark.parametrize("configured", ["~no-such-user/jars", ""])
def test_a_user_without_a_home_folder_is_told_what_to_set(
    configured: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a container has it that runs with any user id."""

    def no_home(path: str) -> str:
        return path

    monkeypatch.setenv("ONCELAKE_HOME", configured)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    monkeypatch.setattr(os.path, "expanduser", no_home)
    with pytest.raises(ConfigError, match=r"\$ONCELAKE_HOME: found .*set it to the whole path"):
        home()


def test_home_is_the_users_cache_outside_a_virtual_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONCELAKE_HOME", raising=False)
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    monkeypatch.setenv("XDG_CACHE_HOME", "/some/cache")
    assert home() == Path("/some/cache/oncelake")
