"""What breaks its contract is kept whole, stops the stream only in masses, and can be put back."""

import json
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from pipelines.contracts.contract import DataContract
from pipelines.contracts.event_days import days_of
from pipelines.contracts.rules import RowRule
from pipelines.delta.epochs import StaleEpoch, Stamp
from pipelines.delta.fenced_commits import claim
from pipelines.delta.io import read
from pipelines.delta.record_tables import QUARANTINE, REPLAYED_BY
from pipelines.delta.table_properties import DEDUP, from_hex, set_table_property, table_property, to_hex
from pipelines.delta.tables import shape, version
from pipelines.errors import ConfigError, InfrastructureError, SourceError
from pipelines.fault_points import Point, armed
from pipelines.ledger.bronze_indexer import index_bronze
from pipelines.ledger.leases import Lease, lease
from pipelines.ledger.ops_tables import CERTIFICATIONS
from pipelines.ledger.quarantine import Selection
from pipelines.ledger.replayed_records import judge_again
from pipelines.records.decode import decode
from pipelines.spark.session import forget_tables
from pipelines.steps.nightly import nightly
from pipelines.steps.quarantine import discard, examples, reopen, summarise
from pipelines.steps.rebuild import rebuild
from pipelines.steps.replay_run import Replay, ReplayCounts
from pipelines.steps.serving import read_serving
from tests.support import replays
from tests.support.accidents import dying, once
from tests.support.certified_days import certify
from tests.support.changes_by_hand import change_by_hand
from tests.support.engines import by_delta_rs
from tests.support.lake_copies import copied, lake_in
from tests.support.lakes import EPOCH, Lake, Record, flight
from tests.support.nights import ONE, TWO, on, stream
from tests.support.replays import mark_replayed

UNRESOLVED = Selection()
FAR: dict[str, Any] = {"distance": 4963.0}
LATE = EPOCH + timedelta(days=3)


@pytest.fixture(scope="module")
def strict(small: DataContract) -> DataContract:
    """The contract before somebody saw that Honolulu can be reached; nobody is to see how far it is."""
    rules = (*small.row_rules, RowRule("distance", "maximum", 3000))
    return replace(small, version="0.9.0", row_rules=rules, personal={"distance": "hash"})


@pytest.fixture(scope="module")
def streamed(spark: SparkSession, strict: DataContract, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake of three days with broken records, which the stream has read; tests read it, or copy it."""
    lake = lake_in(tmp_path_factory.mktemp("streamed") / "lake", spark, strict)
    lake.ingest(
        [
            *(on(1, 1), on(1, 2, **FAR)),
            *(on(2, 2, **FAR), on(2, 2, **FAR), on(2, 3, **FAR), on(2, 3)),
            *(on(3, 4), b"poison", Record(b"{}", sent=LATE), Record(b"b", partition=1)),
            *(on(3, 6, partition=1, **FAR), on(3, 7, partition=1, distance=-1.0, air_time=1.0)),
        ]
    )
    stream(lake)
    return lake


@pytest.fixture
def lake(streamed: Lake, tmp_path: Path) -> Lake:
    """A copy of that lake."""
    return copied(streamed, tmp_path / "lake")


def with_contract(lake: Lake, contract: DataContract) -> Lake:
    return lake.variant(contract=contract)


def replay(lake: Lake, selection: Selection = UNRESOLVED, *, dry_run: bool = False) -> Replay[DataFrame]:
    return replays.replay(lake.pipeline, "replay", selection, dry_run=dry_run)


def numbers(rows: DataFrame) -> list[int]:
    return sorted(row["flight"] for row in rows.select("flight").collect())


def streamed_numbers(lake: Lake) -> list[int]:
    return sorted(flight for _, flight in by_delta_rs(lake.config.table("speed")))


def kept(lake: Lake) -> list[tuple[Any, ...]]:
    rows = lake.table("quarantine").orderBy("_partition", "_offset")
    return [(r["_status"], r["_reason"], r["_attempts"]) for r in rows.collect()]


def test_the_driver_writes_what_it_has_of_broken_records_with_statistics(streamed: Lake) -> None:
    log = Path(streamed.config.table("quarantine"), "_delta_log")
    lines = (line for file in sorted(log.glob("*.json")) for line in file.read_text().splitlines())
    (added,) = (action["add"] for action in map(json.loads, lines) if "add" in action)
    # A task writes files whose names end with the number of the file.
    assert not re.search(r"-c[0-9]{3}\.", added["path"])
    kept = json.loads(added["stats"])
    assert kept["numRecords"] == streamed.count("quarantine")
    assert (kept["minValues"]["_offset"], kept["minValues"]["_status"]) == (0, "open")
    # By it a night passes over files without a replayed record.
    assert kept["nullCount"][REPLAYED_BY] == kept["numRecords"]
    # The log keeps no values of records, which may be personal.
    assert {"_column", "_found"}.isdisjoint(kept["minValues"])


def dies_between_its_tables(lake: Lake) -> None:
    """Lets a micro-batch die when its broken records are written; the next run completes and doubles none."""
    lake.ingest([on(1, 1), *(b"poison %d" % n for n in range(3))])
    full = OSError("No space left on device")
    with (
        armed(Point.QUARANTINE_WRITTEN, dying(full)),
        pytest.raises(InfrastructureError, match="No space left on device"),
    ):
        stream(lake)
    assert (lake.count("quarantine"), lake.count("speed")) == (3, 0)
    # Most of it is broken, but fewer records than masses are. What has come since is another micro-batch.
    lake.ingest([on(9, 2)])
    counts = stream(lake).counts
    assert (counts.batches, lake.count("quarantine"), streamed_numbers(lake)) == (2, 3, [1, 2])


def events_stored(lake: Lake) -> set[Path]:
    """The files of the speed layer, those that no commit names among them."""
    return set(Path(lake.config.table("speed")).glob("_event_date=*/*.parquet"))


def test_broken_records_stop_the_stream_in_masses_only_and_are_never_late_nor_move_the_watermark(
    make_lake: Callable[..., Lake], small: DataContract
) -> None:
    lake = make_lake("quarantine.min_records=4", contract=small)
    dies_between_its_tables(lake)
    # Spark holds records against the watermark as it was one micro-batch before.
    lake.ingest([on(9, 5)])
    stream(lake)
    lake.ingest([b"poison", on(9, 2), on(1, 3), Record(b"{}"), Record(None), on(9, 8)])
    lake.ingest([Record(flight(flight=4, scheduled_departure="2099-01-01T00:00:00Z"))])
    before = events_stored(lake)
    # A duplicate and a late record are not broken.
    with pytest.raises(SourceError, match=r"4 of 7 records .* nothing of it was written") as refused:
        stream(lake)
    assert refused.value.exit_code == 4
    assert streamed_numbers(lake) == [1, 2, 5]
    assert lake.count("quarantine") == 3
    assert events_stored(lake) == before
    lawful = make_lake("quarantine.min_records=4", "quarantine.max_share=0.6", contract=small)
    done = stream(lawful)
    counts = done.counts
    assert counts.records == counts.rows + counts.duplicates + counts.late + counts.quarantined == 7
    assert (counts.rows, counts.duplicates, counts.late, counts.quarantined) == (1, 1, 1, 4)
    assert done.watermark is not None
    assert done.watermark < datetime(2013, 1, 10, tzinfo=UTC)
    assert lake.count("quarantine") == 7


@pytest.mark.thorough
def test_more_broken_records_than_the_driver_takes_are_quarantined_all_the_same(
    make_lake: Callable[..., Lake], small: DataContract
) -> None:
    lake = make_lake("quarantine.max_share=1", contract=small)
    lake.ingest([on(1, 1), *([b"poison"] * 4_500), on(1, 2), on(1, 2)])
    counts = stream(lake).counts
    assert (counts.rows, counts.duplicates, counts.quarantined) == (2, 1, 4_500)
    assert streamed_numbers(lake) == [1, 2]
    assert lake.table("quarantine").select("_offset").distinct().count() == 4_500


@pytest.mark.thorough
def test_another_key_or_watermark_than_the_state_has_is_refused(
    make_lake: Callable[..., Lake], lake: Lake, small_by_flight: DataContract
) -> None:
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
    less = {name: value for name, value in json.loads(from_hex(encoded)).items() if "delay" not in name}
    set_table_property(lake.spark, table, DEDUP, to_hex(json.dumps(less)))
    stream(lake)
    assert table_property(lake.spark, table, DEDUP) == encoded
    with pytest.raises(ConfigError, match=r"speed.watermark_delay: found '.*', expected '9 hours'"):
        stream(longer)


@dataclass(frozen=True)
class AfterReplay:
    """A lake whose records were replayed, and what was seen of it on the way.

    Attributes:
        lake: The lake, by the contract that takes the far flights; its records are marked.
        looked: What a dry run has counted.
        streamed_then: The flights of the speed layer after that.
        done: What the replay did.
        streamed: The flights of the speed layer after it.
        kept_then: The quarantine before the records of rebuilt days were marked.
        night: The verdicts of the night that rebuilt the days.
        kept: The quarantine after the records were marked.
        served: The flights that readers have.
    """

    lake: Lake
    looked: ReplayCounts
    streamed_then: list[int]
    done: Replay[DataFrame]
    streamed: list[int]
    kept_then: list[tuple[Any, ...]]
    night: Mapping[date, str]
    kept: list[tuple[Any, ...]]
    served: list[int]


@pytest.fixture(scope="module")
def after_replay(
    streamed: Lake, small: DataContract, tmp_path_factory: pytest.TempPathFactory
) -> AfterReplay:
    """A lake by the contract that takes the far flights; readers have them, and their records are marked.

    One lies in a micro-batch that holds no other record of its day, so that no rebuild by a contract that
    refuses it reads it. Tests go on with a copy.
    """
    lake = copied(streamed, tmp_path_factory.mktemp("replayed") / "lake")
    lake.ingest([on(1, 9, **FAR)])
    stream(lake)
    certify(lake, ONE)
    fixed = with_contract(lake, small)
    looked, streamed_then = replay(fixed, dry_run=True).counts, streamed_numbers(fixed)
    done = replay(fixed)
    streamed_now, kept_then = streamed_numbers(fixed), kept(fixed)
    night = nightly(fixed.pipeline, "rebuilt", [ONE, TWO])
    mark_replayed(fixed.pipeline, done, done.days)
    return AfterReplay(
        lake=fixed,
        looked=looked,
        streamed_then=streamed_then,
        done=done,
        streamed=streamed_now,
        kept_then=kept_then,
        night=night.days,
        kept=kept(fixed),
        served=numbers(read_serving(fixed.pipeline)),
    )


@pytest.fixture
def replayed(after_replay: AfterReplay, tmp_path: Path) -> Lake:
    """A copy of that lake."""
    return copied(after_replay.lake, tmp_path / "lake")


def test_a_replayed_record_enters_an_uncertified_day_once_and_a_certified_day_by_its_rebuild(
    after_replay: AfterReplay, replayed: Lake
) -> None:
    seen, done = after_replay, after_replay.done
    expected = ReplayCounts(records=10, still_broken=4, rows=2, closed=2, copies=2)
    assert seen.looked == expected
    assert seen.streamed_then == [1, 3, 4]
    assert (done.days, done.counts) == ((ONE,), expected)
    assert seen.streamed == [1, 2, 3, 4, 6]
    waiting, marked = ("open", "rule_failed", 1), ("replayed", "rule_failed", 2)
    broken = ("open", "malformed_json", 2)
    between = [marked, marked, marked, broken, ("open", "missing_field", 2)]
    others = [broken, marked, ("open", "rule_failed", 2)]
    assert seen.kept_then == [waiting, *between, waiting, *others]
    assert seen.night == {ONE: "certified", TWO: "certified"}
    assert seen.kept == [marked, *between, marked, *others]
    assert seen.served == [1, 2, 2, 3, 4, 6, 9]
    assert replay(replayed).counts == ReplayCounts(records=4, still_broken=4, rows=0, closed=0, copies=0)
    assert streamed_numbers(replayed) == [1, 2, 3, 4, 6]


def judged(lake: Lake, contract: DataContract) -> str | None:
    """Judges what was replayed as a night does, and no more; returns what it warns of."""
    pipeline = replace(lake.pipeline, contract=contract)
    with lease(pipeline, "judge") as taken:
        index = index_bronze(pipeline, version(lake.spark, pipeline.table("bronze")))
        return judge_again(pipeline, index, taken)


@pytest.mark.thorough
def test_a_replayed_record_that_a_later_contract_refuses_is_unresolved_again(
    replayed: Lake, strict: DataContract, small: DataContract
) -> None:
    table = replayed.config.table("quarantine")
    before, at = kept(replayed), version(replayed.spark, table)
    # What the same contract has judged is not judged again; another one that takes it changes no status.
    assert judged(replayed, small) is None
    assert version(replayed.spark, table) == at
    assert judged(replayed, replace(small, row_rules=small.row_rules[1:])) is None
    assert (kept(replayed), version(replayed.spark, table)) == (before, at + 1)
    refused = before.count(("replayed", "rule_failed", 2))
    former = nightly(replace(replayed.pipeline, contract=strict), "former", [ONE])
    assert former.days == {ONE: "certified"}
    (warning,) = former.warnings
    assert f": {refused} replayed records break the contract now" in warning
    assert numbers(read_serving(replayed.pipeline)) == [1, 2, 3, 4, 6]
    assert kept(replayed).count(("open", "rule_failed", 3)) == refused
    # A run that died after it had opened them has told nobody.
    assert judged(replayed, strict) == warning
    again = replay(replayed)
    assert (again.days, again.counts.closed) == ((ONE, TWO), refused - 1)
    days = nightly(replayed.pipeline, "fixed", [ONE, TWO]).days
    assert days == {ONE: "certified", TWO: "certified"}
    mark_replayed(replayed.pipeline, again, again.days)
    assert judged(replayed, small) is None
    assert numbers(read_serving(replayed.pipeline)) == [1, 2, 2, 3, 4, 6, 9]


def test_a_run_that_was_overtaken_opens_no_record_that_a_later_run_has_replayed(
    replayed: Lake, strict: DataContract
) -> None:
    """It holds an earlier contract, and has stood still since it took its lease."""
    former = replace(replayed.pipeline, contract=strict)
    before = kept(replayed)
    with lease(former, "former") as taken:
        index = index_bronze(former, version(former.spark, former.table("bronze")))
        claim(former.spark, CERTIFICATIONS.path(former), later(taken))
        with pytest.raises(StaleEpoch):
            judge_again(former, index, taken)
    assert kept(replayed) == before


def later(taken: Lease) -> Stamp:
    """What a commit of a later run carries."""
    stamp = taken.stamp("later")
    return replace(stamp, number=stamp.number + 1_000_000)


@pytest.mark.thorough
def test_replayed_records_of_which_nothing_says_by_what_they_were_valid_are_judged(
    replayed: Lake, strict: DataContract, small: DataContract
) -> None:
    """As a release has left them that did not say it, in a table without the column."""
    table = replayed.config.table("quarantine")
    rows = read(replayed.spark, table).drop(REPLAYED_BY).collect()
    columns = shape(QUARANTINE)
    older = StructType([field for field in columns if field.name != REPLAYED_BY])
    shutil.rmtree(table)
    forget_tables()
    # A speed layer that was made anew has quarantined them twice.
    twice = replayed.spark.createDataFrame([*rows, *rows], older)
    twice.write.format("delta").save(table)
    before = kept(replayed)
    assert judged(replayed, small) is None
    assert kept(replayed) == before
    refused = before.count(("replayed", "rule_failed", 2))
    assert f": {refused // 2} replayed records" in str(judged(replayed, strict))
    assert kept(replayed).count(("open", "rule_failed", 3)) == refused


@pytest.mark.thorough
def test_a_replayed_record_that_bronze_no_longer_holds_stays_as_it_is(
    replayed: Lake, strict: DataContract
) -> None:
    """No rebuild can remove its event; unresolved, it would keep bronze from being cut."""
    former = replace(replayed.pipeline, contract=strict)
    index = index_bronze(former, version(former.spark, former.table("bronze")))
    cut = replace(index, rows=index.rows.withColumn("first", F.lit(1_000).cast("bigint")))
    before = kept(replayed)
    with lease(former, "former") as taken:
        assert judge_again(former, cut, taken) is None
    assert kept(replayed) == before


def test_a_record_that_bronze_has_lost_is_not_replayed(
    lake: Lake, small: DataContract, caplog: pytest.LogCaptureFixture
) -> None:
    def of_partition(number: int) -> list[str]:
        rows = lake.table("quarantine").where(f"_partition = {number}").orderBy("_offset")
        return [f"{row['_status']} {row['_attempts']}" for row in rows.collect()]

    before, others = of_partition(1), of_partition(0)
    bronze = lake.config.table("bronze")
    change_by_hand(lake.spark, bronze, lambda rows: rows.delete("_partition = 1"))
    replay(with_contract(lake, small))
    assert f"{len(before)} records of the quarantine are not in" in caplog.text
    assert of_partition(1) == before
    assert of_partition(0) != others


@pytest.mark.thorough
def test_a_replay_that_a_run_with_the_former_contract_overtakes_marks_nothing(
    lake: Lake, small: DataContract
) -> None:
    """Nobody reads the speed layer of a certified day, and no further replay would take the events up."""

    def overtaken() -> None:
        # As if its time were over.
        DeltaTable.forPath(lake.spark, lake.config.ops_table("leases")).delete()
        certify(lake, TWO)

    before, fixed = kept(lake), with_contract(lake, small)
    with (
        armed(Point.RECORDS_JUDGED, once(overtaken)),
        pytest.raises(InfrastructureError, match="lost its lease to a later one"),
    ):
        replay(fixed)
    assert kept(lake) == before
    done = replay(fixed)
    assert done.days == (TWO,)
    assert done.counts == ReplayCounts(records=9, still_broken=4, rows=0, closed=3, copies=2)


@pytest.mark.thorough
def test_a_certified_day_that_fails_its_rebuild_does_not_hold_up_the_others(
    make_lake: Callable[..., Lake], strict: DataContract, small: DataContract
) -> None:
    lake = make_lake(contract=strict)
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
    assert done_again.verdicts == {ONE: "failed", three: "certified"}
    assert done_again.failure is not None
    mark_replayed(replace(lake.pipeline, contract=small), done, [three])
    assert [(status, attempts) for status, _, attempts in kept(lake)] == [("open", 1), ("replayed", 2)]
    far = read_serving(lake.pipeline).where("flight = 1002")
    assert [row["_event_date"] for row in far.collect()] == [three]


def test_what_is_still_broken_gets_its_new_reason_and_what_is_given_up_stays_away_until_it_is_reopened(
    lake: Lake, small: DataContract
) -> None:
    stricter = replace(small, version="2.0.0", row_rules=(RowRule("carrier", "values", ("XX",)),))
    replay(with_contract(lake, stricter), Selection(reasons=("rule_failed",)))
    groups = summarise(lake.pipeline, UNRESOLVED)
    assert [(g.reason, g.column, g.contract_version, g.records) for g in groups] == [
        ("rule_failed", "carrier", "2.0.0", 6),
        ("malformed_json", None, "0.9.0", 2),
        ("missing_field", "carrier", "0.9.0", 1),
    ]
    second = Selection(contract_versions=("2.0.0",))
    for dry_run in (True, False):
        assert discard(lake.pipeline, "run", second, dry_run=dry_run) == 6
    assert [record.value for record in examples(lake.pipeline, UNRESOLVED, 10)] == [b"poison", b"b", b"{}"]
    assert replay(with_contract(lake, small)).counts.rows == 0
    assert streamed_numbers(lake) == [1, 3, 4]
    discarded = Selection(status="discarded")
    assert summarise(lake.pipeline, discarded)[0].records == 6
    for dry_run, left in ((True, 6), (False, 4)):
        assert reopen(lake.pipeline, "run", replace(discarded, partitions=(1,)), dry_run=dry_run) == 2
        assert sum(group.records for group in summarise(lake.pipeline, discarded)) == left
    assert replay(with_contract(lake, small)).counts.rows == 1
    assert streamed_numbers(lake) == [1, 3, 4, 6]


@pytest.mark.thorough
def test_records_are_chosen_by_reason_time_and_partition(streamed: Lake) -> None:
    def chosen(**filters: Any) -> list[bytes | None]:
        return [record.value for record in examples(streamed.pipeline, Selection(**filters), 10)]

    assert chosen(reasons=("missing_field",)) == chosen(since=LATE) == [b"{}"]
    assert chosen(until=EPOCH + timedelta(hours=1), partitions=(1,)) == [b"b"]
    assert chosen(since=datetime(2030, 1, 1, tzinfo=UTC)) == []


def test_replay_is_refused_while_a_nightly_run_holds_the_lease(lake: Lake, small: DataContract) -> None:
    with (
        lease(lake.pipeline, "a nightly run"),
        pytest.raises(InfrastructureError, match="nightly run"),
    ):
        replay(with_contract(lake, small))


def fingerprint(value: bytes) -> str:
    return "sha256:" + sha256(value).hexdigest()[:16]


def test_values_of_personal_columns_are_not_shown(streamed: Lake, strict: DataContract) -> None:
    found = streamed.table("quarantine").where("_column = 'distance'").select("_found").distinct()
    assert {row["_found"] for row in found.collect()} == {
        fingerprint(b"4963.0"),
        fingerprint(b"-1.0"),
    }
    known = (*strict.row_rules, RowRule("tailnum", "values", ("N1",)))
    contract = replace(strict, row_rules=known, personal={"tailnum": "hash", "carrier": "drop"})
    # Offsets are of no matter, and other tests go on with those of the lake.
    broken = replace(streamed, _offsets={}).envelopes(
        [on(1, 1, tailnum="N2"), on(1, 2, carrier="none"), on(1, 3, dest="nowhere")]
    )
    decoded = decode(broken, contract, timedelta(days=1)).select("_error.column", "_error.found")
    assert {row["column"]: row["found"] for row in decoded.collect()} == {
        "carrier": None,
        "dest": "nowhere",
        "tailnum": fingerprint(b"N2"),
    }
