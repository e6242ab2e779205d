"""What is no file of text is refused before it is read: a pipe or a device may have no end."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.config.loader import load_config
from pipelines.contracts.contract import DataContract
from pipelines.errors import OncelakeError
from pipelines.expectations.suite_files import own_expectations, suite_path
from pipelines.formats.contract_files import load_contract
from pipelines.text_files import LARGEST_JSON, UnfitFile, read_text


def _contract(path: Path) -> None:
    load_contract(path)


def _configuration(path: Path) -> None:
    conf = path.parent / "conf"
    (conf / "base/pipelines").mkdir(parents=True)
    (conf / "local").mkdir()
    (conf / "base/pipelines/flights.yml").symlink_to(path)
    load_config("flights", conf_dir=conf, environ={})


@pytest.fixture
def suite(contract: DataContract) -> Callable[[Path], None]:
    def read(path: Path) -> None:
        file = suite_path(path.parent / "conf", "flights", "rows")
        file.parent.mkdir(parents=True)
        file.symlink_to(path)
        own_expectations(path.parent / "conf", "flights", contract)

    return read


@pytest.fixture(params=["contract", "configuration", "suite"])
def read(request: pytest.FixtureRequest, suite: Callable[[Path], None]) -> Callable[[Path], None]:
    return {"contract": _contract, "configuration": _configuration, "suite": suite}[request.param]


def refusal(read: Callable[[Path], None], path: Path) -> str:
    with pytest.raises(OncelakeError) as refused:
        read(path)
    assert refused.value.exit_code == 2
    return str(refused.value)


@pytest.mark.timeout(10)
def test_a_pipe_that_nobody_writes_to_is_not_waited_for(tmp_path: Path, read: Callable[[Path], None]) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "expected a regular file, got a pipe, whose end may never come" in refusal(read, pipe)


def test_what_is_no_file_of_text_is_named(tmp_path: Path, read: Callable[[Path], None]) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        assert "expected a regular file, got a socket; name a file" in refusal(read, path)


def test_a_device_and_a_folder_are_no_contract(tmp_path: Path) -> None:
    assert refusal(_contract, Path("/dev/null")).startswith(
        "/dev/null: the contract cannot be read: expected a regular file, got a device; name a file"
    )
    assert "expected a regular file, got a folder" in refusal(_contract, tmp_path)


@pytest.mark.timeout(10)
def test_a_file_that_would_take_minutes_is_refused(tmp_path: Path, read: Callable[[Path], None]) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(LARGEST_JSON + 1)
    message = refusal(read, path)
    assert f"got {LARGEST_JSON + 1:,} bytes; name another file, or shorten this one" in message
    assert "expected 4 MiB at most" in message or "expected 16 MiB at most" in message


def test_a_file_of_the_largest_size_is_read(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("x" * 1_024)
    assert read_text(path, 1_024) == "x" * 1_024
    with pytest.raises(UnfitFile, match="got 1,024 bytes"):
        read_text(path, 1_023)
