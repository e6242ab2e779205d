"""What is read of a checkpoint whose files were damaged."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipelines.errors import SourceError
from pipelines.spark.checkpoints import note_path, query_files, write_note

pytestmark = pytest.mark.spark


def test_a_file_that_does_not_match_its_checksum_is_damaged(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "query")
    write_note(spark, path, {"since": 3})
    note = Path(note_path(path))
    assert query_files(spark, path).note == {"since": 3}
    note.write_text(note.read_text().replace("3", "4"))
    with pytest.raises(SourceError, match="expected the bytes of its checksum"):
        query_files(spark, path)
