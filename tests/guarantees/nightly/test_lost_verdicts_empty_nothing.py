"""A ledger that has lost verdicts empties no batch layer: days that were certified stay until it is back."""

import shutil
from collections.abc import Callable, Generator
from datetime import date
from pathlib import Path

import pytest
from delta.tables import DeltaTable

from pipelines.delta.table_properties import CERTIFIED, table_property
from pipelines.delta.tables import exists, version
from pipelines.errors import OncelakeError, SourceError
from pipelines.fault_points import Point
from pipelines.ledger.certifications import certified, certified_version_property, history
from pipelines.nightly.commit_order import steps
from pipelines.steps.maintain import maintain
from pipelines.steps.nightly import Night
from pipelines.steps.serving import read_serving
from pipelines.steps.validate import validate
from tests.support.lakes import Lake
from tests.support.nights import ONE, THREE, TWO, begin, flights_of, on, run
from tests.support.prepared_lakes import Nights, PreparedLake


def deleted(ledger: Path, _: Path) -> None:
    shutil.rmtree(ledger)


def older(ledger: Path, before: Path) -> None:
    """The ledger as it was before the second night."""
    shutil.rmtree(ledger)
    shutil.copytree(before, ledger)


@pytest.mark.parametrize(
    ("accident", "found"),
    [
        pytest.param(deleted, "no verdict", id="gone"),
        pytest.param(older, "verdicts up to version", id="older", marks=pytest.mark.thorough),
    ],
)
def test_what_was_certified_stays_until_the_verdicts_are_back(
    certified_lake: Callable[[Nights], Lake],
    prepared_lake: PreparedLake,
    accident: Callable[[Path, Path], None],
    found: str,
) -> None:
    lake = certified_lake("two nights")
    ledger, batch = Path(lake.config.ops_table("certifications")), lake.config.table("batch")
    accident(ledger, prepared_lake.table("one night", lake, str(ledger)))
    before = version(lake.spark, batch)
    for does in (
        lambda: run(lake, THREE),
        lambda: maintain(lake.pipeline, "upkeep", dry_run=True),
        lambda: maintain(lake.pipeline, "upkeep", dry_run=False),
        lambda: validate(lake.pipeline, "validation", ONE),
        lambda: read_serving(lake.pipeline),
    ):
        with pytest.raises(SourceError, match=f"verdicts on flights are gone: found {found}") as refused:
            does()
        assert refused.value.exit_code == 4
    assert version(lake.spark, batch) == before
    # Nothing is made in its place that the copy would be laid into.
    assert ledger.exists() is (accident is older)

    shutil.rmtree(ledger, ignore_errors=True)
    shutil.copytree(prepared_lake.table("two nights", lake, str(ledger)), ledger)
    begin(lake, THREE)
    rows = read_serving(lake.pipeline)
    assert [len(flights_of(rows, day)) for day in (ONE, TWO, THREE)] == [1, 2, 0]


@pytest.mark.thorough
def test_a_pipeline_whose_verdicts_are_gone_for_good_begins_anew(
    certified_lake: Callable[[Nights], Lake],
) -> None:
    lake = certified_lake("one night")
    ledger = lake.config.ops_table("certifications")
    DeltaTable.forPath(lake.spark, ledger).delete("pipeline = 'flights'")
    with pytest.raises(SourceError, match="verdicts on flights are gone"):
        run(lake, TWO)
    batch = Path(lake.config.table("batch"))
    batch.rename(batch.with_name("aside"))
    run(lake, ONE, TWO)
    assert read_serving(lake.pipeline).count() == 3


@pytest.mark.thorough
def test_a_first_night_that_died_before_its_verdict_is_taken_back_as_ever(lake: Lake) -> None:
    lake.ingest([on(1, 1), on(2, 2)])
    died = steps(Night(lake.pipeline, "died", [ONE]))
    assert isinstance(died, Generator)
    assert Point.DAYS_KEPT in iter(died)
    died.close()
    assert (lake.count("batch"), certified_version_property(lake.pipeline)) == (1, None)
    run(lake, TWO)
    found = certified(lake.pipeline)
    assert found is not None
    assert (found.days, lake.count("batch")) == ((TWO,), 1)


@pytest.mark.thorough
def test_a_batch_table_from_before_it_told_tells_from_the_next_run_on(
    certified_lake: Callable[[Nights], Lake],
) -> None:
    lake = certified_lake("one night")
    batch = lake.config.table("batch")
    lake.spark.sql(f"ALTER TABLE delta.`{batch}` UNSET TBLPROPERTIES ('{CERTIFIED}')")
    at = max(verdict.batch_version for verdict in history(lake.pipeline))
    maintain(lake.pipeline, "upkeep", dry_run=False)
    assert table_property(lake.spark, batch, CERTIFIED) == str(at)


def upkeep(lake: Lake, _: date) -> None:
    maintain(lake.pipeline, "upkeep", dry_run=False)


@pytest.mark.parametrize("told", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_no_empty_batch_table_is_made_in_place_of_a_lost_one(
    certified_lake: Callable[[Nights], Lake], *, told: bool
) -> None:
    lake = certified_lake("one night")
    batch, ledger = lake.config.table("batch"), lake.config.ops_table("certifications")
    if not told:
        DeltaTable.forPath(lake.spark, ledger).update(set={"batch_commit": "NULL"})
    shutil.rmtree(batch)
    for does in (run, upkeep):
        with pytest.raises(OncelakeError, match=r"the certified version .* is no longer complete"):
            does(lake, TWO)
    assert not exists(lake.spark, batch)
