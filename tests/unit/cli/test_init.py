import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from pipelines.cli.init import init
from pipelines.config.loader import load_config, pipeline_names
from pipelines.errors import ConfigError
from pipelines.formats.contract_files import load_contract


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    result = CliRunner().invoke(init, [str(folder)], catch_exceptions=False)
    assert result.exit_code == 0
    assert f"cd {folder}" in result.output, "it says what to do next"
    return folder


def test_a_new_project_has_a_contract_and_a_configuration_that_load(project: Path) -> None:
    assert pipeline_names(project / "conf") == ["flights"]
    config = load_config("flights", env="local", conf_dir=project / "conf", environ={})
    contract = load_contract(project / "data_contracts" / config.contract)
    assert contract.key == ("carrier", "flight", "origin", "scheduled_departure")


def test_a_new_project_has_all_that_its_readme_and_makefile_name(project: Path) -> None:
    readme = (project / "README.md").read_text()
    for named in re.findall(r"^\| `([^`]+)`", readme, re.MULTILINE):
        assert (project / named).exists(), named
    makefile = (project / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z]+)", readme, re.MULTILINE)) <= targets
    assert (project / "sample" / "send.py").is_file()
    assert {"ingest_stream.py", "nightly_batch.py"} <= {path.name for path in (project / "jobs").iterdir()}


def test_a_new_project_keeps_its_lake_out_of_git(project: Path) -> None:
    assert ".lake/" in (project / ".gitignore").read_text().splitlines()


def test_an_empty_folder_is_as_good_as_a_new_one(tmp_path: Path) -> None:
    assert CliRunner().invoke(init, [str(tmp_path)]).exit_code == 0


def test_the_current_folder_can_be_named_by_a_dot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(init, ["."], catch_exceptions=False)
    assert result.exit_code == 0
    assert (tmp_path / "Makefile").is_file()


def test_a_folder_with_files_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("mine")
    result = CliRunner().invoke(init, [str(tmp_path)])
    assert isinstance(result.exception, ConfigError)
    assert "is not empty (it has Makefile)" in str(result.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["Makefile"]


def test_a_file_is_not_taken_for_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = CliRunner().invoke(init, [str(tmp_path / "file")])
    assert isinstance(result.exception, ConfigError)
    assert "is a file" in str(result.exception)


def test_a_place_that_cannot_be_written_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = CliRunner().invoke(init, [str(tmp_path / "file" / "project")])
    assert isinstance(result.exception, ConfigError)
    assert "cannot be written" in str(result.exception)


@pytest.mark.parametrize("name", ["", "x" * 300])
def test_a_name_that_no_folder_can_have_is_refused(name: str) -> None:
    result = CliRunner().invoke(init, [name])
    assert isinstance(result.exception, ConfigError)


def test_the_next_steps_can_be_pasted(tmp_path: Path) -> None:
    result = CliRunner().invoke(init, [str(tmp_path / "it's mine")], catch_exceptions=False)
    assert f"""cd '{tmp_path}/it'"'"'s mine'""" in result.output
