"""What is forgotten is gone from every layer, stays gone, and no audit holds it against the day."""

import itertools
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.cli.job_runner import JobFailed
from pipelines.contracts.contract import DataContract
from pipelines.delta.io import append, read
from pipelines.delta.record_tables import BRONZE
from pipelines.delta.row_changes import deletion
from pipelines.delta.table_properties import WHOLE_FROM, set_table_property, table_property
from pipelines.delta.tables import ensure_table, shape, version
from pipelines.delta.upkeep import change_rows
from pipelines.errors import AuditFailed, InfrastructureError, SourceError
from pipelines.fault_points import Point, armed
from pipelines.ledger.bronze_indexer import index_bronze
from pipelines.ledger.certifications import history
from pipelines.ledger.forgotten import forgetting_commits
from pipelines.ledger.forgotten_places import emptied_on_arrival, places, require_forgotten
from pipelines.ledger.quarantine import Selection
from pipelines.lineage.searches import again
from pipelines.nightly.rebuild_plan import due_days
from pipelines.nightly.verdicts import NightFailed
from pipelines.spark.failures import explain_stream_failure
from pipelines.steps import forget as forgetting
from pipelines.steps import rebuild as rebuilding
from pipelines.steps import speed as speed_layer
from pipelines.steps.forget import Forgotten, ForgottenCounts
from pipelines.steps.maintain import maintain
from pipelines.steps.nightly import nightly
from pipelines.steps.serving_table import refresh_table
from pipelines.steps.speed import SpeedCounts
from pipelines.steps.validate import validate
from tests.support.accidents import dying, once
from tests.support.changes_by_hand import change_by_hand
from tests.support.engines import rows_of
from tests.support.forgotten_lakes import (
    ASKED,
    DECIDED,
    LAYERS,
    STREAMED,
    checks,
    files_with,
    fill,
    forget_again,
    forget_key,
    layers,
    of,
    said_by_commits,
    served,
    values_kept,
    who_is_in,
)
from tests.support.lake_copies import copied, lake_in, put_back
from tests.support.lakes import Lake
from tests.support.nights import LATER, ONE, THREE, TWO, on, run, stream
from tests.support.replays import replay


@dataclass(frozen=True)
class AfterForget:
    """A lake after flight 1 was forgotten, and what was told meanwhile; layers by how many rows they have."""

    lake: Lake
    layers_before: list[int]
    foretold: Forgotten
    dry_run: dict[str, Any]
    layers_foretold: list[int]
    found: Forgotten
    told: dict[str, Any]


@pytest.fixture
def lake(make_lake: Callable[..., Lake], small: DataContract) -> Lake:
    return make_lake(contract=small)


@pytest.fixture(scope="module")
def filled(spark: SparkSession, small: DataContract, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The lake of `fill`; tests read it, or put tables back as it has them."""
    lake = lake_in(tmp_path_factory.mktemp("filled") / "lake", spark, small)
    fill(lake)
    return lake


@pytest.fixture(scope="module")
def after(filled: Lake, tmp_path_factory: pytest.TempPathFactory) -> AfterForget:
    """The same lake after `oncelake forget` of flight 1; tests read it, or go on with a copy."""
    lake = copied(filled, tmp_path_factory.mktemp("after") / "lake")
    before = layers(lake)
    foretold, dry_run = forget_key(lake, *ASKED, dry_run=True)
    layers_foretold = layers(lake)
    found, told = forget_key(lake, *ASKED)
    return AfterForget(lake, before, foretold, dry_run, layers_foretold, found, told)


@pytest.fixture
def forgotten(after: AfterForget, tmp_path: Path) -> Lake:
    """A copy of the lake in which flight 1 is forgotten."""
    return copied(after.lake, tmp_path / "lake")


def test_what_is_forgotten_is_gone_from_every_layer_as_the_dry_run_has_told(
    filled: Lake, after: AfterForget
) -> None:
    lake, counted, found = after.lake, after.foretold, after.found
    assert after.layers_foretold == after.layers_before == [9, 3, 5, 3]
    assert (counted.days, after.dry_run["days_to_rebuild"]) == ((ONE,), ["2013-01-01"])
    assert found.counts == counted.counts == ForgottenCounts(bronze=4, quarantine=1, speed=2, batch=1)
    assert after.told["days"] == {"2013-01-01": "certified"}
    assert served(lake) == [2, 3, 7]
    # Places stay, so that offsets have no gap; what a producer sends cannot look forgotten.
    assert layers(lake) == [9, 2, 3, 2]
    emptied = lake.table("bronze").where("_forgotten IS NOT NULL")
    assert {tuple(row) for row in emptied.select("key", "value", "headers").collect()} == {(None,) * 3}
    assert table_property(lake.spark, lake.config.table("bronze"), "delta.appendOnly") == "true"
    verdict = history(lake.pipeline)[-1]
    assert (verdict.cause, verdict.removed, verdict.rows, verdict.records) == ("forgotten", 1, 2, 2)
    assert (verdict.bronze, verdict.quarantined, verdict.other_days) == (5, 2, 1)
    assert set(checks(lake, ONE).values()) == {"passed"}
    assert values_kept(filled)
    assert values_kept(lake) == set()


def test_forgetting_twice_finds_nothing_more(forgotten: Lake) -> None:
    repeated, told = forget_key(forgotten, *ASKED)
    assert repeated.counts == ForgottenCounts(bronze=0, quarantine=0, speed=0, batch=0)
    assert told["lines"][1] == "no matching event was found"
    assert layers(forgotten) == [9, 2, 3, 2]


@pytest.mark.thorough
def test_a_run_that_dies_anywhere_is_completed_by_the_next_and_upkeep_removes_what_old_files_hold(
    lake: Lake,
) -> None:
    lake.ingest([of(1, 1, sent=LATER), on(1, 2), of(1, 1, distance=-1.0)])
    stream(lake)
    lake.ingest([of(1, 1)])
    stream(lake)
    run(lake, ONE)
    serving = lake.config.serving.model_copy(update={"table": True})
    lake.config = lake.config.model_copy(update={"serving": serving})
    refresh_table(lake.pipeline)
    samples = read(lake.spark, lake.config.ops_table("layer_samples"))
    results = read(lake.spark, lake.config.ops_table("validation_results")).where("result IS NOT NULL")
    assert not samples.isEmpty()
    assert not results.isEmpty()

    def dies_at(point: Point) -> None:
        with armed(point, dying(KeyboardInterrupt())), pytest.raises(KeyboardInterrupt):
            forget_key(lake, "flight=1")

    dies_at(Point.PLACES_REMEMBERED)
    dies_at(Point.VALUES_DELETED)
    with pytest.raises(SourceError, match=r"3 records that were forgotten.*oncelake forget .*--again") as no:
        run(lake, ONE)
    assert no.value.exit_code == 4
    dies_at(Point.RECORDS_EMPTIED)
    # Of the quarantine, and then of the speed layer.
    dies_at(Point.ROWS_DELETED)
    dies_at(Point.ROWS_DELETED)
    # As it is left where the process dies before the table refuses changes again.
    set_table_property(lake.spark, lake.config.table("bronze"), "delta.appendOnly", "false")
    counted, _ = forget_key(lake, "flight=1", dry_run=True)
    assert counted.counts == ForgottenCounts(bronze=0, quarantine=0, speed=0, batch=1)
    dies_at(Point.VERDICTS_WRITTEN)
    # Readers of the lake have lost it, and those of the serving table have not.
    assert served(lake) == [2]
    found, told = forget_key(lake, "flight=1")
    assert (found.counts, told["days"]) == (ForgottenCounts(bronze=0, quarantine=0, speed=0, batch=0), {})
    assert rows_of(lake.config.serving_table) == [(ONE, 2)]
    verdict = history(lake.pipeline)[-1]
    assert (verdict.day, verdict.status, verdict.cause) == (ONE, "certified", "forgotten")
    assert table_property(lake.spark, lake.config.table("bronze"), "delta.appendOnly") == "true"
    assert served(lake) == [2]
    assert read(lake.spark, lake.config.ops_table("layer_samples")).isEmpty()

    assert files_with(Path(lake.config.root))
    maintain(lake.pipeline, "upkeep", dry_run=False, vacuum_now=True)
    assert files_with(Path(lake.config.root)) == []
    assert served(lake) == [2]
    # Nor does Delta's log say whom it was: conditions of a DELETE would stand there.
    assert said_by_commits(lake, "speed") & {"DELETE", "flight"} == set()


@pytest.mark.thorough
def test_a_record_that_the_speed_stream_has_not_read_is_not_forgotten_yet(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.ingest([of(1, 1, distance=-1.0), on(1, 2)])
    stream(lake)
    assert forget_key(lake, "flight=1")[0].counts.bronze == 1
    # The stream goes on where nothing but broken records, which have no event day, was forgotten.
    lake.ingest([on(1, 3)])
    assert stream(lake).counts.rows == 1

    lake.ingest([of(2, 1), on(2, 2)])
    # A clock that ingest does not refuse was put back: what it reads then lies before what was read.
    lake._ingested = itertools.count(-3)
    lake.ingest([of(2, 1, distance=-1.0), on(2, 9)])
    way_out = r"speed_stream has not read 2 records.*speed_stream --pipeline flights --once"
    with pytest.raises(SourceError, match=way_out) as refused:
        forget_key(lake, "flight=1")
    assert refused.value.exit_code == 4
    assert who_is_in(lake, "bronze") == 2
    # A stream that begins while records are emptied, in a run that dies before it looks once more.
    with monkeypatch.context() as patched:
        patched.setattr(forgetting, "unread_rows", lambda pipeline: lake.table("bronze").where("false"))
        assert forget_key(lake, "flight=1")[0].counts.bronze == 2
    with pytest.raises(SourceError, match="speed_stream has not read 2 records"):
        forget_key(lake, "flight=1")
    stream(lake)
    assert forget_key(lake, "flight=1")[0].counts == ForgottenCounts(bronze=0, quarantine=1, speed=1, batch=0)


def lose_what_was_done(lake: Lake, filled: Lake) -> None:
    """Puts layers back as they were before flight 1 was forgotten; what uses them brings nothing back."""
    put_back(lake, filled, *DECIDED, "quarantine/flights")
    assert (1 in served(lake), who_is_in(lake, "quarantine")) == (True, 1)
    done = replay(lake.pipeline, "replay", Selection(), dry_run=False)
    assert (done.counts.rows, done.counts.closed) == (0, 0)
    # Whatever a night is asked to repair, it rebuilds the day that was put back.
    index = index_bronze(lake.pipeline, version(lake.spark, lake.config.table("bronze")))
    due = due_days(lake.pipeline, index, [TWO], "nothing", history(lake.pipeline))
    assert due.causes == {ONE: "forgotten", TWO: "asked"}

    put_back(lake, filled, *STREAMED)
    match = r"speed/flights: found 2 records; .*quarantine/flights: found 1 records that were forgotten"
    with pytest.raises(SourceError, match=match) as refused:
        stream(lake)
    assert refused.value.exit_code == 4
    assert forget_again(lake) == ForgottenCounts(bronze=0, quarantine=1, speed=2, batch=1)
    stream(lake)


def stream_anew(lake: Lake) -> None:
    """Makes the speed layer anew, of a bronze that has got more of flight 7."""
    lake.ingest([of(2, 7), of(3, 7)])
    # As `checkpoint reset` leaves it: what the stream writes to goes with its checkpoint.
    for place in STREAMED:
        shutil.rmtree(Path(lake.config.root, place))
    assert stream(lake).counts == SpeedCounts(
        records=7, rows=5, duplicates=0, late=0, quarantined=2, batches=1
    )


def forget_without_rebuild(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgets flight 7 in a run whose rebuild is refused, which is told."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise SourceError("bronze is behind")

    told = r"deleted from bronze.* readers still get them on 2013-01-01: bronze is behind.*forget .*--again"
    with monkeypatch.context() as patched:
        patched.setattr(rebuilding, "nightly", refuse)
        with pytest.raises(JobFailed, match=told) as refused:
            forget_key(lake, "flight=7")
    assert refused.value.exit_code == SourceError.exit_code
    assert refused.value.summary["counts"] == {"bronze": 3, "quarantine": 0, "speed": 3, "batch": 1}
    assert served(lake) == [1, 2, 3, 7]
    # An audit would keep what the certified rows have beyond the other layers.
    with pytest.raises(SourceError, match=r"2013-01-01 was certified before .* records were forgotten"):
        validate(lake.pipeline, "validate", ONE)


def send_more(lake: Lake) -> None:
    """Sends flight 7 again on two days, and forgets it again on one of them."""
    lake.ingest([on(2, 7), on(3, 7)])
    lake.ingest([on(3, 9)])
    # What comes later is new. The stream remembers the key.
    counts = stream(lake).counts
    assert (counts.records, counts.rows, counts.duplicates) == (3, 1, 2)
    found, told = forget_key(lake, "flight=7", "scheduled_departure=2013-01-02T05:15:00-05:00")
    assert (found.counts, told["days"]) == (ForgottenCounts(bronze=1, quarantine=0, speed=0, batch=0), {})


@pytest.mark.thorough
def test_nothing_comes_back_and_the_next_night_removes_what_readers_still_get(
    forgotten: Lake, filled: Lake, small: DataContract, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = forgotten
    # A contract that takes what was broken finds nothing of it either.
    lake.contract = replace(small, row_rules=(), version="2")
    lose_what_was_done(lake, filled)
    stream_anew(lake)
    forget_without_rebuild(lake, monkeypatch)
    send_more(lake)

    shutil.rmtree(lake.config.ops_table("bronze_index"))
    # Not by its lookback.
    batch = lake.config.batch.model_copy(update={"lookback_days": 0})
    without = replace(lake.pipeline, config=lake.config.model_copy(update={"batch": batch}))
    # Of what came later the audit says that it lacks, where it was not forgotten again.
    with pytest.raises(NightFailed, match="1 unexplained") as failed:
        nightly(without, "night", [TWO, THREE], "late and missed")
    assert failed.value.result.days == {ONE: "certified", TWO: "certified", THREE: "failed"}
    causes = {v.day: v.cause for v in history(lake.pipeline)[-3:]}
    assert causes == {ONE: "forgotten", TWO: "asked", THREE: "asked"}
    for day in (ONE, TWO):
        assert set(checks(lake, day).values()) == {"passed"}
    assert served(lake) == [2, 3, 9]
    assert [who_is_in(lake, layer) for layer in LAYERS] == [0] * 4


@pytest.mark.thorough
def test_another_pipeline_of_the_topic_keeps_nothing_that_was_forgotten(
    forgotten: Lake, filled: Lake
) -> None:
    other = forgotten.variant(config=forgotten.config.model_copy(update={"name": "flights_2"}))
    for place in ("bronze/flights", *STREAMED):
        shutil.copytree(Path(filled.config.root, place), Path(other.config.root, f"{place}_2"))
    with pytest.raises(SourceError, match=r"4 records that were forgotten.*--pipeline flights_2 --again"):
        run(other, ONE)
    began = datetime.now(UTC)
    assert forget_again(other) == ForgottenCounts(bronze=4, quarantine=1, speed=2, batch=0)
    # A day that was certified with them since the first pipeline forgot them would be rebuilt.
    known = places(other.pipeline)
    assert known is not None
    assert known.where(F.col("forgotten_at") < F.lit(began)).isEmpty()
    assert run(other, ONE).days == {ONE: "certified"}
    assert served(other) == [2, 3, 7]


@pytest.mark.thorough
def test_what_is_late_by_a_forgotten_record_is_late_still(lake: Lake) -> None:
    # Spark holds rows against the watermark of the micro-batch before.
    for records in ([of(9, 5)], [of(9, 6)], [on(1, 1), on(1, 2, sent=LATER)]):
        lake.ingest(records)
        counts = stream(lake).counts
    assert counts.late == 2
    forget_key(lake, "scheduled_departure=2013-01-09T05:15:00-05:00")
    run(lake, ONE)
    assert history(lake.pipeline)[-1].late == 2


@pytest.mark.thorough
def test_bronze_of_an_earlier_version_gets_its_mark_when_it_is_needed(lake: Lake) -> None:
    properties = {"delta.appendOnly": "true", "delta.enableChangeDataFeed": "true"}
    ensure_table(lake.spark, lake.config.table("bronze"), shape(BRONZE), properties=properties)
    lake.ingest([of(1, 1), on(1, 2)])
    stream(lake)
    assert "_forgotten" not in lake.table("bronze").columns
    seen: list[int] = []
    rows = speed_layer.bronze_stream(lake.pipeline).writeStream.foreachBatch(
        lambda got, _: seen.append(got.count())
    )
    running = rows.option("checkpointLocation", f"{lake.config.root}/ops/checkpoints/other").start()
    try:
        running.processAllAvailable()
        forget_key(lake, "flight=1")
        with pytest.raises(Exception, match="DELTA_SCHEMA_CHANGED") as failed:
            running.awaitTermination(60)
    finally:
        running.stop()
    said = explain_stream_failure(failed.value)
    assert isinstance(said, InfrastructureError)
    assert "Start the job again" in str(said)
    append(lake.envelopes([on(1, 3)]), lake.config.table("bronze"))
    assert stream(lake).counts.rows == 1
    run(lake, ONE)
    # The commit by which forget claims bronze holds no record.
    assert (served(lake), sum(seen)) == ([2, 3], 2)


@pytest.mark.thorough
def test_a_day_past_its_retention_is_certified_again_without_what_is_forgotten(
    filled: Lake, tmp_path: Path
) -> None:
    lake = copied(filled, tmp_path / "lake")
    # As retention leaves a lake: what it removed from bronze it has told before.
    change_rows(lake.spark, lake.config.table("bronze"), deletion("_offset < 7"), {WHOLE_FROM: "2013-01-02"})
    found, told = forget_key(lake, "flight=1")
    assert (found.days, found.final, told["days"]) == ((), (ONE,), {})
    assert served(lake) == [2, 3, 7]
    verdict = history(lake.pipeline)[-1]
    assert (verdict.day, verdict.status, verdict.rows, verdict.removed) == (ONE, "certified", 2, 1)
    # What bronze no longer had was remembered, too, so that a backup brings it back to nobody.
    put_back(lake, filled, *DECIDED)
    lake.ingest([on(4, 9)])
    match = r"found 1 rows of events that were forgotten, on days that bronze no longer.*forget .*--again"
    with pytest.raises(SourceError, match=match) as refused:
        run(lake, THREE)
    assert refused.value.exit_code == 4
    assert forget_again(lake) == ForgottenCounts(bronze=0, quarantine=0, speed=0, batch=1)
    assert served(lake) == [2, 3, 7]
    assert forget_key(lake, "flight=1")[0].counts == ForgottenCounts(bronze=0, quarantine=0, speed=0, batch=0)


@pytest.mark.thorough
def test_a_bronze_that_is_put_back_is_used_by_nobody_until_it_is_emptied_again(
    forgotten: Lake, filled: Lake
) -> None:
    lake = forgotten
    assert again(filled.pipeline) is None
    put_back(lake, filled, "bronze/flights")
    uses: list[Callable[[], object]] = [
        lambda: stream(lake),
        lambda: run(lake, ONE),
        lambda: validate(lake.pipeline, "validate", ONE),
    ]
    for use in uses:
        with pytest.raises(SourceError, match="4 records that were forgotten") as refused:
            use()
        assert refused.value.exit_code == 4
    put_back(lake, filled, *STREAMED)
    assert forget_again(lake) == ForgottenCounts(bronze=4, quarantine=1, speed=2, batch=0)
    # What ingest reads once more is empty on arrival, and the rest of the micro-batch is as it came.
    lake.ingest([on(2, 4)])
    read_again = lake.envelopes([of(1, 1), replace(on(2, 5), offset=20)])
    read_again = read_again.withColumn("_offset", F.expr("CASE _offset WHEN 10 THEN 0 ELSE _offset END"))
    append(emptied_on_arrival(read_again, places(lake.pipeline)), lake.config.table("bronze"))
    assert lake.table("bronze").where("_forgotten IS NOT NULL AND _offset = 0").count() == 2
    assert stream(lake).counts.rows == 2
    # Of flight 7 alone, which nobody has forgotten.
    assert [who_is_in(lake, layer) for layer in LAYERS] == [1, 0, 1, 1]
    # Offsets that are missing are found all the same.
    change_by_hand(lake.spark, lake.config.table("bronze"), lambda rows: rows.delete("_offset = 1"))
    with pytest.raises(SourceError, match="records are gone that nightly runs have seen"):
        run(lake, ONE)


@pytest.mark.thorough
def test_what_an_audit_has_kept_goes_also_if_it_reads_while_others_forget(
    filled: Lake, tmp_path: Path
) -> None:
    lake = copied(filled, tmp_path / "lake")
    with (
        armed(Point.DAYS_AUDITED, once(lambda: forget_key(lake, *ASKED))),
        pytest.raises(InfrastructureError, match="2013-01-01: events were forgotten while it was audited"),
    ):
        validate(lake.pipeline, "run", ONE)
    assert values_kept(lake) == set()


@pytest.mark.thorough
def test_a_record_whose_key_only_the_layers_can_tell_is_forgotten_with_them(
    filled: Lake, tmp_path: Path
) -> None:
    lake = copied(filled, tmp_path / "lake")
    # As after a change of the contract: the record can no longer be read.
    (poison,) = lake.table("bronze").where("value = 'poison'").select("_offset").collect()
    (other,) = lake.table("speed").where("flight = 3").select("_offset").collect()
    sent = lake.table("bronze").where("value = 'poison'").selectExpr("_kafka_timestamp AS sent")
    row = lake.table("speed").where("flight = 1").limit(1).crossJoin(sent)
    # The second and the third are of an earlier topic, which had other records under these offsets.
    for at, before in ((poison[0], "0 days"), (other[0], "9 days"), (1000, "0 days")):
        moved = {"_offset": F.expr(f"{at}L"), "_kafka_timestamp": F.expr(f"sent - INTERVAL {before}")}
        append(row.withColumns(moved).drop("sent"), lake.config.table("speed"))
    counted, _ = forget_key(lake, *ASKED, dry_run=True)
    found, _ = forget_key(lake, *ASKED)
    assert found.counts == counted.counts == ForgottenCounts(bronze=5, quarantine=2, speed=5, batch=1)
    known = places(lake.pipeline)
    assert known is not None
    (of_poison,) = known.where(F.col("_offset") == poison[0]).collect()
    assert of_poison["event_time"] is not None
    assert known.where(F.col("_offset").isin(other[0], 1000)).isEmpty()
    require_forgotten(lake.pipeline, "speed", "quarantine")


def test_a_loss_beside_what_is_forgotten_is_found(forgotten: Lake) -> None:
    lake = forgotten
    # One that nobody has forgotten is emptied, and not marked.
    emptied = {"key": "NULL", "value": "NULL", "headers": "NULL"}
    bronze = lake.config.table("bronze")
    change_by_hand(lake.spark, bronze, lambda rows: rows.update("_offset = 1", dict(emptied)))
    with pytest.raises(AuditFailed):
        validate(lake.pipeline, "validate", ONE)
    assert served(lake) == [2, 3, 7]
    # Rows of the speed layer that were changed by no command: nobody knows what was published of them.
    speed = lake.config.table("speed")
    before = version(lake.spark, speed)
    assert [*forgetting_commits(lake.spark, speed, -1, before).values()] == [(ONE, TWO)]
    change_by_hand(lake.spark, speed, lambda rows: rows.update("flight = 3", {"tailnum": "NULL"}))
    with pytest.raises(SourceError, match=f"version {before + 1} .UPDATE. has changed or deleted rows"):
        forgetting_commits(lake.spark, speed, -1, before + 1)
