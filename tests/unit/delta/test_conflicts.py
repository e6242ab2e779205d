"""What happens to a commit that conflicts with those of other writers."""

import time
from typing import NoReturn

import pytest
from delta.exceptions import ConcurrentAppendException, MetadataChangedException

from pipelines.delta.conflicts import TABLE_CHANGED, retry_conflicts
from pipelines.errors import InfrastructureError


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)


def test_a_commit_that_conflicts_twice_is_made_at_the_third_attempt() -> None:
    conflicts = [ConcurrentAppendException("others"), MetadataChangedException("others")]

    def commit() -> int:
        if conflicts:
            raise conflicts.pop()
        return 7

    assert retry_conflicts("lake/batch", commit) == 7


def test_a_commit_that_always_conflicts_names_its_table() -> None:
    attempts = []

    def conflict() -> NoReturn:
        attempts.append(1)
        raise ConcurrentAppendException("others wrote")

    with pytest.raises(
        InfrastructureError, match=r"^lake/batch: other writers committed to it first at each"
    ):
        retry_conflicts("lake/batch", conflict)
    assert len(attempts) == 6


def test_a_conflict_after_which_the_commit_may_not_be_made_again_is_raised() -> None:
    attempts = []

    def conflict() -> NoReturn:
        attempts.append(1)
        raise ConcurrentAppendException("others wrote")

    with pytest.raises(ConcurrentAppendException):
        retry_conflicts("lake/batch", conflict, TABLE_CHANGED)
    assert len(attempts) == 1
