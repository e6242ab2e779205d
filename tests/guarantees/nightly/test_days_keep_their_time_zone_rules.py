"""Days are made by one set of rules of their time zone: another Java builds none beside them."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from pipelines.contracts.contract import DataContract
from pipelines.delta import zone_rules
from pipelines.delta.table_properties import table_property
from pipelines.errors import SourceError
from pipelines.steps.validate import validate
from tests.support.lake_copies import continued
from tests.support.lakes import Lake
from tests.support.nights import ONE, THREE, on, run

BEFORE_2013 = 1356998400
FOUR, FIVE = THREE + timedelta(days=1), THREE + timedelta(days=2)
OTHERS = "days from 2013-01-01 to 2013-01-02 were built by other rules of America/New_York"


@pytest.fixture
def lake(two_days: Lake, make_lake: Callable[..., Lake], small: DataContract) -> Lake:
    """A lake of two certified days, and a third that is none yet."""
    lake = continued(two_days, make_lake(contract=small))
    lake.ingest([on(3, 6)])
    return lake


def other_rules(monkeypatch: pytest.MonkeyPatch, lake: Lake, since: int) -> None:
    """Java comes to have other rules of the zone: an hour more from a moment on."""
    now = zone_rules.zone_rules(lake.spark, "America/New_York").split()
    before = [part for part in now if int(part.replace("+", "-").split("-")[0]) < since]
    rules = " ".join([*before, f"{since}-14400"])
    monkeypatch.setattr(zone_rules, "zone_rules", lambda *_: rules)


def kept_rules(lake: Lake) -> str | None:
    return table_property(lake.spark, lake.config.table("batch"), "oncelake.zone_rules")


def test_days_that_were_made_by_other_rules_have_none_built_beside_them(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_rules(monkeypatch, lake, BEFORE_2013)
    with pytest.raises(SourceError, match=OTHERS) as refused:
        run(lake, THREE)
    assert refused.value.exit_code == 4
    with pytest.raises(SourceError, match=OTHERS):
        validate(lake.pipeline, "validation", ONE)
    assert lake.count("batch") == 5
    monkeypatch.undo()
    assert kept_rules(lake) == zone_rules.zone_rules(lake.spark, "America/New_York")


def test_a_certified_day_without_rows_was_made_by_rules_too(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.ingest([on(5, 7)])
    assert run(lake, THREE, FOUR).days == {THREE: "certified", FOUR: "certified"}
    # From the end of the third day on, of which the table has no row.
    other_rules(monkeypatch, lake, BEFORE_2013 + 4 * 86_400)
    with pytest.raises(SourceError, match="days from 2013-01-04 to 2013-01-04 were built by other rules"):
        run(lake, FIVE)


@pytest.mark.thorough
def test_rules_for_days_that_are_not_stored_stop_nothing_and_are_kept(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_rules(monkeypatch, lake, BEFORE_2013 + 30 * 86_400)
    assert run(lake, THREE).days == {THREE: "certified"}
    assert kept_rules(lake) == zone_rules.zone_rules(lake.spark, "America/New_York")
