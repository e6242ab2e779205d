"""That `ops/published_days` was restored, or is gone, is known by what is noted beside the checkpoint."""

import shutil
from pathlib import Path

import pytest

from pipelines.errors import SourceError
from pipelines.ledger.certifications import certified
from pipelines.ledger.ops_tables import PUBLISHED_DAYS
from pipelines.publishing.published_days import (
    note_settled,
    record_settled,
    require_settled_kept,
)
from pipelines.publishing.settled import Settled
from pipelines.spark.checkpoints import write_note
from tests.support.certified_days import certify
from tests.support.lakes import Lake
from tests.support.nights import ONE, on, stream
from tests.support.published import checkpoint_of_query


def settle(lake: Lake, batch: int, version: int) -> None:
    record_settled(lake.pipeline, "own", batch, Settled(version, (ONE,), None), "topic")
    note_settled(lake.pipeline, "own", batch, version)


def test_days_that_a_restored_table_has_forgotten_are_missed(lake: Lake, tmp_path: Path) -> None:
    lake.ingest([on(1, 1), on(2, 2)])
    stream(lake)
    certify(lake, ONE)
    state = certified(lake.pipeline)
    assert state is not None
    checkpoint = checkpoint_of_query(lake, "own")
    require_settled_kept(lake.pipeline)

    settle(lake, 0, state.version - 1)
    table = Path(PUBLISHED_DAYS.path(lake.pipeline))
    shutil.copytree(table, tmp_path / "older")
    settle(lake, 1, state.version)
    shutil.copytree(table, tmp_path / "newer")
    shutil.rmtree(table)
    shutil.copytree(tmp_path / "older", table)
    # The micro-batch may not have been sent, and is made once more; the one before is not known to be done.
    require_settled_kept(lake.pipeline)
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir()
        (checkpoint / folder / "1").write_text('v1\n{"nextBatchWatermarkMs":0}')
    found = f"up to version {state.version - 1}, expected version {state.version}"
    older = rf"older copy: found days published {found} of .*"
    with pytest.raises(SourceError, match=older) as refused:
        require_settled_kept(lake.pipeline)
    assert refused.value.exit_code == 4
    shutil.rmtree(table)
    with pytest.raises(SourceError, match=r"or the rows of this stream, are gone, expected"):
        require_settled_kept(lake.pipeline)
    shutil.copytree(tmp_path / "newer", table)
    require_settled_kept(lake.pipeline)


def test_a_note_of_another_checkpoint_or_a_damaged_one_says_nothing_of_days(lake: Lake) -> None:
    checkpoint = str(checkpoint_of_query(lake, "own"))
    write_note(lake.spark, checkpoint, {"settled": "another 0 7"})
    require_settled_kept(lake.pipeline)
    write_note(lake.spark, checkpoint, {"settled": "own 7"})
    with pytest.raises(SourceError, match="under 'settled'"):
        require_settled_kept(lake.pipeline)
