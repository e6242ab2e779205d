"""The demo's cheap looks at a Delta table and a checkpoint say what Spark would say."""

import json
from pathlib import Path

import pytest

from demo.lake import count_rows, rows_read


def commit(table: Path, version: int, *actions: dict[str, object]) -> None:
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(action) for action in ({"commitInfo": {}}, *actions)]
    (log / f"{version:020}.json").write_text("\n".join(lines))


def add(path: str, rows: int) -> dict[str, object]:
    return {"add": {"path": path, "stats": json.dumps({"numRecords": rows})}}


def batch(checkpoint: Path, number: int, next_version: int, *, committed: bool) -> None:
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True, exist_ok=True)
    offset = json.dumps({"sourceVersion": 1, "reservoirVersion": next_version, "index": -1})
    (checkpoint / "offsets" / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{offset}')
    if committed:
        (checkpoint / "commits" / str(number)).write_text("v1\n{}")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "table"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def test_a_table_that_does_not_exist_has_no_rows(table: Path) -> None:
    assert count_rows(table) == 0


def test_rows_are_those_of_files_added_and_not_removed(table: Path) -> None:
    commit(table, 0)
    commit(table, 1, add("a", 10), add("b", 5))
    commit(table, 2, {"remove": {"path": "a"}}, add("c", 7))
    assert count_rows(table) == 12


def test_a_query_has_read_the_commits_before_the_version_that_it_reads_next(
    table: Path, checkpoint: Path
) -> None:
    commit(table, 0)
    commit(table, 1, add("a", 10))
    commit(table, 2, {"metaData": {}})
    commit(table, 3, add("b", 5))
    batch(checkpoint, 0, 2, committed=True)
    assert rows_read(checkpoint, table) == 10
    batch(checkpoint, 1, 4, committed=True)
    assert rows_read(checkpoint, table) == 15


def test_a_batch_under_way_has_not_been_read(table: Path, checkpoint: Path) -> None:
    commit(table, 0)
    commit(table, 1, add("a", 10))
    batch(checkpoint, 0, 1, committed=True)
    batch(checkpoint, 1, 2, committed=False)
    assert rows_read(checkpoint, table) == 0


def test_the_newest_batch_counts_by_number_not_by_name(table: Path, checkpoint: Path) -> None:
    for version in range(12):
        commit(table, version, add(str(version), 1))
        batch(checkpoint, version, version + 1, committed=True)
    assert rows_read(checkpoint, table) == 12


def test_a_query_that_never_committed_has_read_nothing(table: Path, checkpoint: Path) -> None:
    commit(table, 0, add("a", 10))
    assert rows_read(checkpoint, table) == 0
