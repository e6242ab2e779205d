"""What is in lakes and clusters that people have: a release may add to these names, and never changes one.

Each is written out here. A test that took them from the code would follow whoever renames one.
"""

import json
import re
from dataclasses import asdict
from datetime import UTC, date, datetime
from pathlib import Path
from typing import get_args

import pytest

from pipelines.config.loader import load_config
from pipelines.config.model import RegistryConfig
from pipelines.config.streams import Layer, Query
from pipelines.contracts.rules import Condition
from pipelines.delta.checkpoint_fit import BEGIN
from pipelines.delta.epochs import Epoch, application, next_epoch
from pipelines.delta.event_tables import day_settings, dedup_settings
from pipelines.delta.record_tables import BRONZE, FORGOTTEN, ORIGIN_COLUMNS, QUARANTINE
from pipelines.delta.reset_fence import reset_application
from pipelines.delta.table_properties import OF_CATALOGS, PROPERTIES, property_of_cluster, to_hex
from pipelines.formats.contract_files import load_contract
from pipelines.kafka.beginnings import Beginning, Loss
from pipelines.lag.alert_file import alerts_in
from pipelines.ledger.bronze_index import EMPTIED, OFFSETS, RECORDS
from pipelines.ledger.certifications import VerdictStatus
from pipelines.ledger.checks import CheckKind, CheckStatus
from pipelines.ledger.layer_samples import Difference
from pipelines.ledger.ops_tables import OPS_TABLES
from pipelines.ledger.quarantine import STATUSES
from pipelines.ledger.runs import Step
from pipelines.ledger.writer_schemas import NO_ID, UNKNOWN, UNREADABLE
from pipelines.nightly.rebuild_plan import RebuildCause
from pipelines.publishing.checkpoint_note import FIRST_START, PARTITIONS, PROGRESS_IN, SETTLED, SINK
from pipelines.publishing.settings import sink_of
from pipelines.publishing.slots import SlotProgress, Written, transactional_id
from pipelines.records.decode import EVENT_DATE
from pipelines.runtime.file_lock import lock_file
from pipelines.spark.checkpoints import BEGAN, note_in, note_path
from pipelines.spark.state_store import NOT_SCANNED, PROVIDER, SPARKS_OWN
from pipelines.spark.stream_progress import progress_in, progress_path, refusal_in

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
_ENVELOPE = "key binary, value binary, headers array<struct<key: string, value: binary>>"
_ORIGIN = "_topic string, _partition int, _offset bigint, _kafka_timestamp timestamp, _ingested_at timestamp"
_PLACE = "struct<topic: string, partition: int, offset: bigint>"
OPS = {
    "bronze_index": "pipeline string, made_for string, until bigint, kind string, commit bigint,"
    " ingested_at timestamp, day date, reason string, records bigint, newest timestamp, topic string,"
    " partition int, first bigint, last bigint, distinct bigint, sent timestamp, appended timestamp,"
    " bronze_id string, until_commit string, topic_id string, whole_from date, clock timestamp,"
    " ingested_from timestamp,"
    " batches array<struct<at: timestamp, commit: bigint, newest: timestamp, clock: timestamp>>",
    "certifications": "pipeline string, day date, status string, run_id string, batch_version bigint,"
    " bronze_version bigint, records bigint, rows bigint, duplicates bigint, conflicts bigint, late bigint,"
    " quarantined bigint, other_days bigint, bronze bigint, decided_at timestamp, cause string,"
    " came_late bigint, previous_version bigint, added bigint, removed bigint, changed bigint,"
    " bronze_id string, base_version bigint, epoch bigint, batch_commit string, bronze_commit string",
    "validation_results": "pipeline string, day date, run_id string, name string, kind string, status string,"
    " observed string, expected string, detail string, batch_version bigint, bronze_version bigint,"
    " checked_at timestamp, result string",
    "runs": "pipeline string, run_id string, step string, status string, first_day date, last_day date,"
    " days int, detail string, started_at timestamp, ended_at timestamp",
    "layer_samples": "pipeline string, day date, run_id string, difference string,"
    f" key array<struct<column: string, value: string>>, batch {_PLACE}, speed {_PLACE}, event_time string,"
    " ingested_at string, watermark string, recorded_at timestamp",
    "published_days": "pipeline string, query string, batch bigint, day date, batch_version bigint,"
    " batch_commit string, topic_id string, is_left boolean",
    "publications": "pipeline string, day date, batch_version bigint, topic_id string, run_id string,"
    " published_at timestamp, batch_commit string, partitions int",
    "begun_publications": "pipeline string, day date, batch_version bigint, batch_commit string,"
    " topic_id string, number bigint, sink string, certified_version bigint, run_id string,"
    " begun_at timestamp, partitions int",
    "forgotten": "pipeline string, topic_id string, _topic string, _partition int, _offset bigint,"
    " event_time timestamp, forgotten_at timestamp, run_id string",
    "leases": "pipeline string, holder string, host string, pid bigint, process_started double,"
    " since timestamp, until timestamp, epoch bigint, boot string, pid_namespace string,"
    " job string",
    "writer_schemas": "pipeline string, registry string, id bigint, kind string, text string,"
    " fetched_at timestamp, schema_id string",
}


def columns(ddl: str) -> set[str]:
    """The columns of a table, each with its type."""
    # A comma within < and > divides parts of a type.
    return {*re.split(r", (?![^<]*>)", ddl)}


@pytest.mark.parametrize("name", OPS)
def test_a_table_under_ops_has_the_columns_that_earlier_releases_wrote(name: str) -> None:
    (spec,) = (spec for spec in OPS_TABLES if spec.name == name)
    assert columns(OPS[name]) <= columns(spec.ddl)


def test_each_table_under_ops_is_written_out_here() -> None:
    """What a release adds is in lakes once it is out."""
    assert {spec.name: columns(spec.ddl) for spec in OPS_TABLES} == {
        n: columns(ddl) for n, ddl in OPS.items()
    }


def test_the_tables_of_records_and_events_have_their_columns() -> None:
    bronze = f"{_ENVELOPE}, {_ORIGIN}, _kafka_timestamp_type int"
    quarantine = (
        f"{_ENVELOPE}, {_ORIGIN}, _reason string, _column string, _found string, _contract_version string,"
        " _quarantined_at timestamp, _status string, _attempts int, _tried_at timestamp,"
        " _replayed_by string"
    )
    assert columns(bronze) <= columns(BRONZE)
    assert columns(quarantine) <= columns(QUARANTINE)
    assert FORGOTTEN == "_forgotten"
    assert columns(_ORIGIN) <= columns(ORIGIN_COLUMNS)
    assert EVENT_DATE == "_event_date"


def test_properties_of_tables_keep_their_names() -> None:
    assert {table: set(names) for table, names in PROPERTIES.items()} == {
        "bronze": {
            "oncelake.kafka.topicId",
            "oncelake.kafka.topicId.CLUSTER",
            "oncelake.whole_from",
            "oncelake.whole_from.CLUSTER",
            "oncelake.removed_below",
            "oncelake.removed_for",
            "oncelake.forgetting",
            "oncelake.divergence_accepted",
        },
        "speed": {"oncelake.dedup", "oncelake.watermark.byClockSince", "oncelake.speed_from"},
        "batch": {"oncelake.days", "oncelake.zone_rules", "oncelake.certified"},
        "serving": {"oncelake.serves"},
    }
    assert {*OF_CATALOGS} == {"oncelake.contract", "oncelake.personal", "oncelake.classification"}
    assert property_of_cluster("oncelake.whole_from", "eu") == "oncelake.whole_from.eu"
    assert to_hex("aé") == "61c3a9"


def test_what_a_table_keeps_of_its_rules_is_compared_under_the_same_names() -> None:
    """A rule that is kept under another name is taken for one that an earlier release did not keep."""
    config = load_config(
        "flights", environ={}, settings=["speed.watermark_delay=2 hours", "speed.state_partitions=4"]
    )
    contract = load_contract(Path("data_contracts/flights.odcs.yaml"))
    assert dedup_settings(contract, config.speed) == {
        "dedup key": "carrier string, flight bigint, origin string, scheduled_departure timestamp",
        "event time": "scheduled_departure",
        "day time zone": "America/New_York",
        "speed.watermark_delay": "2 hours",
        "speed.state_partitions": "4",
        "value format": "json",
    }
    assert day_settings(contract) == {
        "dedup key": "carrier, flight, origin, scheduled_departure",
        "event time": "scheduled_departure",
        "day time zone": "America/New_York",
        "value format": "json",
    }


def test_schemas_of_a_registry_are_kept_under_its_url() -> None:
    assert RegistryConfig(url="https://registry:8081/api").identity == "https://registry:8081/api"


def test_commits_of_runs_are_numbered_as_they_always_were() -> None:
    _, stamp = Epoch("flights", "run", 3, steps=7).after("build")
    assert (stamp.application, stamp.number) == ("oncelake.lease.flights", 3_000_007)
    assert stamp.note == "build run (3.7)"
    assert application("flights@backfill") == "oncelake.lease.flights@backfill"
    config = load_config("flights", environ={}, settings=["kafka.clusters.eu.bootstrap_servers=eu:9092"])
    assert reset_application(config) == "oncelake.lease.flights@ingest"
    assert reset_application(config.source("eu")) == "oncelake.lease.flights@ingest.eu"
    assert next_epoch(None, [3_000_007, -1]) == 4


def test_values_of_columns_keep_their_words() -> None:
    assert (RECORDS, OFFSETS, EMPTIED) == ("records", "offsets", "emptied")
    assert (NO_ID, UNKNOWN, UNREADABLE) == ("-1", "UNKNOWN", "UNREADABLE")
    assert [*STATUSES] == ["open", "replayed", "discarded"]
    for words, kept in (
        (VerdictStatus, {"certified", "failed"}),
        (CheckStatus, {"passed", "failed", "warned"}),
        (CheckKind, {"integrity", "expectation"}),
        (Step, {"seal", "build", "audit", "certify"}),
        (RebuildCause, {"asked", "missed", "late", "neighbour", "forgotten"}),
        (Difference, {"late", "quarantined", "pending", "remembered", "missing", "extra", "other_copy"}),
        (Layer, {"bronze", "speed", "batch", "quarantine"}),
        (Query, {"ingest", "speed", "publish"}),
    ):
        assert kept <= {*get_args(words)}


def test_the_bronze_index_is_made_for_conditions_in_the_same_words() -> None:
    """Their text is part of the hash by which an index is recognised; else it is built from all of bronze."""
    assert repr((Condition("fast", "a < 1"),)) == "(Condition(name='fast', sql='a < 1'),)"


def test_folders_and_files_of_a_lake_keep_their_places() -> None:
    config = load_config("flights", environ={}, settings=["lake.root=/lake"])
    assert [config.table(layer) for layer in ("bronze", "speed", "batch", "quarantine")] == [
        f"/lake/{layer}/flights" for layer in ("bronze", "speed", "batch", "quarantine")
    ]
    assert config.serving_table == "/lake/serving/flights"
    assert config.ops_table("leases") == "/lake/ops/leases"
    ingest = config.checkpoint("ingest")
    assert ingest == "/lake/ops/checkpoints/flights/ingest"
    assert note_path(ingest) == f"{ingest}.note.json"
    assert progress_path(ingest) == f"{ingest}.progress.json"
    assert config.alerts_file == "/lake/ops/checkpoints/flights/lag.alerts.json"
    assert str(lock_file("/lake", "flights", "ingest")) == f"{ingest}.run.lock"


def test_the_checkpoint_of_a_further_cluster_keeps_its_place() -> None:
    servers = "kafka.clusters.eu.bootstrap_servers=eu:9092"
    config = load_config("flights", environ={}, settings=["lake.root=/lake", servers])
    further = config.source("eu")
    assert further.checkpoint("ingest") == "/lake/ops/checkpoints/flights/ingest_eu"
    assert further.checkpoint("speed") == "/lake/ops/checkpoints/flights/speed"
    assert further.kafka.source_topic == f"eu/{config.kafka.topic}"


def test_notes_beside_checkpoints_keep_their_words() -> None:
    assert (BEGIN, PARTITIONS, BEGAN) == ("begin", "partitions", "began")
    loss = Beginning({0: 5}, {1: Loss(2, date(2013, 1, 3)), 2: Loss(0, date(2013, 1, 5), date(2013, 1, 3))})
    lost = '{"1": [2, "2013-01-03", ""], "2": [0, "2013-01-05", "2013-01-03"]}'
    assert loss.entries() == {"began": '{"0": 5}', "lost": lost}
    assert Beginning(passed={0: 7}).entries() == {"passed": '{"0": 7}'}
    assert (SINK, PROGRESS_IN, SETTLED) == ("sink", "progress_topic", "settled")
    assert FIRST_START == "first_start"
    note = '{"speed": "id", "since": 7, "topic_id": "t", "partitions": "6", "begin": "bronze"}'
    assert note_in(note, "speed.note.json")["since"] == 7


def test_the_state_store_that_checkpoints_name_is_there() -> None:
    assert PROVIDER == "spark.sql.streaming.stateStore.providerClass"
    assert NOT_SCANNED == "oncelake.state.DeduplicationStateProvider"
    assert SPARKS_OWN == "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    source = Path("jvm/src", *NOT_SCANNED.split(".")).with_suffix(".java").read_text(encoding="utf-8")
    assert "package oncelake.state;" in source
    assert "class DeduplicationStateProvider extends RocksDBStateStoreProvider" in source


PROGRESS = {
    "next_batch": 8,
    "source": "query",
    "topic_id": "topic",
    "slots": 3,
    "written": {"rows": 7, "digest": "00ff", "rules": {"publish.format": "json"}},
    "is_begun": True,
    "run": "run",
    "partitions": 6,
    "part": 1,
    "parts": 4,
    "is_lost": True,
}


def test_publishing_progress_is_written_and_read_in_the_same_words() -> None:
    progress = SlotProgress.of_record(json.dumps(PROGRESS).encode())
    assert asdict(progress) == PROGRESS
    assert json.loads(progress.record()) == PROGRESS
    committed = progress.commit("oncelake-progress", 2)
    assert committed.offset == 8
    assert {**json.loads(committed.metadata or ""), "next_batch": 8} == PROGRESS
    old = {name: PROGRESS[name] for name in ("next_batch", "source", "topic_id", "slots")}
    assert json.loads(SlotProgress(8, "query", "topic", 3).record()) == old
    assert progress.written == Written(7, "00ff", {"publish.format": "json"})


def test_a_sink_keeps_its_names_in_the_cluster() -> None:
    settings = ["publish.topic=out", "publish.slots=3"]
    config = load_config("flights", environ={}, settings=settings)
    sink = sink_of(config)
    assert sink.name == "oncelake.local.flights"
    assert sink.connection.progress_topic == "oncelake-progress"
    assert transactional_id(sink.name, 2) == "oncelake.local.flights-2"
    assert config.offsets_group == "oncelake.local.flights.ingest"


def test_figures_of_a_stream_are_read_as_an_earlier_release_wrote_them() -> None:
    at = NOW.isoformat()
    state = {"memory_bytes": 1, "update_s": 0.1, "evict_s": 0.2, "commit_s": 0.3}
    tasks = {"tasks": 1, "failed": 2, "run_s": 0.3, "gc_s": 0.4, "spilled_bytes": 5, "longest_s": 0.6}
    batch = {
        **{"number": 7, "at": at, "seconds": 1.5, "records": 20, "phases": {"write": 0.5}, "duplicates": 3},
        **{"state": state, "tasks": {**tasks, "handing_on_s": 0.7}, "late": 4, "watermark": at},
        **{"files_left": 5, "bytes_left": 6, "parts": {"decode": 0.1}},
    }
    run = {
        **{"query": "speed", "host": "h", "pid": 9, "started_at": at, "written_at": at, "seen_at": at},
        **{"trigger_s": 10.0, "previous_at": at, "executors": 2, "ended_at": at, "failure": "why"},
    }
    found = progress_in(json.dumps({**run, "batches": [batch]}))
    assert {name: value for name, value in asdict(found).items() if value is None} == {}
    assert asdict(found)["batches"][0]["tasks"] == {**tasks, "handing_on_s": 0.7}
    assert (found.host, found.failure, found.batches[0].bytes_left) == ("h", "why", 6)
    refusal = refusal_in(json.dumps({"at": at, "failure": "why", "last_written_at": at}))
    assert (refusal.at, refusal.failure, refusal.last_written_at) == (NOW, "why", NOW)


def test_alerts_of_lag_are_read_as_an_earlier_release_wrote_them() -> None:
    state = {"is_raised": True, "streak": 1, "changed_at": NOW.isoformat()}
    letter = {"message": {"job": "lag"}, "hooks": ["notify.command"]}
    book = alerts_in(json.dumps({"states": {"ingest": state}, "outbox": [letter]}))
    assert (book.states["ingest"].is_raised, book.states["ingest"].streak) == (True, 1)
    assert book.states["ingest"].changed_at == NOW
    assert (book.outbox[0].message, book.outbox[0].hooks) == ({"job": "lag"}, ("notify.command",))
