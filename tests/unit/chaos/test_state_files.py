"""Files of checkpoints are damaged as they are told to be."""

from pathlib import Path

import pytest

from chaos.state_files import file_to_tear, tear

TEXT = b"v1\n{}\n{}"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    checkpoint = tmp_path / "speed"
    for name in ("offsets/9", "offsets/10", "offsets/.10.crc", "commits/9", "metadata", "state/0/1/2.zip"):
        file = checkpoint / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(TEXT)
    for beside in ("note", "progress"):
        (tmp_path / f"speed.{beside}.json").write_bytes(TEXT)
    return checkpoint


@pytest.mark.parametrize(
    ("which", "name"),
    [
        ("offsets", "offsets/10"),
        ("commits", "commits/9"),
        ("metadata", "metadata"),
        ("state", "state/0/1/2.zip"),
        ("note", "../speed.note.json"),
        ("progress", "../speed.progress.json"),
    ],
)
def test_the_newest_file_is_torn(checkpoint: Path, which: str, name: str) -> None:
    found = file_to_tear(checkpoint, which)
    assert found is not None
    assert found.samefile(checkpoint / name)


@pytest.mark.parametrize("which", ["offsets", "commits", "metadata", "state", "note", "progress"])
def test_a_checkpoint_without_such_a_file_has_none(tmp_path: Path, which: str) -> None:
    assert file_to_tear(tmp_path, which) is None


def test_a_file_is_cut_or_flipped_in_one_bit_or_missing(checkpoint: Path) -> None:
    file = checkpoint / "metadata"
    tear(file, "flipped")
    differing = [a ^ b for a, b in zip(TEXT, file.read_bytes(), strict=True) if a != b]
    assert [each.bit_count() for each in differing] == [1]
    tear(file, "cut")
    assert 0 < file.stat().st_size < len(TEXT)
    tear(file, "missing")
    assert not file.exists()
