"""A file of a checkpoint that is damaged or gone is named, and the way back gives the same rows."""

import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from chaos.runbook import damaged_end, reset_in
from chaos.state_files import file_to_tear, tear
from pipelines.contracts.contract import DataContract
from pipelines.delta.reader_position_check import require_not_read_ahead
from pipelines.errors import InfrastructureError, SourceError
from pipelines.session_settings import session_settings
from pipelines.steps.checkpoints import reset_checkpoint
from tests.support.delta_rows import rows_in
from tests.support.lake_copies import continued, lake_in
from tests.support.lakes import Lake
from tests.support.nights import on, stream

pytestmark = pytest.mark.usefixtures("two_partitions")

CHANGES = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
BAD = b"poison"
KEPT, GONE = "checksum kept", "checksum gone"
DAMAGES = [(how, checksum) for how in ("cut", "flipped", "missing") for checksum in (KEPT, GONE)]


def begin(lake: Lake) -> None:
    """Lets a stream do two micro-batches, and leaves a third before it."""
    lake.ingest([on(1, 1), on(1, 2), BAD])
    stream(lake)
    lake.ingest([on(1, 3)])
    stream(lake)
    # One of them is a copy, which only the state knows.
    lake.ingest([on(1, 1), on(1, 4)])


@pytest.fixture(scope="module")
def begun(spark: SparkSession, contract: DataContract, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake whose stream has begun, to be copied."""
    lake = lake_in(tmp_path_factory.mktemp("begun") / "lake", spark, contract)
    begin(lake)
    return lake


class Stream:
    """The stream of a lake, whose files are put back before each damage."""

    def __init__(self, lake: Lake, backup: Path) -> None:
        self.lake, self.backup = lake, backup
        self.checkpoint = Path(lake.config.checkpoint("speed"))
        tables = (Path(lake.config.table(layer)) for layer in ("speed", "quarantine"))
        self.folders = [self.checkpoint, *tables]
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


def test_a_micro_batch_whose_end_is_damaged_is_done_again(begun: Lake, lake: Lake, tmp_path: Path) -> None:
    of = Stream(continued(begun, lake), tmp_path)
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
    begun: Lake, lake: Lake, tmp_path: Path
) -> None:
    of = Stream(continued(begun, lake), tmp_path)
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


def check_damaged_state(lake: Lake, backup: Path) -> None:
    """Asserts that a state that cannot be read is refused, and can be made anew."""
    of = Stream(lake, backup)
    for how, checksum in DAMAGES:
        of.damage("state", how, checksum)
        assert reset_in(of.refused()) == "speed", (how, checksum)
        of.put_back()
    of.damage("state", "cut", KEPT)
    reset_checkpoint(lake.pipeline, "reset", "speed")
    of.assert_exact()


def test_a_state_that_cannot_be_read_is_refused_and_made_anew(
    begun: Lake, lake: Lake, tmp_path: Path
) -> None:
    check_damaged_state(continued(begun, lake), tmp_path)


@pytest.mark.thorough
def test_a_state_in_whole_files_that_cannot_be_read_is_refused_and_made_anew(
    lake: Lake, tmp_path: Path
) -> None:
    with session_settings(lake.spark, {CHANGES: "false"}):
        begin(lake)
        check_damaged_state(lake, tmp_path)
