"""Processes of one machine take turns, by a file that all of them find."""

import os
from pathlib import Path

from pipelines.runtime.file_lock import file_lock, lock_file

PROGRAMS = ("ingest", "speed")
WITHIN_S = 60


def test_a_lake_that_is_no_folder_is_locked_among_the_files_of_the_user(tmp_path: Path) -> None:
    files = {lock_file(f"s3a://{bucket}/lake", "flights", program) for bucket in "ab" for program in PROGRAMS}
    assert len(files) == 4
    assert {each.parent.name for each in files} == {f"oncelake-{os.getuid()}"}
    assert lock_file(f"file://{tmp_path}/a%20lake", "flights", "ingest").is_relative_to(tmp_path / "a lake")


def test_processes_take_turns_and_one_that_stays_is_not_waited_for_without_end(tmp_path: Path) -> None:
    file = tmp_path / "ops/turn"
    with file_lock(file, WITHIN_S) as first, file_lock(file, 0.5) as second:
        assert (first, second) == (True, False)
    with file_lock(file, 0) as third:
        assert third
