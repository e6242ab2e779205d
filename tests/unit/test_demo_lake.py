"""The demo's cheap looks at a Delta table and a checkpoint say what Spark would say."""

import json
from pathlib import Path

import pytest

from demo.lake import count_rows, has_read_all


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


def test_a_query_that_has_committed_beyond_the_last_data_has_read_all(table: Path, checkpoint: Path) -> None:
    commit(table, 0)
    commit(table, 1, add("a", 10))
    commit(table, 2, {"metaData": {}})
    batch(checkpoint, 0, 2, committed=True)
    assert has_read_all(checkpoint, table)


@pytest.mark.parametrize(("next_version", "committed"), [(2, False), (1, True)])
def test_a_batch_under_way_or_short_of_the_last_data_has_not_read_all(
    table: Path, checkpoint: Path, next_version: int, committed: bool
) -> None:
    commit(table, 0)
    commit(table, 1, add("a", 10))
    batch(checkpoint, 0, 1, committed=True)
    batch(checkpoint, 1, next_version, committed=committed)
    assert not has_read_all(checkpoint, table)


def test_a_query_that_never_committed_has_read_nothing(table: Path, checkpoint: Path) -> None:
    commit(table, 0)
    assert not has_read_all(checkpoint, table)
