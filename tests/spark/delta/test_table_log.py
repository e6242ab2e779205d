"""What is asked of a table's log, and what is said where the log has no answer."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.delta.commits import changes_nothing, commit_at, commits_between, leave_files
from pipelines.delta.epochs import Commit, Stamp
from pipelines.delta.fenced_commits import claim, commits_since
from pipelines.delta.io import append
from pipelines.delta.table_properties import set_table_property, table_property
from pipelines.delta.tables import ensure_table, shape, small_frame
from pipelines.errors import SourceError
from tests.support.lakes import Lake

pytestmark = pytest.mark.spark


@pytest.fixture
def table(lake: Lake, tmp_path: Path) -> str:
    path = str(tmp_path / "table")
    ensure_table(lake.spark, path, shape("n int"))
    return path


def test_a_property_is_the_value_none_or_unknown(lake: Lake, table: str, tmp_path: Path) -> None:
    set_table_property(lake.spark, table, "oncelake.mark", "7")
    assert table_property(lake.spark, table, "oncelake.mark") == "7"
    assert table_property(lake.spark, table, "oncelake.other") is None
    with pytest.raises(SourceError, match=r"lost: no such table, so its property oncelake\.mark is unknown"):
        table_property(lake.spark, str(tmp_path / "lost"), "oncelake.mark")


def test_a_commit_that_does_not_say_what_it_did_counts_as_one_of_others(lake: Lake, table: str) -> None:
    set_table_property(lake.spark, table, "oncelake.mark", "7")
    assert commits_since(lake.spark, table, 0) == [Commit(1, "SET TBLPROPERTIES")]
    file = Path(table, "_delta_log", f"{1:020d}.json")
    actions = [json.loads(line) for line in file.read_text().splitlines()]
    silent: list[dict[str, Any]] = [{"commitInfo": {}}, {"commitInfo": {"timestamp": 1}}, {}]
    for said in silent:
        others = [action for action in actions if "commitInfo" not in action]
        file.write_text("\n".join(map(json.dumps, [*others, *([said] if said else [])])))
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
        assert commit_at(lake.spark, table, 1) == Commit(1, "unknown")
    file.unlink()
    assert commit_at(lake.spark, table, 1) == Commit(1, "unknown")


def test_files_are_those_of_before_if_each_commit_says_so(lake: Lake, table: str) -> None:
    def same(after: int, until: int) -> bool:
        return leave_files(lake.spark, table, after, until)

    for value in ("7", "8"):
        set_table_property(lake.spark, table, "oncelake.mark", value)
    append(small_frame(lake.spark, [{"n": 1}], shape("n int")), table)
    set_table_property(lake.spark, table, "oncelake.mark", "9")
    assert (same(0, 2), same(3, 4), same(4, 4)) == (True, True, True)
    assert (same(2, 3), same(0, 4)) == (False, False)
    # A restored table: the version is one that is yet to come.
    assert not same(4, 3)
    # Neither a commit that is gone nor an empty file says what it did.
    file = Path(table, "_delta_log", f"{4:020d}.json")
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    file.write_text("")
    assert not same(3, 4)
    file.unlink()
    assert not same(3, 4)


@pytest.mark.thorough
def test_many_commits_are_not_looked_at(lake: Lake, table: str) -> None:
    for number in range(1, 22):
        assert claim(lake.spark, table, Stamp("test", number, "note")) == number
    assert leave_files(lake.spark, table, 1, 21)
    assert not leave_files(lake.spark, table, 0, 21)


def test_ends_of_lines_in_rows_are_none_in_the_log(lake: Lake, tmp_path: Path) -> None:
    table = str(tmp_path / "texts")
    ensure_table(lake.spark, table, shape("carrier string"))
    append(lake.spark.createDataFrame([("U\u2028A\x85",)], "carrier string"), table)
    log = Path(table, "_delta_log", f"{1:020d}.json").read_text(encoding="utf-8")
    assert "U\u2028A\x85" in log, "Delta writes the least value of a column as it is"
    assert [commit.adds for commit in commits_between(lake.spark, table, 0, 1)] == [True]


def test_a_commit_that_is_cut_off_is_told(lake: Lake, table: str) -> None:
    set_table_property(lake.spark, table, "oncelake.mark", "7")
    file = Path(table, "_delta_log", f"{1:020d}.json")
    file.write_text(file.read_text()[:-40])
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    with pytest.raises(SourceError, match=r"1\.json: the file of a commit is empty or cut off"):
        changes_nothing(lake.spark, table, 0, 1)
