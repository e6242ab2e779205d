"""How a table is made where somebody else has not come to the end of it."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import tenacity
from pyspark.errors import AnalysisException

from pipelines.delta.tables import ensure_table, shape, version
from tests.support.lakes import Lake

pytestmark = pytest.mark.spark


def test_a_log_that_was_begun_and_has_no_commit_is_begun_again(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another process may be about to commit, so it is tried again before the log is taken for dead.
    monkeypatch.setattr(tenacity.nap, "time", SimpleNamespace(sleep=lambda seconds: None))
    log = tmp_path / "table/_delta_log"
    (log / "_staged_commits").mkdir(parents=True)
    (log / "_staged_commits/a.json").touch()
    # Of a file that is gone; Hadoop does not list it.
    (log / f"..{0:020d}.json.8.tmp.crc").touch()
    (log / f".{0:020d}.json.7.tmp").write_text('{"commitInfo":')
    ensure_table(lake.spark, str(log.parent), shape("n int"))
    assert version(lake.spark, str(log.parent)) == 0


@pytest.mark.thorough
def test_a_log_without_commits_beside_files_of_rows_is_left_as_it_is(lake: Lake, tmp_path: Path) -> None:
    log = tmp_path / "table/_delta_log"
    log.mkdir(parents=True)
    rows = log.with_name("part-0.parquet")
    rows.write_bytes(b"rows of a table whose log is lost")
    with pytest.raises(AnalysisException, match="DELTA_"):
        ensure_table(lake.spark, str(log.parent), shape("n int"))
    assert (log.exists(), rows.exists()) == (True, True)
