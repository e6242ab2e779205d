"""A file of a checkpoint that is damaged or gone is named, and the way back gives the same rows."""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from chaos.runbook import damaged_end, reset_in
from chaos.state_files import file_to_tear, tear
from pipelines.delta.reader_position_check import require_not_read_ahead
from pipelines.errors import InfrastructureError, SourceError
from pipelines.steps.checkpoints import reset_checkpoint
from tests.support.delta_rows import rows_in
from tests.support.lakes import Lake
from tests.support.nights import on, stream

pytestmark = pytest.mark.usefixtures("two_partitions")

CHANGES = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
BAD = b"poison"
KEPT, GONE = "checksum kept", "checksum gone"
DAMAGES = [(how, checksum) for how in ("cut", "flipped", "missing") for checksum in (KEPT, GONE)]


class Stream:
    """A stream that has done two micro-batches, and has a third before it."""

    def __init__(self, lake: Lake, backup: Path) -> None:
        self.lake, self.backup = lake, backup
        self.checkpoint = Path(lake.config.checkpoint("speed"))
        tables = (Path(lake.config.table(layer)) for layer in ("speed", "quarantine"))
        self.folders = [self.checkpoint, *tables]
        lake.ingest([on(1, 1), on(1, 2), BAD])
        stream(lake)
        lake.ingest([on(1, 3)])
        stream(lake)
        # One of them is a copy, which only the state knows.
        lake.ingest([on(1, 1), on(1, 4)])
        for number, folder in enumerate(self.folders):
            shutil.copytree(folder, backup / str(number))

    def put_back(self) -> None:
        for number, folder in enumerate(self.folders):
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(self.backup / str(number), folder)

    def damage(self, which: str, how: str, checksum: str) -> Path:
        """Damages the newest file of a kind."""
        file = file_to_tear(self.checkpoint, which)
        assert file is not None
        if how == "emptied":
            file.write_bytes(b"")
        else:
            tear(file, how)
        if checksum == GONE:
            _beside(file).unlink()
        return file

    def refused(self) -> str:
        """The stream ends with exit code 4 and the way back, and writes nothing; what it said."""
        before = self.rows()
        with pytest.raises(SourceError, match=r"docs/runbook\.md, '") as no:
            stream(self.lake)
        assert no.value.exit_code == 4
        assert self.rows() == before
        return str(no.value)

    def assert_exact(self) -> None:
        stream(self.lake)
        assert self.rows() == [1, 2, 3, 4]
        assert len(rows_in(self.lake.config.table("quarantine"), "_offset")) == 1

    def rows(self) -> list[int]:
        return sorted(number for (number,) in rows_in(self.lake.config.table("speed"), "flight"))


def _beside(file: Path) -> Path:
    """Where Hadoop keeps the checksum of a file."""
    return file.with_name(f".{file.name}.crc")


def test_a_micro_batch_whose_end_is_damaged_is_done_again(lake: Lake, tmp_path: Path) -> None:
    of = Stream(lake, tmp_path)
    for how, checksum in (*DAMAGES[:4], ("emptied", GONE)):
        file = of.damage("commits", how, checksum)
        said = of.refused()
        assert f"{file}: the file that says that micro-batch 1 is done" in said
        of.put_back()
    file.write_bytes(b"v1\n")
    moved = damaged_end(of.refused())
    assert moved == file
    for each in (moved, _beside(moved)):
        each.unlink()
    of.assert_exact()
    # Without it, beside a later plan, Spark would pass over this micro-batch.
    of.put_back()
    file = of.damage("commits", "cut", GONE)
    shutil.copy(of.checkpoint / "offsets" / "1", of.checkpoint / "offsets" / "2")
    assert f"{file}: the file is empty, cut off or changed" in of.refused()
    # Gone without its checksum, which is in the way of the next one, once.
    of.put_back()
    of.damage("commits", "missing", KEPT)
    with suppress(InfrastructureError):
        stream(lake)
    of.assert_exact()


def test_without_the_plan_of_what_is_done_no_other_micro_batch_is_done_again(
    lake: Lake, tmp_path: Path
) -> None:
    of = Stream(lake, tmp_path)
    for checksum in (KEPT, GONE):
        file = of.damage("offsets", "missing", checksum)
        assert f"{file}: the file is missing" in of.refused()
        # Those who look at the checkpoint beside the stream say the same.
        with pytest.raises(SourceError, match="the file is missing"):
            require_not_read_ahead(lake.pipeline, "bronze")
        of.put_back()
    of.damage("offsets", "missing", KEPT)
    reset_checkpoint(lake.pipeline, "reset", "speed")
    of.assert_exact()


@pytest.fixture(params=["true", pytest.param("false", marks=pytest.mark.thorough)])
def changes(request: pytest.FixtureRequest, lake: Lake) -> Iterator[None]:
    """The state in files of changes, or in whole ones."""
    before = lake.spark.conf.get(CHANGES)
    lake.spark.conf.set(CHANGES, request.param)
    yield
    lake.spark.conf.set(CHANGES, str(before))


@pytest.mark.usefixtures("changes")
def test_a_state_that_cannot_be_read_is_refused_and_made_anew(lake: Lake, tmp_path: Path) -> None:
    of = Stream(lake, tmp_path)
    for how, checksum in DAMAGES:
        of.damage("state", how, checksum)
        assert reset_in(of.refused()) == "speed", (how, checksum)
        of.put_back()
    of.damage("state", "cut", KEPT)
    reset_checkpoint(lake.pipeline, "reset", "speed")
    of.assert_exact()
