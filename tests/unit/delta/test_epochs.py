"""What of a table's history keeps a run from certifying."""

import pytest

from pipelines.delta.epochs import Commit, commits_of_others

OWN = Commit(12, "WRITE", "build run (3.1)")


@pytest.mark.parametrize(
    "operation",
    [
        "WRITE",
        "DELETE",
        "MERGE",
        "UPDATE",
        "RESTORE",
        "REPLACE TABLE AS SELECT",
        "TRUNCATE",
        "of another engine",
    ],
)
def test_what_others_did_to_rows_since_the_base_is_found(operation: str) -> None:
    foreign = Commit(11, operation)
    assert commits_of_others([OWN, foreign], base=10, certified_version=12, own=[12]) == [foreign]
    assert commits_of_others([foreign], base=11, certified_version=12, own=[12]) == []
    assert commits_of_others([replaced(foreign, 13)], base=10, certified_version=12, own=[12]) == []


def replaced(commit: Commit, version: int) -> Commit:
    return Commit(version, commit.operation, commit.note)


@pytest.mark.parametrize(
    "operation", ["OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "ADD COLUMNS"]
)
def test_what_leaves_the_rows_as_they_are_is_nobodys_harm(operation: str) -> None:
    assert commits_of_others([Commit(11, operation), OWN], base=10, certified_version=12, own=[12]) == []


def test_a_commit_that_looks_like_the_runs_own_counts_by_its_version_alone() -> None:
    copy = Commit(11, OWN.operation, OWN.note)
    assert commits_of_others([copy, OWN], base=10, certified_version=12, own=[12]) == [copy]
