"""A table and a checkpoint go together at any moment of a stream, and never when one of them is older."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.delta.checkpoint_fit import BEGIN, StreamTable, misfit
from pipelines.delta.table_state import StreamCommit, TableState, has_taken_back
from pipelines.spark.checkpoints import QueryFiles

NONE_YET = QueryFiles("checkpoint", None, 0, None)
EMPTY = TableState("table", "id", {})


def moments(batches: int) -> list[tuple[QueryFiles, TableState]]:
    """Checkpoint and table after each thing that a stream does: plan, commit to the table, be done."""
    files, table = NONE_YET, EMPTY
    found = [(files, table)]
    files = replace(files, query="query")
    for batch in range(batches):
        files = replace(files, in_flight=batch)
        found.append((files, table))
        table = replace(table, batches={"query": batch})
        found.append((files, table))
        files = replace(files, next_batch=batch + 1, in_flight=None)
        found.append((files, table))
    return found


def written(files: QueryFiles, state: TableState) -> StreamTable:
    return StreamTable("table", state, bool(state.batches), "id", files.next_batch - 1)


@given(st.integers(1, 6), st.data())
def test_what_is_of_one_moment_goes_together_and_nothing_else(batches: int, data: st.DataObject) -> None:
    history = moments(batches)
    lawful = [(files, state) for files, state in history]
    files, _ = data.draw(st.sampled_from(history))
    _, state = data.draw(st.sampled_from(history))
    found = misfit(files, written(files, state))
    assert (found is None) == ((files, state) in lawful)


def test_every_moment_is_followed_by_another() -> None:
    assert all(before != after for before, after in pairwise(moments(3)))


DONE = QueryFiles("checkpoint", "query", 3, None, {"bronze": "id"})
AT = StreamTable("table", TableState("table", "id", {"query": 2}), table_id="id", required=2)


@pytest.mark.parametrize(
    ("files", "table", "why"),
    [
        (DONE, AT, None),
        (DONE, replace(AT, state=None), "there is no such table"),
        (DONE, replace(AT, table_id="other"), "is not the table of the checkpoint"),
        # Made before ids were noted.
        (DONE, replace(AT, table_id=None), None),
        (DONE, replace(AT, state=TableState("table", "id", {"another": 9})), "does not know query query"),
        (DONE, replace(AT, state=TableState("table", "id", {"another": 9}), required=None), None),
        (DONE, replace(AT, has_taken_back=True), "a RESTORE rolled back rows"),
        (NONE_YET, StreamTable("table", None), None),
        (NONE_YET, StreamTable("table", EMPTY, is_filled=True), "has rows of a stream, but its checkpoint"),
        (replace(NONE_YET, note={BEGIN: "bronze"}), StreamTable("table", EMPTY, is_filled=True), None),
        # It was killed before its first micro-batch was planned, or done.
        (replace(DONE, next_batch=0), StreamTable("table", EMPTY), None),
        (replace(DONE, next_batch=0, in_flight=0), StreamTable("table", None), None),
        (
            replace(DONE, next_batch=0, in_flight=0),
            StreamTable("table", EMPTY, is_filled=True),
            "its checkpoint",
        ),
        # A replay wrote to the table that was noted when the first micro-batch was begun.
        (
            replace(DONE, next_batch=0, in_flight=0),
            StreamTable("table", EMPTY, is_filled=True, table_id="id"),
            None,
        ),
        (
            replace(DONE, next_batch=0),
            StreamTable("table", EMPTY, is_filled=True, table_id="id"),
            "its checkpoint",
        ),
        (
            replace(DONE, next_batch=0, in_flight=0),
            StreamTable("table", EMPTY, is_filled=True, table_id="other"),
            "its checkpoint",
        ),
    ],
)
def test_what_does_not_go_together_is_told(files: QueryFiles, table: StreamTable, why: str | None) -> None:
    found = misfit(files, table)
    assert found is None if why is None else why in (found or "")


@given(st.lists(st.one_of(st.sampled_from(["WRITE", "OPTIMIZE", "MERGE"]), st.integers(0, 9)), max_size=9))
def test_a_restore_is_told_when_rows_are_missing_for_it(steps: list[str | int]) -> None:
    commits = [StreamCommit(0, "CREATE TABLE")]
    content: list[set[int]] = [set()]
    for version, step in enumerate(steps, 1):
        if isinstance(step, int):
            to = step % version
            commits.append(StreamCommit(version, "RESTORE", restored=to))
            content.append(content[to])
        else:
            commits.append(StreamCommit(version, step))
            content.append(content[-1] | ({version} if step != "OPTIMIZE" else set()))
    writes = {commit.version for commit in commits if commit.operation in ("WRITE", "MERGE")}
    assert has_taken_back(commits[::-1]) == (content[-1] != writes)


def test_a_restore_to_before_the_commits_at_hand_may_have_taken_anything() -> None:
    assert has_taken_back([StreamCommit(9, "RESTORE", restored=3), StreamCommit(8, "OPTIMIZE")])
    assert has_taken_back([StreamCommit(9, "RESTORE", removed=1)])
    assert not has_taken_back([StreamCommit(9, "RESTORE"), StreamCommit(8, "OPTIMIZE")])
    assert not has_taken_back([])
