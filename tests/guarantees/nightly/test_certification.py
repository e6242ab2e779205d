"""A rebuilt day is shown only when it passed its audit; whatever fails leaves readers what they had."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Any

import pytest
from deltalake import DeltaTable

from pipelines.cli.job_runner import JobFailed
from pipelines.contracts.event_days import past_days
from pipelines.contracts.rules import DayRule
from pipelines.delta.event_tables import ensure_batch
from pipelines.delta.io import read
from pipelines.delta.tables import ensure_table, shape
from pipelines.errors import AuditFailed, ConfigError, InfrastructureError, SourceError
from pipelines.fault_points import Point, armed
from pipelines.ledger.certifications import certified, verdicts
from pipelines.ledger.leases import lease
from pipelines.steps.serving import read_serving
from pipelines.steps.validate import validate
from tests.support.accidents import dying
from tests.support.cli_calls import night
from tests.support.lakes import Lake, Record, flight
from tests.support.nights import LATER, ONE, THREE, TWO, flights_of, on, run
from tests.support.prepared_lakes import Nights, PreparedLake


@dataclass(frozen=True)
class FailedNight:
    """A lake of two certified days, of which a night certified a third one and failed the second.

    A run had died before, when it had rebuilt the first day, for which a record has come since. Neither can
    steps be recorded nor a view be made.

    Attributes:
        lake: the lake.
        left: the first day after the run that died: in the batch table, and for readers.
        failed: what the night said.
    """

    lake: Lake
    left: tuple[list[tuple[int, float]], list[tuple[int, float]]]
    failed: JobFailed


@pytest.fixture(scope="module")
def failed_night(prepared_lake: PreparedLake, tmp_path_factory: pytest.TempPathFactory) -> FailedNight:
    lake = prepared_lake.copied(tmp_path_factory.mktemp("failed") / "lake", "two nights")
    serving = lake.config.serving.model_copy(update={"view": "no_such_schema.flights"})
    lake.config = lake.config.model_copy(update={"serving": serving})
    lake.ingest([on(1, 2)])
    with armed(Point.DAYS_BUILT, dying(KeyboardInterrupt())), pytest.raises(KeyboardInterrupt):
        run(lake, ONE)
    left = flights_of(lake.table("batch"), ONE), flights_of(read_serving(lake.pipeline), ONE)
    # All at 05:15 in New York, 18.75 hours before their day ends, with one aircraft, to as many places.
    many = [on(2, n, dest=f"{chr(60 + n)}XX" if n < 31 else f"{chr(34 + n)}YY") for n in range(5, 57)]
    an_hour_later = flight(
        flight=6, scheduled_departure="2013-01-03T06:15:00-05:00", tailnum="N6", dest="BOS"
    )
    lake.ingest([*many, on(3, 4, tailnum="N4"), Record(an_hour_later, sent=LATER)])
    strict = (
        DayRule("rowCount", None, 0, 50),
        DayRule("freshness", None, None, 18),
        DayRule("duplicateValues", "tailnum", None, 0),
        DayRule("duplicateValues", "dest", None, 1),
    )
    shutil.rmtree(lake.config.ops_table("runs"))
    ensure_table(lake.spark, lake.config.ops_table("runs"), shape("something string"))
    with pytest.raises(JobFailed) as failed:
        night(
            lake.variant(contract=replace(lake.contract, day_rules=strict)),
            *("--from", TWO.isoformat(), "--to", THREE.isoformat()),
        )
    return FailedNight(lake, left, failed.value)


def test_a_failed_audit_certifies_nothing_and_readers_keep_the_last_certified_state(
    failed_night: FailedNight,
) -> None:
    lake, failed = failed_night.lake, failed_night.failed
    assert failed.exit_code == 3
    assert failed.summary["days"] == {"2013-01-02": "failed", "2013-01-03": "certified"}
    serving = read_serving(lake.pipeline)
    assert [number for number, _ in flights_of(serving, TWO)] == [2, 4]
    assert [number for number, _ in flights_of(serving, THREE)] == [3, 4, 6]
    _, failed_day, passed_day = verdicts(lake.pipeline)
    assert (failed_day.status, passed_day.status) == ("failed", "certified")
    # Each verdict names the version that it speaks of, also the one that was taken back.
    batch_table = lake.config.table("batch")
    assert len(flights_of(read(lake.spark, batch_table, failed_day.batch_version), TWO)) == 54
    assert len(flights_of(read(lake.spark, batch_table, passed_day.batch_version), TWO)) == 2


@pytest.mark.thorough
def test_a_day_that_breaks_a_rule_on_whole_days_is_not_certified(failed_night: FailedNight) -> None:
    failed = str(failed_night.failed)
    found = [line for line in failed.splitlines() if line.startswith("2013-01-02")]
    for broken in ("expect_column_values_to_be_between rows", "hours_without_events", "tailnum_duplicates"):
        assert [broken in line for line in found].count(True) == 1, broken
    assert len(found) == 3
    # The third day keeps the same rules, as near to their limits as can be.
    assert "2013-01-03" not in failed


def test_what_a_dead_run_left_in_the_batch_table_is_never_shown(failed_night: FailedNight) -> None:
    assert failed_night.left == ([(1, 2.0), (2, 2.0)], [(1, 2.0)])
    lake = failed_night.lake
    assert flights_of(read_serving(lake.pipeline), ONE) == [(1, 2.0)]
    state = certified(lake.pipeline)
    assert state is not None
    assert flights_of(read(lake.spark, lake.config.table("batch"), state.version), ONE) == [(1, 2.0)]


@pytest.mark.thorough
def test_what_cannot_be_recorded_or_shown_does_not_hide_why_a_night_has_failed(
    failed_night: FailedNight,
) -> None:
    assert "rows: found 54" in str(failed_night.failed)
    of_steps, of_view = failed_night.failed.summary["warnings"]
    assert "the steps of run run are not recorded" in of_steps
    assert of_view.startswith("serving.view: no_such_schema.flights could not be recreated")


def test_of_two_runs_at_once_one_wins_and_the_other_says_so(
    certified_lake: Callable[[Nights], Lake],
) -> None:
    lake = certified_lake("one night")
    tables = [lake.config.ops_table(name) for name in ("leases", "certifications")]
    with lease(lake.pipeline, "first") as first:
        before = [DeltaTable(table).version() for table in tables]
        with pytest.raises(InfrastructureError, match=r"run first on .* is at work on this pipeline now"):
            run(lake, ONE)
        first.require()
        # Nor has it left anything that the next one would wait for.
        assert [DeltaTable(table).version() for table in tables] == before


@pytest.mark.thorough
def test_a_certified_day_is_valid_until_events_come_late(lake: Lake) -> None:
    lake.ingest([on(1, 1), on(3, 3)])
    run(lake, ONE)
    assert validate(lake.pipeline, "v", ONE).rows == 1
    lake.ingest([on(1, 2)])
    with pytest.raises(AuditFailed, match="counts_add_up"):
        validate(lake.pipeline, "v", ONE)


@pytest.mark.thorough
def test_a_gap_in_the_offsets_fails_the_audit_unless_gaps_are_lawful(
    make_lake: Callable[..., Lake], small: Any
) -> None:
    records = [on(1, 1), on(3, 3)]
    records[1].offset = 7
    lake = make_lake(contract=small)
    lake.ingest(records)
    with pytest.raises(AuditFailed, match=r"6 offsets missing"):
        run(lake, ONE)
    lawful = make_lake("audit.offset_gaps=warn", contract=small)
    assert run(lawful, ONE).days == {ONE: "certified"}


@pytest.mark.thorough
def test_bronze_that_has_not_come_as_far_is_an_untrusted_source(lake: Lake) -> None:
    with pytest.raises(
        SourceError, match=r"bronze/flights: no such table; run first: oncelake ingest_stream"
    ):
        run(lake, ONE)
    lake.ingest([on(1, 1)])
    with pytest.raises(SourceError, match=r"no record of 2013-01-02 yet"):
        run(lake, TWO)


def test_a_clock_that_is_ahead_of_the_store_certifies_nothing(lake: Lake) -> None:
    lake.ingest([on(1, 1), on(3, 3)])
    # As if the clock was an hour ahead of what is tolerated.
    strict = lake.config.ingest.model_copy(update={"max_clock_behind": timedelta(hours=-1)})
    lake.config = lake.config.model_copy(update={"ingest": strict})
    with pytest.raises(InfrastructureError, match="the clock of this machine is ahead"):
        run(lake, ONE)
    assert not verdicts(lake.pipeline)


def test_only_days_that_are_over_can_be_rebuilt(small: Any) -> None:
    today = datetime.now(small.zone).date()
    assert past_days(small, None, None) == (today - timedelta(days=1),) * 2
    assert past_days(small, ONE, None) == (ONE, ONE)
    with pytest.raises(ConfigError, match="is not over in America/New_York"):
        past_days(small, today, None)
    with pytest.raises(ConfigError, match="expected 1970-01-01 or later"):
        past_days(small, date(1, 1, 1), None)
    with pytest.raises(ConfigError, match="the first day is after the last"):
        past_days(small, TWO, ONE)


@pytest.mark.thorough
def test_a_lost_checkpoint_doubles_bronze_not_the_day(lake: Lake) -> None:
    records = [on(1, 1), on(1, 2), on(3, 3)]
    lake.ingest(records)
    for n, record in enumerate(records):
        record.offset = n
    lake.ingest(records)
    counts = run(lake, ONE).counts
    assert (counts.rows, counts.duplicates) == (2, 2)
    results = read(lake.spark, lake.config.ops_table("validation_results"))
    warned = results.where("name = 'offsets_once' AND day = '2013-01-01'").first()
    assert warned is not None
    assert (warned["status"], warned["observed"]) == ("warned", "3 records were ingested more than once")


@pytest.mark.thorough
def test_days_are_not_certified_by_two_rules(lake: Lake) -> None:
    changed = lake.variant(contract=replace(lake.contract, day_time_zone="UTC", key=("carrier", "flight")))
    # While no day is certified a rule may change.
    for each in (lake, changed):
        ensure_batch(replace(lake.pipeline, contract=each.contract))
    lake.ingest([on(2, 1), on(2, 2)])
    # A certified day that is empty is one, too: by another rule some of these events would be its own.
    assert run(changed, ONE).counts.rows == 0
    served = read_serving(lake.pipeline).count()
    with pytest.raises(ConfigError, match="its days were built by another rule") as refused:
        run(lake, TWO)
    assert "day time zone: found 'UTC', expected 'America/New_York'" in str(refused.value)
    assert "dedup key: found 'carrier, flight', expected 'carrier, flight, origin" in str(refused.value)
    with pytest.raises(ConfigError, match="its days were built by another rule"):
        validate(lake.pipeline, "v", ONE)
    assert read_serving(lake.pipeline).count() == served
