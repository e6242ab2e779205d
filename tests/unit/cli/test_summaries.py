"""What a command prints is made from what its step has found, without Spark or a cluster."""

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import DataFrame

from pipelines.audit.audit import Audit
from pipelines.audit.rebuild_diff import Changes
from pipelines.audit.recount import BronzeDay, BronzeFacts
from pipelines.cli import rack
from pipelines.cli.checkpoint import summary_of as summary_of_reset
from pipelines.cli.forget import summary_of as summary_of_forgotten
from pipelines.cli.job_runner import JobFailed
from pipelines.cli.maintain import summary_of as summary_of_upkeep
from pipelines.cli.nightly import summary_of_night, summary_of_validation
from pipelines.cli.quarantine import summary_of_groups, summary_of_records, summary_of_replay
from pipelines.cli.reconcile import message_of, summary_of_clusters
from pipelines.cli.reconcile import summary_of as summary_of_reconciliation
from pipelines.cli.report import summary_of as summary_of_report
from pipelines.cli.report import summary_of_metrics
from pipelines.cli.streams import summary_of_ingest, summary_of_speed
from pipelines.config.loader import load_config
from pipelines.contracts.contract import DataContract
from pipelines.delta.upkeep import Files
from pipelines.errors import AuditFailed
from pipelines.kafka.ingest_position import Continuation
from pipelines.kafka.topic_offsets import BrokerOffsets, TopicOffsets
from pipelines.ledger.certifications import Certified
from pipelines.ledger.checks import LATE_WITHIN_LIMIT, Check
from pipelines.ledger.layer_samples import LayerDifference
from pipelines.lineage.offset_comparison import BronzeOffsets, OffsetDifference
from pipelines.lineage.searches import Searched
from pipelines.nightly.rebuild_plan import Due
from pipelines.nightly.verdicts import NightResult, Run, decide_days, night_result
from pipelines.racks.advice import advise, crossing
from pipelines.racks.reassignment import reassignment, spread
from pipelines.racks.topology import Partition, TopicReplicas
from pipelines.racks.traffic import RackTraffic
from pipelines.retention.blockers import RetentionBlocker
from pipelines.retention.removal_terms import Removal
from pipelines.retention.upkeep_run import FoldedIndex, KeptFiles, LeftOver, OldRows, TableFiles
from pipelines.steps.checkpoints import CheckpointReset
from pipelines.steps.forget import ForgetResult, Forgotten, ForgottenCounts
from pipelines.steps.ingest import IngestResult, PartitionRead
from pipelines.steps.maintain import Upkeep
from pipelines.steps.metrics import WrittenMetrics
from pipelines.steps.quarantine import QuarantinedRecord, QuarantineGroup
from pipelines.steps.racks import MeasuredTraffic, PlannedMoves, RackDiagnosis
from pipelines.steps.rebuild import Rebuild
from pipelines.steps.reconcile import Reconciliation
from pipelines.steps.replay_run import Replay, ReplayCounts, ReplayResult
from pipelines.steps.report import WrittenReport
from pipelines.steps.speed import SpeedCounts, SpeedResult
from pipelines.steps.validate import Validation
from tests.support.reports import sample

PUBLISHING = load_config("flights", environ={}, settings=["publish.topic=out", "publish.slots=2"])
ONE, TWO, THREE = (date(2013, 1, day) for day in (1, 2, 3))
TRAFFIC = RackTraffic("client", {"a": {"a": 3_000_000, "b": 1_000_000}}, {})
CROWDED = TopicReplicas(
    "flights", {1: "a", 2: "a", 3: None}, {1: "", 2: "Aware", 3: ""}, (Partition(0, 2, (1, 2), (1, 2), 0),)
)


def night() -> NightResult:
    """A night of a day that was asked for, of one with late records, and of one that fails."""
    run = Run("flights", "run", 7, "id", 3, 4, 2, None, None, datetime(2013, 1, 4, tzinfo=UTC))
    of_days = {ONE: BronzeDay(8, 4), TWO: BronzeDay(3, 9, conflicts=1), THREE: BronzeDay(1, 11)}
    checks = (
        Check(TWO, "rows", "integrity", "failed", "3", "2"),
        Check(ONE, LATE_WITHIN_LIMIT, "integrity", "warned", "2 of 7", "at most 1%"),
    )
    rows, late = {ONE: 7, TWO: 3, THREE: 1}, {ONE: LayerDifference(late=2)}
    audit = Audit(checks, BronzeFacts(20, 2, 2, of_days), rows, late, 0.1)
    left = date(2012, 12, 30), date(2012, 12, 31)
    due = Due({ONE: "late", TWO: "missed", THREE: "asked"}, {ONE: 1, left[0]: 1}, [left[1]])
    decided = decide_days(run, audit, due, Certified(2, (ONE,)), {ONE: Changes(1_000, 0, 2)})
    return night_result(run, audit, decided, due)


def test_a_night_is_told_as_this_document_with_a_line_for_each_day_that_it_repaired() -> None:
    assert json.dumps(summary_of_night(night(), ["the view is stale"])) == (
        '{"counts": {"days": 3, "days_certified": 2, "records": 12, "rows": 11, "duplicates": 1,'
        ' "conflicts": 1, "late": 2, "quarantined": 2, "days_repaired": 1}, "days": {"2013-01-01":'
        ' "certified", "2013-01-02": "failed", "2013-01-03": "certified"}, "batch_version": 4,'
        ' "bronze_version": 7, "late_days_left": ["2012-12-30"], "missed_days_left": ["2012-12-31"],'
        ' "warnings": ["late events on 2013-01-01: 2 of 7; expected at most 1%; see docs/runbook.md,'
        " 'Many late records'"
        '", "the view is stale"],'
        ' "also_rebuilt": {"2013-01-01": {"cause": "late", "status": "certified", "rows": {"added": 1000,'
        ' "removed": 0, "changed": 2}}, "2013-01-02": {"cause": "missed", "status": "failed", "rows":'
        ' null}}, "lines": ["2013-01-01 (late): certified; 1,000 rows added, 0 removed, 2 changed",'
        ' "2013-01-02 (missed): failed"]}'
    )
    none_passed = replace(night(), verdicts=night().verdicts[1:2], batch_version=None)
    told = summary_of_night(none_passed, [])
    assert (told["batch_version"], told["counts"]["days_certified"]) == (None, 0)


def test_an_audit_of_a_certified_day_is_told_as_this_document() -> None:
    assert json.dumps(summary_of_validation(Validation(checks=30, rows=7), ["the view is stale"])) == (
        '{"counts": {"checks": 30, "rows": 7}, "warnings": ["the view is stale"]}'
    )


def test_a_run_of_ingest_is_told_as_this_document() -> None:
    offsets = (PartitionRead("flights", 1, None, 3), PartitionRead("flights", 0, 4, 9))
    document = (
        '{"counts": {"records": 8, "batches": 2}, "offsets": {"flights": {"1": [null, 3], "0": [4, 9]}}%s}'
    )
    assert json.dumps(summary_of_ingest(IngestResult(8, 2, offsets))) == document % ""
    placed = replace(TRAFFIC, placement={"rackReason": "there are no executors but the driver"})
    assert json.dumps(summary_of_ingest(IngestResult(8, 2, offsets, placed))) == document % (
        ', "racks": {"mode": "client", "bytes": {"a": {"a": 3000000, "b": 1000000}}, "share": 0.75,'
        ' "placement": {"rackReason": "there are no executors but the driver"}}'
    )
    assert json.dumps(summary_of_ingest(IngestResult(0, 0, ()))) == (
        '{"counts": {"records": 0, "batches": 0}, "offsets": {}}'
    )


def test_a_run_of_the_speed_stream_is_told_as_this_document() -> None:
    counts = SpeedCounts(records=9, rows=4, duplicates=3, late=1, quarantined=1, batches=2)
    watermark = datetime(2013, 1, 1, 5, 15, 0, 123_000, UTC)
    assert json.dumps(summary_of_speed(SpeedResult(counts, watermark, ("late records",)))) == (
        '{"counts": {"records": 9, "rows": 4, "duplicates": 3, "late": 1, "quarantined": 1, "batches": 2},'
        ' "watermark": "2013-01-01T05:15:00.123Z", "warnings": ["late records"]}'
    )
    # Before the first micro-batch, and without one.
    begun = summary_of_speed(SpeedResult(counts, datetime.fromtimestamp(0, UTC), ()))
    assert begun["watermark"] == "1970-01-01T00:00:00.000Z"
    assert summary_of_speed(SpeedResult(counts, None, ()))["watermark"] is None


def test_groups_of_the_quarantine_are_told_as_this_document() -> None:
    sent = "2013-01-01 05:15:00", "2013-01-02 05:15:00"
    groups = [QuarantineGroup("open", "rule_failed", "distance", "1.0.0", 1_200, 2, *sent)]
    line = (
        "    1,200  open       rule_failed        distance              contract 1.0.0"
        "  sent 2013-01-01 05:15:00 to 2013-01-02 05:15:00 UTC  tried 2 times"
    )
    assert json.dumps(summary_of_groups(groups)) == (
        f'{{"counts": {{"records": 1200}}, "lines": ["{line}"], "groups": [{{"status": "open", "reason":'
        ' "rule_failed", "column": "distance", "contract_version": "1.0.0", "records": 1200, "attempts": 2,'
        ' "first_sent": "2013-01-01 05:15:00", "last_sent": "2013-01-02 05:15:00"}]}'
    )


def test_records_of_the_quarantine_are_told_as_this_document(contract: DataContract) -> None:
    record = QuarantinedRecord(
        topic="flights",
        partition=1,
        offset=7,
        sent="2013-01-01 05:15:00",
        reason="rule_failed",
        column="distance",
        found="-1",
        status="open",
        attempts=1,
        contract_version="1.0.0",
        value=b'{"distance": -1}',
    )
    said = "flights-1 @ 7, sent 2013-01-01 05:15:00 UTC: rule_failed of distance, found -1"
    assert summary_of_records([record], contract)["lines"] == [
        said + ' (open, tried once, contract 1.0.0)\n    {"distance": -1}'
    ]
    empty = replace(record, column=None, found=None, value=None)
    assert json.dumps(summary_of_records([empty], contract)) == (
        '{"counts": {"records": 1}, "lines": ["flights-1 @ 7, sent 2013-01-01 05:15:00 UTC: rule_failed'
        ' (open, tried once, contract 1.0.0)\\n    "], "records": [{"topic": "flights", "partition": 1,'
        ' "offset": 7, "sent": "2013-01-01 05:15:00", "reason": "rule_failed", "column": null, "status":'
        ' "open", "attempts": 1, "contract_version": "1.0.0", "found": null, "value": ""}]}'
    )


def test_a_replay_is_told_as_these_documents() -> None:
    counts = ReplayCounts(records=9, still_broken=4, rows=2, closed=1, copies=2)
    done = Replay(counts, (ONE,), (TWO,), cast(DataFrame, None))
    counted = '{"counts": {"records": 9, "still_broken": 4, "rows": 2, "closed": 1, "copies": 2}, '
    gone = (
        "left unresolved: 2013-01-02: records of the day are gone from bronze, so it cannot"
        " be rebuilt; discard them"
    )
    foretold = summary_of_replay(ReplayResult(done, Rebuild({}), []), dry_run=True)
    assert json.dumps(foretold) == (
        counted + f'"days_to_rebuild": ["2013-01-01"], "lines": ["to rebuild: 2013-01-01", "{gone}"]}}'
    )
    result = ReplayResult(done, Rebuild({ONE: "certified"}), ["the view is stale"])
    assert json.dumps(summary_of_replay(result, dry_run=False)) == (
        counted + '"days": {"2013-01-01": "certified"}, "warnings": ["the view is stale"], "lines":'
        f' ["rebuilt: 2013-01-01: certified", "{gone}"]}}'
    )
    failed = replace(result, rebuild=Rebuild({ONE: "failed"}, AuditFailed("too few rows")))
    with pytest.raises(JobFailed, match="too few rows") as told:
        summary_of_replay(failed, dry_run=False)
    assert (told.value.exit_code, told.value.summary["days"]) == (3, {"2013-01-01": "failed"})


def test_what_was_forgotten_is_told_as_this_document() -> None:
    counts = ForgottenCounts(bronze=4, quarantine=1, speed=2, batch=1)
    forgotten = Forgotten(counts, Searched(1_200, "lake/bronze/flights", 3), (ONE,), (TWO,))
    foretold = summary_of_forgotten(PUBLISHING, ForgetResult(forgotten, Rebuild({}), []), dry_run=True)
    assert json.dumps(foretold) == (
        '{"counts": {"bronze": 4, "quarantine": 1, "speed": 2, "batch": 1}, "days": {}, "days_to_rebuild":'
        ' ["2013-01-01"], "looked_in": "1,200 records of lake/bronze/flights (version 3)", "warnings": [],'
        ' "lines": ["searched 1,200 records of lake/bronze/flights (version 3), and all layers", "bronze: 4'
        ' records to be emptied", "quarantine: 1 rows to be deleted", "speed: 2 rows to be deleted", "batch:'
        ' 1 rows of certified days to be removed", "to rebuild: 2013-01-01", "to be rewritten without them,'
        ' past its retention: 2013-01-02"]}'
    )
    failed = Rebuild({ONE: "failed"}, AuditFailed("too few rows"))
    with pytest.raises(JobFailed, match="readers still get them on 2013-01-01: too few rows") as told:
        summary_of_forgotten(PUBLISHING, ForgetResult(forgotten, failed, []), dry_run=False)
    assert (told.value.exit_code, told.value.summary["days"]) == (3, {"2013-01-01": "failed"})


def test_the_doctor_shows_where_each_partition_can_be_read_and_what_the_rest_costs() -> None:
    advice = advise(CROWDED, ["a", "b"], "client")
    bill = {mode: crossing(share, 3000, 0.02) for mode, share in advice.shares.items()}
    told = rack.summary_of_diagnosis(RackDiagnosis(CROWDED, "client", ["a", "b"], advice, bill))
    assert told["brokers"][2] == {"id": 3, "rack": None, "selector": ""}
    assert told["shares"] == {"off": 0.5, "client": 0.5, "placement": 1.0}
    assert told["bill"]["client"] == {"gigabytes": 1500.0, "price": 30.0}
    half = "; 1,500 GB a month cross racks, for 30.00"
    assert told["lines"][:7] == [
        "topic flights, 1 partitions; executors in a, b",
        "broker 1: rack a, replica.selector.class not set",
        "broker 2: rack a, replica.selector.class Aware",
        "broker 3: rack not set, replica.selector.class not set",
        "partition 0: can be read in a",
        f"kafka.rack.mode: off: share within the rack 0.500{half}",
        f"kafka.rack.mode: client: share within the rack 0.500; as configured{half}",
    ]
    assert told["lines"][8:] == [f"hint: {hint}" for hint in advice.hints]
    assert "bill" not in rack.summary_of_diagnosis(RackDiagnosis(CROWDED, "off", [], advice, {}))


def test_moves_are_shown_with_the_commands_that_carry_them_out() -> None:
    topic = TopicReplicas("flights", {1: "a", 2: "a", 3: "b"}, None, (Partition(0, 2, (1, 2), (1, 2), 0),))
    planned = PlannedMoves(topic, spread(topic), reassignment("flights", spread(topic)))
    settings = ["kafka.bootstrap_servers=broker:9092", "kafka.options.security.protocol=SSL"]
    kafka = load_config("flights", environ={}, settings=settings).kafka
    told = rack.summary_of_moves(kafka, planned, None, 5)
    command = (
        "  kafka-reassign-partitions --bootstrap-server broker:9092 --command-config CLIENT.properties"
        " --reassignment-json-file PLAN.json"
    )
    assert told["moves"] == 1
    assert told["lines"] == [
        "flights-0: brokers 1, 2 -> 3, 2",
        "the plan, to be saved in a file:",
        '{"version": 1, "partitions": [{"topic": "flights", "partition": 0, "replicas": [3, 2]}]}',
        "to run the plan, and to remove the throttle when it is done:",
        f"{command} --execute --throttle 5",
        f"{command} --verify",
    ]
    nothing = PlannedMoves(topic, (), reassignment("flights", ()))
    assert rack.summary_of_moves(kafka, nothing, None, 5)["lines"] == [
        "no moves: replicas are spread over racks already"
    ]


def test_bytes_are_shown_by_the_rack_that_read_and_the_rack_that_served_them() -> None:
    told = rack.summary_of_traffic(MeasuredTraffic(1200, 2, 1.23456, TRAFFIC))
    racks = {"mode": "client", "bytes": {"a": {"a": 3_000_000, "b": 1_000_000}}, "share": 0.75}
    assert (told["counts"], told["query_s"], told["racks"]) == ({"records": 1200, "batches": 2}, 1.235, racks)
    assert told["lines"] == [
        "1,200 records in 1.2 s",
        "a read 3.0 MB from a",
        "a read 1.0 MB from b",
        "within the rack: 0.750",
    ]
    silent = replace(TRAFFIC, received={})
    untold = rack.summary_of_traffic(MeasuredTraffic(1, 1, 1.0, silent))
    assert "is spark.plugins=oncelake.rack.RackPlugin set?" in untold["lines"][-1]
    idle = rack.summary_of_traffic(MeasuredTraffic(0, 0, 1.0, silent))
    assert idle["racks"] == {"mode": "client", "bytes": {}, "share": None}
    assert idle["lines"] == ["0 records in 1.0 s", "there was nothing to read"]


def test_what_bronze_lacks_is_counted_apart_from_what_is_explained() -> None:
    topic = TopicOffsets("id", {1: BrokerOffsets(0, 9), 0: BrokerOffsets(2, 20)}, "delete")
    findings = [
        OffsetDifference(0, "lost", 3, 2, 18, ((4, 5), (9, 9))),
        OffsetDifference(0, "no_record", 2, 2, 18, ((4, 5), (9, 9))),
        OffsetDifference(1, "not_read", 9, 0, 8),
    ]
    found = Reconciliation("flights", topic, {0: BronzeOffsets(2, 18)}, 7, findings)
    told = summary_of_reconciliation(found)
    assert told["counts"] == {"partitions": 2, "missing": 3, "explained": 2, "not_read_yet": 9}
    assert told["partitions"] == [
        {"partition": 0, "kafka": [2, 20], "bronze": [2, 19]},
        {"partition": 1, "kafka": [0, 9], "bronze": None},
    ]
    assert told["findings"][2] == {
        "partition": 1,
        "kind": "lag",
        "offsets": 9,
        "alarm": False,
        "words": "0..8: not read yet, or transaction markers",
    }
    lost = "flights-0 @ 3 records within 2..18 (the first: 4..5, 9): Kafka has them, and bronze does not"
    empty = (
        "flights-0 @ 2 offsets within 2..18 (the first: 4..5, 9): Kafka has no record there:"
        " transaction markers, or records of aborted transactions"
    )
    assert told["lines"] == [
        f"MISSING  {lost}",
        f"known    {empty}",
        "known    flights-1 @ 0..8: not read yet, or transaction markers",
    ]
    assert message_of(found) == (
        "bronze and kafka.topic 'flights' differ without explanation.\n"
        f"{lost}\nSee docs/runbook.md, 'Is everything in bronze?'"
    )
    whole = summary_of_reconciliation(Reconciliation("flights", topic, {}, 7, []))
    assert whole["lines"] == ["bronze (version 7) holds all that flights has"]


def test_what_bronze_lacks_of_several_clusters_is_told_for_each() -> None:
    topic = TopicOffsets("id", {0: BrokerOffsets(0, 9)}, "delete")
    lost = [OffsetDifference(0, "lost", 3, 2, 8)]
    first, eu = Reconciliation("flights", topic, {}, 7, []), Reconciliation("eu/flights", topic, {}, 7, lost)
    told = summary_of_clusters([first, eu], ["us"])
    assert told["counts"] == {"partitions": 2, "missing": 3, "explained": 0, "not_read_yet": 0}
    assert {name: each["counts"]["missing"] for name, each in told["clusters"].items()} == {
        "flights": 0,
        "eu/flights": 3,
    }
    assert told["lines"] == [
        "bronze (version 7) holds all that flights has",
        "MISSING  eu/flights-0 @ 3 records within 2..8: Kafka has them, and bronze does not",
        "not asked, as retired: us",
    ]


def test_a_reset_tells_what_was_moved_and_what_the_stream_does_next() -> None:
    config = load_config("flights", environ={})
    begins = Continuation("flights", {0: 7, 1: None}, {0: range(3, 7)})
    told = summary_of_reset(config, CheckpointReset("ingest", {"lake/a": "lake/a.1"}, begins))
    assert told == {
        "moved": {"lake/a": "lake/a.1"},
        "lines": [
            "moved lake/a to lake/a.1",
            "ingest_stream reads flights-0: from offset 7 on",
            "ingest_stream reads flights-1: from the earliest offset on",
            "MISSING  flights-0 @ 3..6: Kafka has deleted them before they were read; audits will fail",
        ],
    }
    assert summary_of_reset(config, CheckpointReset("ingest", {}))["lines"] == [
        "there was nothing to move",
        "there is no bronze: ingest_stream reads from the earliest offset that Kafka has",
    ]
    anew, *more = summary_of_reset(PUBLISHING, CheckpointReset("speed", {}))["lines"][1:]
    assert anew.startswith("speed_stream rebuilds speed layer and quarantine from bronze")
    assert [line.split(":")[0] for line in more] == [
        "what bronze no longer holds is not rebuilt",
        "publish_stream has read the table that was moved",
    ]
    assert summary_of_reset(config, CheckpointReset("speed", {}))["lines"][1:] == [anew, more[0]]


def test_upkeep_tells_what_it_did_and_what_keeps_the_rest_in_this_order() -> None:
    noon = datetime(2013, 1, 1, 12, tzinfo=UTC)
    needs = (RetentionBlocker(TWO, "a stream has not read it"),)
    findings = (
        TableFiles("bronze/flights", "compacted", Files(1200, 3_400_000)),
        LeftOver(is_restored=True),
        OldRows("bronze", Removal(4000, needs=needs, kept_from=ONE, sent_before=noon)),
        OldRows("speed", Removal(5, kept_from=TWO, days=3)),
        OldRows("quarantine", Removal(1)),
        OldRows("speed", Removal(needs=needs)),
        FoldedIndex(1000),
        KeptFiles("bronze"),
        KeptFiles("batch"),
        KeptFiles("speed"),
        TableFiles("ops/runs", "removed", Files(2, 10)),
    )
    told = summary_of_upkeep(Upkeep(findings), vacuum_now=False)
    waits = "for longer than maintain.vacuum_after"
    assert told == {
        "counts": {
            "files_compacted": 1200,
            "bytes_compacted": 3_400_000,
            "bronze_rows": 4000,
            "speed_rows": 5,
            "quarantine_rows": 1,
            "index_rows": 1000,
            "files_removed": 2,
            "bytes_removed": 10,
        },
        "lines": [
            "bronze/flights: files compacted: 1,200 (3,400,000 bytes)",
            "batch: a run died before its verdict; first restored to the certified version",
            "bronze: 4,000 records that were sent before 2013-01-01 12:00 UTC; whole from 2013-01-01",
            "bronze: kept from 2013-01-02 on: a stream has not read it",
            "speed: 5 rows of 3 certified days; kept from 2013-01-02",
            "quarantine: 1 replayed or discarded records",
            "speed: kept from 2013-01-02 on: a stream has not read it",
            "ops/bronze_index: 1,000 rows fewer: old rows were folded",
            f"bronze: no file removed: speed_stream has not read all of it {waits}",
            f"batch: no file removed: publish_stream has not sent what was certified {waits}",
            f"speed: no file removed: publish_stream has not read all of it {waits}",
            "ops/runs: files removed: 2 (10 bytes)",
        ],
    }
    at_once = summary_of_upkeep(Upkeep((KeptFiles("bronze"),)), vacuum_now=True)
    assert at_once["lines"] == ["bronze: no file removed: speed_stream has not read all of it"]


def test_files_are_shown_by_their_sort() -> None:
    data = sample()
    files = {"html": Path("reports/a.html"), "markdown": Path("reports/a.md")}
    assert summary_of_report(WrittenReport(data, files)) == {
        "day": data.day.isoformat(),
        "verdict": data.verdict.status,
        "counts": data.flow.model_dump(),
        "lines": ["html     reports/a.html", "markdown reports/a.md"],
        "html": "reports/a.html",
        "markdown": "reports/a.md",
    }
    assert summary_of_metrics(WrittenMetrics("run", Path("reports/a.prom"))) == {
        "run": "run",
        "lines": ["prometheus reports/a.prom"],
        "prometheus": "reports/a.prom",
    }
