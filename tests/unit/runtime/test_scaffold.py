"""A project is laid out as a whole or not at all, and over nothing that somebody else has written."""

from pathlib import Path

import pytest

from pipelines.runtime.scaffold import lay_out


def test_all_files_are_named_and_there(tmp_path: Path) -> None:
    written = lay_out(tmp_path / "new" / "project")
    assert written == sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert tmp_path / "new/project/conf/base/gx/.gitignore" in written


@pytest.mark.parametrize("name", ["data_contracts/flights.odcs.yaml", "Makefile", "sample"])
def test_what_another_has_written_meanwhile_stays_and_nothing_else_is_left(name: str, tmp_path: Path) -> None:
    """As of two that start at once: only one of them has made the first file."""
    taken = tmp_path / "project" / name
    taken.parent.mkdir(parents=True)
    taken.write_text("of another")
    with pytest.raises(OSError, match=r"exists|Not a directory"):
        lay_out(tmp_path / "project")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [taken]
    assert taken.read_text() == "of another"


def test_one_that_cannot_be_laid_out_leaves_no_new_folder(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="File name too long"):
        lay_out(tmp_path / "project" / ("x" * 300))
    assert list(tmp_path.iterdir()) == []
