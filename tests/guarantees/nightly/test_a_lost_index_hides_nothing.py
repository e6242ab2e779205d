"""Where the index of bronze is gone, verdicts tell: what came late, or is lost, is still seen."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from pipelines.contracts.contract import DataContract
from pipelines.delta.tables import version
from pipelines.errors import SourceError
from pipelines.ledger.bronze_indexer import index_bronze
from pipelines.ledger.certifications import Verdict, history, newest_certified
from pipelines.nightly.rebuild_plan import RebuildCause, due_days
from pipelines.steps.nightly import nightly
from pipelines.steps.report import report
from tests.support.lake_copies import continued
from tests.support.lakes import Lake, Record
from tests.support.nights import LATER, ONE, THREE, TWO, on, run


@pytest.fixture
def lake(two_days: Lake, make_lake: Callable[..., Lake], small: DataContract) -> Lake:
    """A lake of two certified days, of one and of two micro-batches, and a copy of bronze with the first."""
    return continued(two_days, make_lake("batch.seal_wait=0 seconds", contract=small))


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


def due(lake: Lake) -> tuple[dict[date, RebuildCause], dict[date, int]]:
    """What a night of the third day that takes late records up would rebuild, and what came late."""
    index = index_bronze(lake.pipeline, version(lake.spark, lake.config.table("bronze")))
    found = due_days(lake.pipeline, index, [THREE], "late", history(lake.pipeline))
    return found.causes, found.came_late


def repaired(lake: Lake) -> dict[str, Any]:
    """A night of the third day that takes late records up."""
    days = nightly(lake.pipeline, "night", [THREE], "late").days
    return {f"{day:%d}": status for day, status in days.items()}


def verdicts(lake: Lake) -> dict[Any, Verdict]:
    return newest_certified(history(lake.pipeline))


@pytest.mark.thorough
def test_bronze_put_back_with_its_index_has_late_days_rebuilt_and_shorter_days_only_if_told_so(
    lake: Lake, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = version(lake.spark, lake.config.table("bronze"))
    lose_index(lake)
    put_back(lake)
    # The same version as certified, by another commit: one record more of the first day, and of the second
    # day one fewer.
    lake.ingest([flown(1, 3), flown(1, 4, sent=LATER), flown(3, 5)])
    assert version(lake.spark, lake.config.table("bronze")) == before
    with pytest.raises(SourceError, match="the verdict on 2013-01-02 names version"):
        report(lake.pipeline, TWO, tmp_path / "reports")
    assert due(lake) == ({ONE: "late", THREE: "asked"}, {ONE: 1})
    assert "they are left as they are: 2013-01-02" in caplog.text
    with pytest.raises(SourceError, match="holds fewer records of 2013-01-02 than when") as refused:
        run(lake, ONE, TWO)
    assert refused.value.exit_code == 4
    assert {day: v.records for day, v in verdicts(lake).items()} == {ONE: 3, TWO: 2}

    # Also when the index goes on again, as it does after the run that was refused.
    lake.ingest([flown(1, 6, sent=LATER)])
    batch = lake.config.batch.model_copy(update={"fewer_records": "take"})
    lake.config = lake.config.model_copy(update={"batch": batch})
    done = nightly(lake.pipeline, "night", [TWO, THREE], "late").days
    assert done == dict.fromkeys([ONE, TWO, THREE], "certified")
    found = verdicts(lake)
    assert (found[ONE].records, found[ONE].came_late) == (5, 2)
    assert (found[TWO].records, found[THREE].records) == (1, 1)


@pytest.mark.thorough
def test_of_a_bronze_that_is_as_it_was_nothing_is_late(lake: Lake) -> None:
    lose_index(lake)
    lake.ingest([flown(3, 5)])
    assert repaired(lake) == {"03": "certified"}
    lake.ingest([flown(1, 6, sent=LATER)])
    assert repaired(lake) == {"01": "certified", "03": "certified"}


@pytest.mark.thorough
def test_rules_that_have_become_stricter_leave_no_day_behind(lake: Lake) -> None:
    strict, lake.contract = lake.contract, replace(lake.contract, row_rules=())
    lake.ingest([flown(3, 5), flown(3, 6, distance=-1.0)])
    run(lake, THREE)
    assert verdicts(lake)[THREE].records == 2
    lake.contract = strict
    run(lake, THREE)
    assert verdicts(lake)[THREE].records == 1
