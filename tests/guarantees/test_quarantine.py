"""What breaks its contract is kept whole, stops the stream only in masses, and can be put back."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.types import StringType, StructField, StructType

from pipelines.contracts.contract import DataContract
from pipelines.contracts.event_days import days_of
from pipelines.contracts.rules import RowRule
from pipelines.delta.table_properties import DEDUP
from pipelines.delta.tables import hidden, set_table_property, table_property, unhidden
from pipelines.errors import ConfigError, InfrastructureError, SourceError
from pipelines.fault_points import Point, armed
from pipelines.ledger.leases import lease
from pipelines.ledger.quarantine import Selection
from pipelines.steps import replay as step
from pipelines.steps.nightly import nightly
from pipelines.steps.quarantine import discard, examples, summarise
from pipelines.steps.rebuild import rebuild
from pipelines.steps.replay import Replay, rebuilt
from pipelines.steps.serving import read_serving
from tests.support.accidents import dying
from tests.support.lakes import EPOCH, Lake, Record, flight
from tests.support.nights import ONE, TWO, on, stream

OPEN = Selection()
FAR: dict[str, Any] = {"distance": 4963.0}


@pytest.fixture
def strict(small: DataContract) -> DataContract:
    """The contract before somebody saw that Honolulu can be reached."""
    short = RowRule("distance", "maximum", 3000)
    return replace(small, version="0.9.0", row_rules=(*small.row_rules, short))


@pytest.fixture
def lake(make_lake: Callable[..., Lake], strict: DataContract) -> Lake:
    return make_lake(contract=strict)


def with_contract(lake: Lake, contract: DataContract) -> Lake:
    return lake.variant(contract=contract)


def replay(lake: Lake, selection: Selection = OPEN, *, dry_run: bool = False) -> Replay:
    return step.replay(lake.pipeline, "replay", selection, dry_run=dry_run)


def numbers(rows: DataFrame) -> list[int]:
    return sorted(row["flight"] for row in rows.select("flight").toLocalIterator())


def kept(lake: Lake) -> list[tuple[Any, ...]]:
    rows = lake.table("quarantine").orderBy("_partition", "_offset")
    return [(r["_status"], r["_reason"], r["_attempts"]) for r in rows.toLocalIterator()]


def test_masses_of_broken_records_stop_the_stream_before_anything_is_written(
    make_lake: Callable[..., Lake], small: DataContract
) -> None:
    lake = make_lake("quarantine.min_records=10", contract=small)
    lake.ingest([on(1, 1), *(b"poison %d" % n for n in range(9))])
    stream(lake)
    before = lake.table("quarantine").count()
    lake.ingest([*(on(1, n) for n in range(2, 12)), *(b"poison %d" % n for n in range(11))])
    with pytest.raises(SourceError, match=r"11 of 21 new records .* nothing of it was written") as refused:
        stream(lake)
    assert refused.value.exit_code == 4
    assert numbers(lake.table("speed")) == [1]
    assert (before, lake.table("quarantine").count()) == (9, 9)
    lawful = make_lake("quarantine.min_records=10", "quarantine.max_share=0.6", contract=small)
    counts = stream(lawful)["counts"]
    assert (counts["records"], counts["rows"], counts["quarantined"]) == (21, 10, 11)
    assert lake.table("quarantine").count() == 20


def test_broken_records_are_never_late_and_never_move_the_watermark(lake: Lake) -> None:
    lake.ingest([on(1, 1), b"poison"])
    assert stream(lake)["counts"]["quarantined"] == 1
    # Spark holds records against the watermark as it was one micro-batch before.
    for number in (2, 5):
        lake.ingest([on(9, number)])
        stream(lake)
    lake.ingest([b"poison", on(9, 2), on(1, 3), Record(b"{}"), Record(None)])
    lake.ingest([Record(flight(flight=4, scheduled_departure="2099-01-01T00:00:00Z"))])
    summary = stream(lake)
    counts = summary["counts"]
    assert (
        counts["records"] == sum(counts[name] for name in ("rows", "duplicates", "late", "quarantined")) == 6
    )
    assert (counts["duplicates"], counts["late"], counts["quarantined"]) == (1, 1, 4)
    assert str(summary["watermark"]) < "2013-01-10"
    assert lake.table("quarantine").count() == 5


def test_a_micro_batch_that_died_between_its_tables_is_completed_not_doubled(lake: Lake) -> None:
    lake.ingest([on(1, 1), b"poison"])
    full = OSError("No space left on device")
    with (
        armed(Point.QUARANTINE_WRITTEN, dying(full)),
        pytest.raises(InfrastructureError, match="No space left on device"),
    ):
        stream(lake)
    assert (lake.table("quarantine").count(), lake.table("speed").count()) == (1, 0)
    stream(lake)
    assert (lake.table("quarantine").count(), lake.table("speed").count()) == (1, 1)


def test_another_key_or_watermark_than_the_state_has_is_refused(
    make_lake: Callable[..., Lake], lake: Lake, small_by_flight: DataContract
) -> None:
    lake.ingest([on(1, 1)])
    stream(lake)
    longer = make_lake("speed.watermark_delay=9 hours", contract=lake.contract)
    with pytest.raises(ConfigError, match=r"speed.watermark_delay: found '.*', expected '9 hours'"):
        stream(longer)
    with pytest.raises(ConfigError, match=r"dedup key: found .*runbook.md, 'Change of rules"):
        stream(with_contract(lake, small_by_flight))
    # Refused before the table is changed, so that one can go back.
    more = StructType([*lake.contract.schema, StructField("gate", StringType())])
    elsewhere = replace(lake.contract, schema=more, day_time_zone="UTC")
    with pytest.raises(ConfigError, match="day time zone: found 'America/New_York', expected 'UTC'"):
        stream(with_contract(lake, elsewhere))
    # A table of a release that kept less of it learns the rest, and refuses a later change of that, too.
    table = lake.config.table("speed")
    encoded = table_property(lake.spark, table, DEDUP)
    assert encoded is not None
    less = {name: value for name, value in json.loads(unhidden(encoded)).items() if "delay" not in name}
    set_table_property(lake.spark, table, DEDUP, hidden(json.dumps(less)))
    stream(lake)
    assert table_property(lake.spark, table, DEDUP) == encoded
    with pytest.raises(ConfigError, match=r"speed.watermark_delay: found '.*', expected '9 hours'"):
        stream(longer)


def test_a_replayed_record_enters_an_open_day_once(lake: Lake, small: DataContract) -> None:
    lake.ingest([on(1, 1), on(1, 2, **FAR), on(1, 2, **FAR), on(1, 3, **FAR), b"poison"])
    stream(lake)
    lake.ingest([on(1, 3)])
    stream(lake)
    fixed = with_contract(lake, small)
    expected = {"records": 4, "still_broken": 1, "rows": 1, "copies": 2, "closed": 0}
    assert replay(fixed, dry_run=True).counts == expected
    assert numbers(lake.table("speed")) == [1, 3]
    assert replay(fixed).counts == expected
    assert numbers(lake.table("speed")) == [1, 2, 3]
    assert kept(lake) == [("replayed", "rule_failed", 2)] * 3 + [("open", "malformed_json", 2)]
    assert replay(fixed).counts == {"records": 1, "still_broken": 1, "rows": 0, "copies": 0, "closed": 0}
    assert numbers(lake.table("speed")) == [1, 2, 3]


def test_a_replayed_record_of_a_certified_day_comes_by_its_rebuild(lake: Lake, small: DataContract) -> None:
    lake.ingest([on(1, 1), on(1, 2, **FAR), on(2, 3, **FAR), on(3, 4)])
    stream(lake)
    nightly(lake.pipeline, "run", [ONE])
    fixed = with_contract(lake, small)
    done = replay(fixed)
    assert (done.days, done.counts["closed"], done.counts["rows"]) == ((ONE,), 1, 1)
    assert [status for status, *_ in kept(lake)] == ["open", "replayed"]
    again = nightly(replace(lake.pipeline, contract=small), "again", [ONE, TWO])
    assert again["days"] == {"2013-01-01": "certified", "2013-01-02": "certified"}
    rebuilt(lake.pipeline, done, done.days)
    assert [status for status, *_ in kept(lake)] == ["replayed", "replayed"]
    assert numbers(read_serving(lake.pipeline)) == [1, 2, 3, 4]


@pytest.mark.thorough
def test_a_certified_day_that_fails_its_rebuild_does_not_hold_up_the_others(
    lake: Lake, small: DataContract
) -> None:
    three = ONE + timedelta(days=2)
    # The fixed contract allows fifty rows of a day.
    lake.contract = replace(lake.contract, day_rules=())
    lake.ingest([on(1, n + 1) for n in range(60)])
    lake.ingest([*(on(day, 1002, **FAR) for day in (1, 3)), on(4, 1)])
    stream(lake)
    nightly(lake.pipeline, "run", days_of(ONE, three))
    done = replay(with_contract(lake, small))
    assert done.days == (ONE, three)
    done_again = rebuild(replace(lake.pipeline, contract=small), "again", done.days)
    assert done_again.verdicts == {"2013-01-01": "failed", "2013-01-03": "certified"}
    assert done_again.failure is not None
    rebuilt(lake.pipeline, done, [three])
    assert [(status, attempts) for status, _, attempts in kept(lake)] == [("open", 1), ("replayed", 2)]
    far = read_serving(lake.pipeline).where("flight = 1002")
    assert [row["_event_date"] for row in far.toLocalIterator()] == [three]


def test_what_is_still_broken_gets_its_new_reason_and_what_is_given_up_stays_away(
    lake: Lake, small: DataContract
) -> None:
    lake.ingest([on(1, 1), on(1, 2, **FAR), on(1, 3, distance=-1.0, air_time=1.0), b"poison"])
    stream(lake)
    stricter = replace(small, version="2.0.0", row_rules=(RowRule("carrier", "values", ("XX",)),))
    replay(with_contract(lake, stricter), Selection(reasons=("rule_failed",)))
    groups = summarise(lake.pipeline, OPEN)
    assert [(g["reason"], g["column"], g["contract_version"], g["records"]) for g in groups] == [
        ("rule_failed", "carrier", "2.0.0", 2),
        ("malformed_json", None, "0.9.0", 1),
    ]
    second = Selection(contract_versions=("2.0.0",))
    for dry_run in (True, False):
        assert discard(lake.pipeline, "run", second, dry_run=dry_run) == 2
    assert [row["value"] for row in examples(lake.pipeline, OPEN, 10)] == [b"poison"]
    assert replay(with_contract(lake, small)).counts["rows"] == 0
    assert summarise(lake.pipeline, Selection(status="discarded"))[0]["records"] == 2


def test_records_are_chosen_by_reason_time_and_partition(lake: Lake) -> None:
    later = EPOCH + timedelta(hours=1)
    lake.ingest([on(1, 1), Record(b"a"), Record(b"b", partition=1), Record(b"{}", sent=later)])
    stream(lake)

    def chosen(**filters: Any) -> list[bytes]:
        return [r["value"] for r in examples(lake.pipeline, Selection(**filters), 10)]

    assert chosen(reasons=("missing_field",)) == chosen(since=later) == [b"{}"]
    assert chosen(until=later, partitions=(1,)) == [b"b"]
    assert chosen(since=datetime(2030, 1, 1, tzinfo=UTC)) == []


def test_one_replay_at_a_time(lake: Lake, small: DataContract) -> None:
    lake.ingest([on(1, 1), b"poison"])
    stream(lake)
    with (
        lease(lake.pipeline, "a nightly run"),
        pytest.raises(InfrastructureError, match="nightly run"),
    ):
        replay(with_contract(lake, small))


def test_values_of_personal_columns_are_not_shown(lake: Lake, strict: DataContract) -> None:
    known = (*strict.row_rules, RowRule("tailnum", "values", ("N1",)))
    lake.contract = replace(strict, row_rules=known, personal={"tailnum": "hash", "carrier": "drop"})
    lake.ingest([on(1, 1, tailnum="N2"), on(1, 2, carrier="none"), on(1, 3, dest="nowhere")])
    stream(lake)
    found = {row["_column"]: row["_found"] for row in lake.table("quarantine").toLocalIterator()}
    assert found == {
        "carrier": None,
        "dest": "nowhere",
        "tailnum": "sha256:" + sha256(b"N2").hexdigest()[:16],
    }
