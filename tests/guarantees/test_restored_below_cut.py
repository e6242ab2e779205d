"""No day goes back to an earlier certification whose later records retention has removed from bronze."""

import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from pipelines.contracts.contract import DataContract
from pipelines.delta.table_properties import REMOVED_FOR
from pipelines.errors import SourceError
from pipelines.ledger.certifications import history
from pipelines.steps.maintain import maintain
from pipelines.steps.nightly import nightly
from tests.support.lakes import Lake
from tests.support.nights import on, stream

pytestmark = pytest.mark.spark

FIRST, NEXT = date(2013, 1, 1), date(2013, 1, 12)
RESTORED = ("batch/flights", "ops/certifications")
OLDER = "are older than the removal of records from"


def put_back(lake: Lake, backup: Path) -> None:
    for place in RESTORED:
        shutil.rmtree(Path(lake.config.root, place))
        shutil.copytree(backup / place, Path(lake.config.root, place))


def test_verdicts_from_before_a_cut_are_refused_until_newer_ones_are_restored_or_the_loss_is_accepted(
    make_lake: Callable[..., Lake], small: DataContract, tmp_path: Path
) -> None:
    settings = ("maintain.bronze_retention=30 days", "maintain.compact=false", "batch.dedup_horizon_days=0")
    lake = make_lake(*settings, contract=small)
    lake.ingest([on(1, 1)])
    stream(lake)
    nightly(lake.pipeline, "first", [FIRST])
    for place in RESTORED:
        shutil.copytree(Path(lake.config.root, place), tmp_path / "older" / place)
    # A late event, which only the newer build of the day has once bronze has let it go.
    lake.ingest([on(1, 2, sent=datetime(2013, 1, 2, tzinfo=UTC)), on(12, 5)])
    stream(lake)
    nightly(lake.pipeline, "repair", [FIRST])
    done = maintain(lake.pipeline, "upkeep", dry_run=False)
    assert lake.count("bronze") == 1, done
    for place in RESTORED:
        shutil.copytree(Path(lake.config.root, place), tmp_path / "newer" / place)

    put_back(lake, tmp_path / "older")
    assert {each.run_id for each in history(lake.pipeline)} == {"first"}
    with pytest.raises(SourceError, match=OLDER) as refused:
        nightly(lake.pipeline, "night", [NEXT])
    assert refused.value.exit_code == 4
    with pytest.raises(SourceError, match=OLDER):
        maintain(lake.pipeline, "upkeep", dry_run=False)

    put_back(lake, tmp_path / "newer")
    assert nightly(lake.pipeline, "night", [NEXT]).days == {NEXT: "certified"}

    put_back(lake, tmp_path / "older")
    table = lake.config.table("bronze")
    lake.spark.sql(f"ALTER TABLE delta.`{table}` UNSET TBLPROPERTIES ('{REMOVED_FOR}')")
    assert nightly(lake.pipeline, "accepted", [NEXT]).days == {NEXT: "certified"}
