"""For each check of doctor facts of which it finds something, and facts that are near and sound."""

from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any, get_args

from pipelines.doctor.findings import FindingSeverity
from pipelines.doctor.pipeline_facts import (
    LatenessFacts,
    LeaseFacts,
    NightFacts,
    Part,
    PipelineFacts,
    PublishingFacts,
    RuntimeFacts,
    StreamFacts,
    TopicFacts,
)
from pipelines.racks.topology import Partition
from pipelines.spark.log_store import StoreProbe
from pipelines.spark.plain_endpoints import plain_endpoints
from pipelines.spark.stream_progress import Refusal
from tests.support.doctor_facts import (
    DAY,
    EU,
    HOUR,
    NOW,
    RACKED,
    SOUND,
    STREAMS,
    TOPIC,
    configured,
    described,
    failed,
    kept,
    replicated,
    run,
    several,
    source,
    stream,
    tables,
)

LEASE = LeaseFacts("run r of maintain on host (pid 7)", NOW - HOUR, NOW + HOUR, is_gone=True)
ONCE: dict[str, Any] = {"trigger_s": 0.0, "ended_at": NOW}
OF_TWO = configured(EU).config
KILLED = run("ingest", written_at=NOW - timedelta(minutes=3))
STUCK = run("publish", seen_at=NOW - timedelta(minutes=9))


@dataclass(frozen=True)
class Case:
    """A situation in which a check finds something, and one that is near and sound."""

    check: str
    severity: FindingSeverity
    found: PipelineFacts
    words: str
    near: PipelineFacts = SOUND


CASES = [
    Case(
        "accepted_risks",
        "info",
        configured("accept_risks=[acks_not_all]"),
        "acks_not_all: a broker that fails loses",
    ),
    Case("settings_for_one_run", "warning", configured("batch.fewer_records=take"), "fewer_records"),
    Case("settings_for_one_run", "warning", configured("batch.seal_by=bronze"), "seal_by"),
    Case("settings_for_one_run", "warning", configured("audit.layer_differences=warn"), "layer_diff"),
    Case("settings_for_one_run", "warning", configured("quarantine.max_share=1"), "max_share"),
    Case(
        "clusters_not_looked_at",
        "info",
        several(OF_TWO, source(OF_TWO.source("eu"))),
        "--cluster leaves out the first cluster",
        several(OF_TWO, *map(source, OF_TWO.sources())),
    ),
    Case(
        "clusters_not_looked_at",
        "info",
        configured(EU, "kafka.clusters.eu.retired=true"),
        "retired, so no run asks what they have: eu",
        several(OF_TWO, *map(source, OF_TWO.sources())),
    ),
    Case(
        "nights_wait_for_ingest",
        "warning",
        configured("ingest.trigger_interval=11 seconds"),
        "batch.seal_wait is 30 seconds",
        configured("ingest.trigger_interval=10 seconds"),
    ),
    Case(
        "dead_letters_are_acknowledged",
        "error",
        configured("kafka.options.acks='1'"),
        "kafka.options.acks is '1': a broker that fails loses",
        configured("kafka.options.acks=' ALL'"),
    ),
    Case(
        "dead_letters_are_sent_once",
        "error",
        configured("kafka.options.enable.idempotence='False'"),
        "kafka.options.enable.idempotence is 'False'",
        configured("kafka.options.enable.idempotence=' True'"),
    ),
    Case(
        "session_outlasts_heartbeats",
        "warning",
        configured("kafka.options.session.timeout.ms='6000'"),
        "kafka.options.session.timeout.ms is '6000'",
        configured("kafka.options.session.timeout.ms='9000'"),
    ),
    Case(
        "poll_interval_outlasts_triggers",
        "warning",
        configured(
            "kafka.options.max.poll.interval.ms='300000'",
            "ingest.trigger_interval=10 minutes",
            "batch.seal_wait=1 hour",
        ),
        "kafka.options.max.poll.interval.ms is '300000'",
        configured("kafka.options.max.poll.interval.ms='300000'"),
    ),
    Case(
        "logins_are_encrypted",
        "warning",
        configured("registry.url=http://registry:8081", "registry.secrets.basic.auth.user.info=a:b"),
        "registry.url is http://registry:8081, with a login (basic.auth.user.info): whoever listens",
        configured("registry.url=http://localhost:8081", "registry.secrets.basic.auth.user.info=a:b"),
    ),
    Case(
        "logins_are_encrypted",
        "warning",
        replace(SOUND, environment=tuple(plain_endpoints({"OPENLINEAGE_URL": "http://a:b@lineage:5000"}))),
        "OPENLINEAGE_URL is http://lineage:5000, with a login in the address: whoever listens",
        replace(SOUND, environment=tuple(plain_endpoints({"OPENLINEAGE_URL": "http://lineage:5000"}))),
    ),
    Case(
        "first_start_reads_all",
        "error",
        configured("kafka.starting_offsets=latest", streams={**STREAMS, "ingest": StreamFacts()}),
        "skip all records",
        configured("kafka.starting_offsets=latest"),
    ),
    Case("java_runs", "error", failed("runtime"), "does not answer"),
    Case("session_starts", "error", failed("session"), "does not answer"),
    Case(
        "jars_are_whole",
        "error",
        replace(SOUND, runtime=RuntimeFacts("Java 17", damaged_jars=("a.jar",))),
        "other bytes",
    ),
    Case(
        "jars_are_whole",
        "info",
        replace(SOUND, runtime=RuntimeFacts("Java 17", missing_jars=("a.jar",))),
        "1 jars",
    ),
    Case("clock_and_bronze", "error", tables(clock="the clock is behind"), "behind"),
    Case(
        "clock_and_store",
        "warning",
        replace(SOUND, store=StoreProbe(takes_over=False, is_clean=True, skew=timedelta(seconds=-90))),
        "90 s behind",
        replace(SOUND, store=StoreProbe(takes_over=False, is_clean=True, skew=timedelta(seconds=60))),
    ),
    Case(
        "clock_and_broker",
        "warning",
        described(appended_at=NOW + timedelta(seconds=61)),
        "61 s after",
        described(appended_at=NOW + timedelta(seconds=60)),
    ),
    Case("cluster_answers", "error", failed("topic"), "does not answer"),
    Case(
        "rights_suffice",
        "error",
        described(operations=frozenset({"DESCRIBE"})),
        "operations allowed: DESCRIBE",
        described(operations=None),
    ),
    Case("rights_suffice", "warning", described(settings={}), "lacks DescribeConfigs"),
    Case(
        "partitions_have_leaders",
        "error",
        replicated(Partition(4, None, (1, 2, 3), (1, 2, 3), 0)),
        "without a leader: 4",
    ),
    Case("replicas_are_in_sync", "warning", replicated(Partition(4, 1, (1, 2, 3), (1, 2), 0)), "in sync: 4"),
    Case(
        "replication_factor",
        "warning",
        replicated(Partition(0, 1, (1,), (1,), 0)),
        "1 replica, with 3 brokers",
        replicated(Partition(0, 1, (1,), (1,), 0), racks={1: "a"}),
    ),
    Case(
        "min_insync_replicas", "error", kept(min_insync_replicas="4"), "is 4, and a partition has 3 replicas"
    ),
    Case(
        "min_insync_replicas",
        "warning",
        kept(min_insync_replicas="1"),
        "is 1",
        replicated(Partition(0, 1, (1,), (1,), 0), racks={1: "a"}),
    ),
    Case("no_unclean_election", "warning", kept(unclean_leader_election_enable="true"), "is true"),
    Case(
        "retention_covers_runs",
        "error",
        stream("ingest", StreamFacts(True, run("ingest", previous_at=NOW - HOUR - 8 * DAY, **ONCE))),
        "is 7.0 d, and the time between two runs of ingest is 8.0 d",
    ),
    Case(
        "retention_covers_runs",
        "warning",
        stream("ingest", StreamFacts(True, run("ingest", previous_at=NOW - HOUR - 3 * DAY, **ONCE))),
        "is 3.0 d",
        stream("ingest", StreamFacts(True, run("ingest", previous_at=NOW - HOUR - 2 * DAY, **ONCE))),
    ),
    Case(
        "retention_covers_runs",
        "error",
        stream("ingest", StreamFacts(True, run("ingest", written_at=NOW - 8 * DAY))),
        "is 8.0 d",
        replace(
            kept(cleanup_policy="compact"),
            config=configured("audit.offset_gaps=warn").config,
            streams={**STREAMS, "ingest": StreamFacts(True, run("ingest", written_at=NOW - 8 * DAY))},
        ),
    ),
    Case("retention_is_by_time", "warning", kept(retention_bytes="1000"), "is 1,000: a burst deletes"),
    Case(
        "gaps_are_as_configured",
        "warning",
        kept(cleanup_policy="compact,delete"),
        "fail each audit",
        replace(kept(cleanup_policy="compact"), config=configured("audit.offset_gaps=warn").config),
    ),
    Case("gaps_are_as_configured", "warning", configured("audit.offset_gaps=warn"), "passes the audit"),
    Case(
        "topic_is_that_of_bronze",
        "error",
        tables(topic_id="other"),
        "filled from other",
        tables(topic_id=None),
    ),
    Case(
        "unread_records_are_there",
        "error",
        stream("ingest", replace(STREAMS["ingest"], read_until={0: 7, 1: 50})),
        "flights-0: 3",
        stream("ingest", replace(STREAMS["ingest"], read_until={0: 10, 2: 5})),
    ),
    Case(
        "kafka_has_what_was_read",
        "error",
        stream("ingest", replace(STREAMS["ingest"], read_until={1: 51})),
        "flights-1: 1",
        stream("ingest", replace(STREAMS["ingest"], read_until={1: 50, 2: 5})),
    ),
    Case("dead_letter_topic_is_there", "error", failed("dead_letters"), "does not answer"),
    Case(
        "dead_letters_fit",
        "warning",
        replace(SOUND, dead_letters=replace(TOPIC, name="broken")),
        "1,048,588 for topic broken",
    ),
    Case(
        "dead_letters_fit",
        "warning",
        replace(SOUND, dead_letters=replace(TOPIC, name="broken", settings={"max.message.bytes": "1000"})),
        "1,000 for topic broken",
        replace(SOUND, dead_letters=replace(TOPIC, name="broken", settings={})),
    ),
    Case(
        "bytes_stay_in_the_rack",
        "warning",
        configured(
            "kafka.rack.mode=client",
            topic=TopicFacts(TOPIC, replace(RACKED, selectors=dict.fromkeys(RACKED.racks, ""))),
        ),
        "replica.selector.class",
        configured("kafka.rack.mode=client"),
    ),
    Case(
        "bytes_stay_in_the_rack",
        "info",
        SOUND,
        "kafka.rack.mode: client would raise",
        replicated(*RACKED.partitions, racks={1: None, 2: None, 3: None}),
    ),
    Case("store_takes_commits", "error", failed("store"), "does not answer"),
    Case(
        "put_if_absent",
        "error",
        replace(SOUND, store=StoreProbe(takes_over=True, is_clean=True, skew=timedelta())),
        "written over",
    ),
    Case(
        "store_deletes",
        "warning",
        replace(SOUND, store=StoreProbe(takes_over=False, is_clean=False, skew=timedelta())),
        "still in",
    ),
    Case("commits_are_whole", "error", replace(SOUND, logs=("0.json",)), "0.json"),
    *(
        Case("tables_can_be_read", "error", failed(part), "does not answer")
        for part in get_args(Part)
        if part in {"streams", "logs", "tables", "nights", "lateness"}
    ),
    Case("tables_fit_checkpoints", "error", tables(misfits={"speed": "is behind"}), "is behind"),
    Case("rules_are_those_of_the_tables", "error", tables(rules=("another key",)), "another key"),
    Case("certified_version_is_there", "error", tables(certified="verdicts are gone"), "gone"),
    Case(
        "batch_layer_is_as_certified",
        "warning",
        tables(is_as_certified=False),
        "differs from its certified version",
        tables(is_as_certified=None),
    ),
    Case(
        "batch_layer_is_as_certified",
        "warning",
        tables(is_as_certified=False, lease=LEASE),
        "a run died",
        tables(is_as_certified=False, lease=replace(LEASE, is_gone=False)),
    ),
    Case("lease_is_not_left_over", "warning", tables(lease=LEASE), "its process is gone"),
    Case(
        "lease_is_not_left_over",
        "info",
        tables(lease=replace(LEASE, is_gone=False)),
        "until 2026-01-02 04:00:00 UTC",
    ),
    Case(
        "streams_ended_well",
        "error",
        stream("speed", StreamFacts(True, run("speed", failure="the disk is full"))),
        "speed_stream: the last run failed: the disk is full",
        stream("speed", StreamFacts(True, run("speed", ended_at=NOW))),
    ),
    Case(
        "streams_ended_well",
        "error",
        stream("ingest", replace(STREAMS["ingest"], refusal=Refusal(NOW, "no such topic", None))),
        "refused: no such topic",
    ),
    Case(
        "streams_are_at_work",
        "warning",
        stream("ingest", StreamFacts(True, KILLED, is_alive=False)),
        "ingest_stream: process 7 on host is gone, and has not said that it ended; it last wrote 3 min ago",
        stream("ingest", StreamFacts(True, KILLED, is_alive=True)),
    ),
    # On another machine nobody sees whether it lives: it writes twice a minute, if it can.
    Case(
        "streams_are_at_work",
        "warning",
        stream("ingest", StreamFacts(True, replace(KILLED, written_at=NOW - timedelta(seconds=321)))),
        "ingest_stream: process 7 on host has not said that it ended, and last wrote 5 min ago",
        stream("ingest", StreamFacts(True, replace(KILLED, written_at=NOW - timedelta(seconds=319)))),
    ),
    Case(
        "streams_are_at_work",
        "warning",
        stream("ingest", StreamFacts(True, replace(KILLED, trigger_s=0.0), is_alive=False)),
        "is gone",
        # Why the next start was refused is told already.
        stream("ingest", StreamFacts(True, KILLED, Refusal(NOW, "no such topic", NOW), is_alive=False)),
    ),
    Case(
        "streams_are_at_work",
        "warning",
        stream("speed", StreamFacts(True, run("speed", written_at=NOW - DAY), is_alive=False)),
        "speed_stream: process 7 on host is gone",
        stream("speed", StreamFacts(True, run("speed", written_at=NOW - DAY, ended_at=NOW - DAY))),
    ),
    Case(
        "streams_move",
        "warning",
        stream("publish", StreamFacts(True, STUCK, is_alive=True)),
        "publish_stream: process 7 on host lives, and no task and no micro-batch has ended for 9 min",
        stream("publish", StreamFacts(True, replace(STUCK, ended_at=NOW))),
    ),
    Case(
        "streams_move",
        "warning",
        stream("publish", StreamFacts(True, STUCK)),
        "for 9 min",
        # A micro-batch each hour.
        stream("publish", StreamFacts(True, replace(STUCK, trigger_s=3_600.0))),
    ),
    Case(
        "poll_interval_outlasts_batches",
        "warning",
        configured(
            "kafka.options.max.poll.interval.ms='60000'",
            streams={**STREAMS, "ingest": replace(STREAMS["ingest"], progress=run("ingest", 2, 61))},
        ),
        "a micro-batch of ingest_stream took 61 s",
        configured("kafka.options.max.poll.interval.ms='60000'"),
    ),
    Case(
        "days_are_certified",
        "warning",
        replace(SOUND, nights=NightFacts((date(2026, 1, 1),), NOW, NOW)),
        "1 days did not pass",
    ),
    Case(
        "nights_run",
        "warning",
        replace(SOUND, nights=NightFacts((), NOW - 61 * HOUR, NOW)),
        "2.5 d ago",
        replace(SOUND, nights=NightFacts((), NOW - 61 * HOUR, NOW - 62 * HOUR)),
    ),
    Case(
        "nights_run",
        "warning",
        replace(SOUND, nights=NightFacts((), None, NOW, bronze_since=NOW - 133 * HOUR)),
        "no verdict was ever given, and bronze has had a table with records for 5.5 d",
        replace(SOUND, nights=NightFacts((), None, NOW, bronze_since=NOW - 131 * HOUR)),
    ),
    Case(
        "watermark_covers_lateness",
        "warning",
        replace(SOUND, lateness=LatenessFacts(1_000, 11, timedelta(hours=7, minutes=1))),
        "11 of 1,000 records of the last month",
        replace(SOUND, lateness=LatenessFacts(99, 99, DAY)),
    ),
    Case(
        "watermark_covers_lateness",
        "warning",
        stream("speed", StreamFacts(True, run("speed", 2, 3, late=11))),
        "22 of 2,000 records of the last micro-batches",
        stream("speed", StreamFacts(True, run("speed", 2, 3, late=10))),
    ),
    Case(
        "watermark_covers_lateness",
        "warning",
        replace(SOUND, nights=NightFacts((), NOW, NOW, 11, 1_000), lateness=None),
        "11 of 1,000 events of certified days",
    ),
    Case("output_cluster_answers", "error", failed("output"), "does not answer"),
    Case(
        "cluster_is_set_for_publishing",
        "warning",
        replace(SOUND, output=replace(SOUND.output, advice=("1 replica",))),  # type: ignore[type-var]
        "1 replica",
    ),
    Case(
        "transactions_are_allowed",
        "error",
        replace(SOUND, output=replace(SOUND.output, transactions="15 minutes at most")),  # type: ignore[type-var]
        "15 minutes",
    ),
    Case(
        "slots_have_partitions",
        "warning",
        configured("publish.slots=3"),
        "publish.slots is 3, and topic out has 2",
    ),
    Case(
        "rows_fit_the_topic",
        "warning",
        configured("publish.options.message.max.bytes='2000000'"),
        "is 1,048,588, and message.max.bytes of the producer 2,000,000",
    ),
    Case(
        "rows_fit_the_topic",
        "info",
        kept(max_message_bytes="9000000"),
        "is 9,000,000",
    ),
    Case(
        "transactions_outlast_batches",
        "warning",
        stream("publish", StreamFacts(True, run("publish", 2, 151))),
        "took 3 min",
        stream("publish", StreamFacts(True, run("publish", 2, 150))),
    ),
    Case(
        "progress_agrees",
        "error",
        replace(SOUND, publishing=PublishingFacts("progress is ahead")),
        "progress is ahead",
    ),
]
