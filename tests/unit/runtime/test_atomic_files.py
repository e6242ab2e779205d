"""Files are written as wholes, and all of them before any is replaced."""

import os
from pathlib import Path

import pytest

from pipelines.errors import InfrastructureError
from pipelines.runtime.atomic_files import write_files


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_files_are_written_into_a_new_folder_for_whom_the_umask_lets_read(
    tmp_path: Path, mask: int, mode: int
) -> None:
    out = tmp_path / "a" / "b"
    before = os.umask(mask)
    try:
        paths = write_files(out, {"one.txt": "é\n", "two.txt": ""}, "texts")
    finally:
        os.umask(before)
    assert paths == [out / "one.txt", out / "two.txt"]
    assert (out / "one.txt").read_bytes() == "é\n".encode()
    assert {path.stat().st_mode & 0o777 for path in out.iterdir()} == {mode}


def test_if_one_cannot_be_written_all_are_left_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("before")
    with pytest.raises(InfrastructureError, match=r"texts: cannot write to .*name another one with --out"):
        write_files(tmp_path, {"one.txt": "after", "none/two.txt": ""}, "texts")
    assert [path.name for path in tmp_path.iterdir()] == ["one.txt"]
    assert (tmp_path / "one.txt").read_text() == "before"


def test_what_is_no_text_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        write_files(tmp_path, {"one.txt": "\ud800"}, "texts")
    assert list(tmp_path.iterdir()) == []
