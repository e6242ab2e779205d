"""Files are written as wholes, and all of them before any is replaced."""

from pathlib import Path

import pytest

from pipelines.errors import InfrastructureError
from pipelines.runtime.atomic_files import write_files


def test_files_are_written_into_a_new_folder_for_everyone_to_read(tmp_path: Path) -> None:
    out = tmp_path / "a" / "b"
    paths = write_files(out, {"one.txt": "é\n", "two.txt": ""}, "texts")
    assert paths == [out / "one.txt", out / "two.txt"]
    assert (out / "one.txt").read_bytes() == "é\n".encode()
    assert {path.stat().st_mode & 0o777 for path in out.iterdir()} == {0o644}


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
