"""Whether a run alone has written what it is about to certify, by the commits of the table."""

import pytest

from pipelines.delta.epochs import Commit
from pipelines.errors import SourceError
from pipelines.nightly.night_run import refuse_other_writers


def commits(**operations: str) -> list[Commit]:
    return [Commit(version=int(name[1:]), operation=operation) for name, operation in operations.items()]


def test_commits_of_the_run_alone_and_those_that_change_no_rows_are_accepted() -> None:
    refuse_other_writers("batch", commits(v8="WRITE", v9="OPTIMIZE", v10="WRITE"), [7, 8, 10])


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (commits(v8="WRITE", v9="WRITE", v10="WRITE"), r"version 9 \(WRITE\)"),
        (commits(v8="WRITE"), "version 10, which this run wrote, is gone"),
        ([], "version 8, which this run wrote, is gone, version 10, which"),
    ],
)
def test_a_table_that_others_wrote_to_or_put_back_is_refused(found: list[Commit], said: str) -> None:
    with pytest.raises(SourceError, match=said):
        refuse_other_writers("batch", found, [7, 8, 10])
