"""What is said of a file of a checkpoint that is damaged: the way back differs by stream."""

import pytest

from pipelines.spark.checkpoints import damaged_file_error

SECTION = "docs/runbook.md, 'A table and its checkpoint do not match'"
BEGINNING = "/publish aside and start publishing from the beginning"


@pytest.mark.parametrize("file", ["speed/offsets/7", "ingest.note.json", "ingest_publish/metadata"])
def test_streams_that_write_tables_begin_without_it_by_the_runbook(file: str) -> None:
    told = str(damaged_file_error(f"/lake/ops/checkpoints/flights/{file}", "something"))
    assert told.endswith(f"from a backup, or let the stream begin without it. See {SECTION}")


@pytest.mark.parametrize("file", ["publish/metadata", "publish/commits/7"])
def test_publishing_begins_without_it_by_its_own_reset(file: str) -> None:
    told = str(damaged_file_error(f"s3a://lake/ops/checkpoints/flights/{file}", "something"))
    assert f"or move s3a://lake/ops/checkpoints/flights{BEGINNING}. See {SECTION}" in told


def test_the_note_beside_it_is_moved_alone() -> None:
    told = str(damaged_file_error("s3a://lake/ops/checkpoints/flights/publish.note.json", "something"))
    assert "from a backup, or move this file away, and its .crc: the next start writes another one" in told
    assert BEGINNING not in told


def test_the_plan_of_what_is_not_published_is_moved_alone() -> None:
    told = str(damaged_file_error("/lake/ops/checkpoints/flights/publish/offsets/7", "something"))
    crc = "/lake/ops/checkpoints/flights/publish/offsets/.7.crc"
    assert f"nothing of it is published, move this file and {crc} out of the folder; otherwise move" in told
    assert BEGINNING in told
