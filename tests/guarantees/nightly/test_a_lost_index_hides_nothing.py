"""Where the index of bronze is gone, verdicts tell: what came late, or is lost, is still seen."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelines.contracts.contract import DataContract
from pipelines.delta.tables import version
from pipelines.errors import SourceError
from pipelines.ledger.certifications import Verdict, history, newest_certified
from pipelines.steps.nightly import nightly
from pipelines.steps.report import report
from tests.support.lakes import Lake, Record
from tests.support.nights import LATER, ONE, THREE, TWO, on, run


@pytest.fixture
def lake(make_lake: Callable[..., Lake], small: DataContract) -> Lake:
    """A lake of two certified days, of one and of two micro-batches, and a copy of bronze with the first."""
    lake = make_lake("batch.seal_wait=0 seconds", contract=replace(small, day_rules=()))
    lake.ingest([flown(1, 0), flown(1, 1), flown(2, 2)])
    bronze = Path(lake.config.table("bronze"))
    shutil.copytree(bronze, bronze.with_name("copy"))
    lake.ingest([flown(1, 3), flown(2, 4)])
    run(lake, ONE, TWO)
    return lake


def flown(day: int, offset: int, **changes: Any) -> Record:
    return replace(on(day, offset + 1, **changes), offset=offset)


def lose_index(lake: Lake) -> None:
    shutil.rmtree(lake.config.ops_table("bronze_index"))


def put_back(lake: Lake) -> None:
    bronze = Path(lake.config.table("bronze"))
    shutil.rmtree(bronze)
    bronze.with_name("copy").rename(bronze)
    # A job is a session of its own, which knows nothing of the table that was here.
    java: Any = lake.spark.sparkContext._jvm
    java.org.apache.spark.sql.delta.DeltaLog.clearCache()


def repaired(lake: Lake) -> dict[str, Any]:
    """A night of the third day that takes late records up."""
    days = nightly(lake.pipeline, "night", [THREE], "late")["days"]
    return {day[-2:]: status for day, status in days.items()}


def verdicts(lake: Lake) -> dict[Any, Verdict]:
    return newest_certified(history(lake.pipeline))


def test_what_comes_late_for_a_bronze_that_was_put_back_with_its_index_is_rebuilt(
    lake: Lake, tmp_path: Path
) -> None:
    before = version(lake.spark, lake.config.table("bronze"))
    lose_index(lake)
    put_back(lake)
    # The same version as certified, by another commit, and with one record more of the first day.
    lake.ingest([flown(1, 3), flown(1, 4, sent=LATER), flown(2, 5), flown(3, 6)])
    assert version(lake.spark, lake.config.table("bronze")) == before
    with pytest.raises(SourceError, match="the verdict on 2013-01-02 names version"):
        report(lake.pipeline, TWO, tmp_path / "reports")
    assert repaired(lake) == {"01": "certified", "03": "certified"}
    assert (verdicts(lake)[ONE].records, verdicts(lake)[ONE].came_late) == (4, 1)
    # Also when the index goes on again.
    lake.ingest([flown(2, 7, sent=LATER)])
    assert repaired(lake) == {"02": "certified", "03": "certified"}


@pytest.mark.thorough
def test_of_a_bronze_that_is_as_it_was_nothing_is_late(lake: Lake) -> None:
    lose_index(lake)
    lake.ingest([flown(3, 5)])
    assert repaired(lake) == {"03": "certified"}
    lake.ingest([flown(1, 6, sent=LATER)])
    assert repaired(lake) == {"01": "certified", "03": "certified"}


def test_a_day_of_which_bronze_has_lost_records_is_rebuilt_only_if_told_so(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    lose_index(lake)
    put_back(lake)
    lake.ingest([flown(2, 3), flown(3, 4)])
    with pytest.raises(SourceError, match="holds fewer records of 2013-01-01 than when") as refused:
        run(lake, ONE, TWO)
    assert refused.value.exit_code == 4
    assert repaired(lake) == {"03": "certified"}
    assert "they are left as they are: 2013-01-01" in caplog.text
    assert verdicts(lake)[ONE].records == 3
    batch = lake.config.batch.model_copy(update={"fewer_records": "take"})
    lake.config = lake.config.model_copy(update={"batch": batch})
    run(lake, ONE)
    assert verdicts(lake)[ONE].records == 2


@pytest.mark.thorough
def test_rules_that_have_become_stricter_leave_no_day_behind(lake: Lake) -> None:
    strict, lake.contract = lake.contract, replace(lake.contract, row_rules=())
    lake.ingest([flown(3, 5), flown(3, 6, distance=-1.0)])
    run(lake, THREE)
    assert verdicts(lake)[THREE].records == 2
    lake.contract = strict
    run(lake, THREE)
    assert verdicts(lake)[THREE].records == 1
