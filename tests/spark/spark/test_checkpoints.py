"""What is read of a checkpoint whose files were damaged."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipelines.errors import SourceError
from pipelines.spark.checkpoints import first_offsets, note_path, query_files, write_note

pytestmark = pytest.mark.spark

METADATA = '{"id":"1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed"}'


def test_a_file_that_does_not_match_its_checksum_is_damaged(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "query")
    write_note(spark, path, {"since": 3})
    Path(path).mkdir()
    Path(path, "metadata").write_text(METADATA)
    note = Path(note_path(path))
    assert query_files(spark, path).note == {"since": 3}
    note.write_text(note.read_text().replace("3", "4"))
    with pytest.raises(SourceError, match="expected the bytes of its checksum"):
        query_files(spark, path)


@pytest.mark.parametrize("damaged", ["", "{", '{"since": 4}'])
def test_a_damaged_note_is_no_obstacle_once_its_checkpoint_is_moved_aside(
    spark: SparkSession, tmp_path: Path, damaged: str
) -> None:
    path = tmp_path / "query"
    write_note(spark, str(path), {"since": 3})
    (path / "commits").mkdir(parents=True)
    (path / "metadata").write_text(METADATA)
    assert query_files(spark, str(path)).note == {"since": 3}
    Path(note_path(str(path))).write_text(damaged)
    with pytest.raises(SourceError, match=r"query\.note\.json: the file is empty, cut off or changed"):
        query_files(spark, str(path))
    path.rename(path.with_name("query-old"))
    assert query_files(spark, str(path)).note == {}
    # The next start writes another one in its place.
    write_note(spark, str(path), {"since": 5})
    assert query_files(spark, str(path)).note == {"since": 5}


def test_where_a_query_began_is_known_or_the_file_is_damaged(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "query/sources/0/0"
    assert first_offsets(spark, str(tmp_path / "query")) == {}
    file.parent.mkdir(parents=True)
    # As Spark writes it.
    file.write_bytes(b'\0v1\n{"flights":{"1":7,"0":0}}')
    assert first_offsets(spark, str(tmp_path / "query")) == {"flights": {0: 0, 1: 7}}
    for damaged in (b"", b"\0", b"\0v1\n", b'\0v1\n{"flights":{"1":7', b"\0v1\n[7]", b"\0\0\0\0"):
        file.write_bytes(damaged)
        with pytest.raises(SourceError, match="sources/0/0: the file is empty, cut off or changed"):
            first_offsets(spark, str(tmp_path / "query"))
