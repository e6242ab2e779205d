"""Checks of each cluster and its topic: does it keep records until they are read, and may we read them?"""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Final

from pipelines.config.commands import command
from pipelines.doctor.check_list import CheckRegistrar
from pipelines.doctor.findings import Finding
from pipelines.doctor.pipeline_facts import PipelineFacts, StreamFacts, TopicFacts
from pipelines.durations import about
from pipelines.kafka.dead_letters import HEADERS_SIZE
from pipelines.kafka.setting_names import (
    CLEANUP,
    IN_SYNC,
    LARGEST,
    RETENTION,
    RETENTION_BYTES,
    UNCLEAN,
)
from pipelines.racks.advice import advise

_KEPT: Final = "How the topic is kept"
_RUNS: Final = 3
_MOST: Final = 10

_CHECKS: Final = CheckRegistrar("cluster", ("topic",), scope="cluster")
_CHECKS.register_probe_failure(
    "cluster_answers",
    "Does the cluster answer, and is there the topic?",
    "The cluster does not answer",
    "check that the cluster is up, and that this machine can reach it",
    "topic",
)


@_CHECKS.check(
    "rights_suffice", "May this client read the topic and its settings?", "error", "Rights on the cluster"
)
def _rights_suffice(facts: PipelineFacts) -> Iterator[Finding]:
    topic = _topic(facts).description
    grant = "let an administrator grant it: kafka-acls.sh --add --allow-principal User:NAME --operation"
    if topic.operations is not None and "READ" not in topic.operations:
        yield Finding(
            "error",
            f"topic {topic.name}: operations allowed: {_words(sorted(topic.operations)) or 'none'}",
            "Read on the topic, without which ingest cannot start",
            f"{grant} Read --topic {topic.name}",
        )
    if not topic.settings:
        yield Finding(
            "warning",
            f"topic {topic.name}: this client lacks DescribeConfigs, so its retention is not checked",
            "DescribeConfigs on the topic",
            f"{grant} DescribeConfigs --topic {topic.name}",
        )


@_CHECKS.check("partitions_have_leaders", "Has each partition a leader?", "error", _KEPT)
def _partitions_have_leaders(facts: PipelineFacts) -> Iterator[Finding]:
    topic = _topic(facts)
    if offline := [each.number for each in topic.racked.partitions if each.leader is None]:
        yield Finding(
            "error",
            f"topic {topic.racked.name}: partitions without a leader: {_words(offline)}",
            "a leader for each, without which nothing is read or written",
            "bring their brokers back",
        )


@_CHECKS.check("replicas_are_in_sync", "Are all replicas in sync?", "warning", _KEPT)
def _replicas_are_in_sync(facts: PipelineFacts) -> Iterator[Finding]:
    topic = _topic(facts)
    behind = [each.number for each in topic.racked.partitions if len(each.in_sync) < len(each.replicas)]
    if behind:
        yield Finding(
            "warning",
            f"topic {topic.racked.name}: partitions with replicas that are not in sync: {_words(behind)}",
            "all in sync",
            "see logs and disks of these brokers",
        )


@_CHECKS.check("replication_factor", "Does each partition survive the loss of a broker?", "warning", _KEPT)
def _replication_factor(facts: PipelineFacts) -> Iterator[Finding]:
    topic = _topic(facts)
    # A single broker has no place for a second replica.
    if topic.replicas == 1 and topic.brokers > 1:
        yield Finding(
            "warning",
            f"topic {topic.racked.name}: a partition has 1 replica, with {topic.brokers} brokers",
            "3 replicas are usual",
            "add replicas with kafka-reassign-partitions.sh",
        )


@_CHECKS.check("min_insync_replicas", "Does min.insync.replicas fit the number of replicas?", "error", _KEPT)
def _min_insync_replicas(facts: PipelineFacts) -> Iterator[Finding]:
    topic = _topic(facts)
    least, name = topic.description.number(IN_SYNC), topic.racked.name
    if least is None or topic.replicas < 2:
        return
    if least > topic.replicas:
        yield Finding(
            "error",
            f"topic {name}: {IN_SYNC} is {least}, and a partition has {topic.replicas} replicas",
            f"{topic.replicas} at most: otherwise producers with acks=all are refused",
            f"set {IN_SYNC} to {topic.replicas - 1}, or add replicas",
        )
    elif least == 1:
        yield Finding(
            "warning",
            f"topic {name}: {IN_SYNC} is 1: records that one broker has count as sent, and are lost with it",
            "2, with 3 replicas",
            f"set {IN_SYNC} of the topic to 2",
        )


@_CHECKS.check(
    "no_unclean_election",
    "Can no replica become the leader that lacks records?",
    "warning",
    "Kafka has lost what bronze has",
)
def _no_unclean_election(facts: PipelineFacts) -> Iterator[Finding]:
    topic = _topic(facts).description
    if topic.settings.get(UNCLEAN) == "true":
        yield Finding(
            "warning",
            f"topic {topic.name}: {UNCLEAN} is true: a replica that lacks records may become the leader, and"
            " others get their offsets",
            "false",
            f"set {UNCLEAN} of the topic to false",
        )


@CheckRegistrar("cluster", ("topic", "streams"), scope="cluster").check(
    "retention_covers_runs",
    "Does the topic keep records for longer than ingest takes from run to run?",
    "error",
    "How the topic is kept",
    "retention_under_run_interval",
)
def _retention_covers_runs(facts: PipelineFacts) -> Iterator[Finding]:
    topic = _topic(facts).description
    kept_ms, step = topic.number(RETENTION), _between_runs(facts)
    if kept_ms is None or kept_ms < 0 or "delete" not in topic.settings.get(CLEANUP, "delete"):
        return
    kept = timedelta(milliseconds=kept_ms)
    if kept >= _RUNS * step:
        return
    between = f"the time between two runs of ingest is {about(step.total_seconds())}"
    yield Finding(
        "error" if kept < step else "warning",
        f"topic {topic.name}: {RETENTION} is {about(kept.total_seconds())}, and {between}",
        f"{_RUNS} times that, so that a run may fail",
        f"set {RETENTION} of the topic to {_RUNS * step // timedelta(milliseconds=1)} or more, or run ingest"
        " more often",
    )


@_CHECKS.check("retention_is_by_time", "Are records deleted by their age alone?", "warning", _KEPT)
def _retention_is_by_time(facts: PipelineFacts) -> Iterator[Finding]:
    topic = _topic(facts).description
    size = topic.number(RETENTION_BYTES)
    if size is not None and size >= 0 and "delete" in topic.settings.get(CLEANUP, "delete"):
        yield Finding(
            "warning",
            f"topic {topic.name}: {RETENTION_BYTES} is {size:,}: a burst deletes records of any age",
            "-1, so that retention.ms decides",
            f"set {RETENTION_BYTES} of the topic to -1, or alert on the lag of ingest",
        )


@_CHECKS.check(
    "gaps_are_as_configured",
    "Does audit.offset_gaps fit how the topic is cleaned?",
    "warning",
    "Audit failed",
)
def _gaps_are_as_configured(facts: PipelineFacts) -> Iterator[Finding]:
    topic, gaps = _topic(facts).description, facts.config.audit.offset_gaps
    cleanup = topic.settings.get(CLEANUP)
    if cleanup and "compact" in cleanup and gaps == "fail":
        yield Finding(
            "warning",
            f"topic {topic.name}: {CLEANUP} is {cleanup}, and audit.offset_gaps is fail: gaps of compaction"
            " fail each audit",
            "audit.offset_gaps: warn for a compacted topic",
            "set audit.offset_gaps to warn, or do not compact the topic",
        )
    elif cleanup and "compact" not in cleanup and gaps == "warn":
        yield Finding(
            "warning",
            f"topic {topic.name}: {CLEANUP} is {cleanup}, and audit.offset_gaps is warn: a loss of records"
            " passes the audit",
            "audit.offset_gaps: fail, unless producers use transactions",
            "set audit.offset_gaps to fail; accept single losses in audit.known_gaps",
        )


@CheckRegistrar("cluster", ("topic", "tables"), scope="cluster").check(
    "topic_is_that_of_bronze",
    "Is the topic the one that bronze was filled from?",
    "error",
    "The topic was recreated",
)
def _topic_is_that_of_bronze(facts: PipelineFacts) -> Iterator[Finding]:
    topic, stored = _topic(facts).description, facts.tables and facts.tables.topic_id
    if stored and stored != topic.topic_id:
        yield Finding(
            "error",
            f"topic {topic.name} has id {topic.topic_id}, and bronze was filled from {stored}",
            "the same topic: it was deleted and recreated, or the address is that of another cluster",
            "fix the address; or give the new topic a pipeline of its own",
        )


@CheckRegistrar("cluster", ("topic", "streams"), scope="cluster").check(
    "unread_records_are_there",
    "Does Kafka still have what ingest has not read?",
    "error",
    "Offsets are gone",
)
def _unread_records_are_there(facts: PipelineFacts) -> Iterator[Finding]:
    topic = _topic(facts).description
    lost = {
        number: earliest - at
        for number, at in _ingest(facts).read_until.items()
        if (earliest := topic.earliest.get(number, at)) > at
    }
    if lost:
        where = _words(f"{topic.name}-{number}: {count:,}" for number, count in sorted(lost.items()))
        yield Finding(
            "error",
            f"offsets that Kafka has deleted before ingest read them: {where}",
            "all offsets since the last micro-batch of ingest",
            f"find out what is missing: {command(facts.config, 'reconcile')}; then continue with a new"
            " checkpoint",
        )


@CheckRegistrar("cluster", ("topic", "streams"), scope="cluster").check(
    "kafka_has_what_was_read",
    "Does Kafka's log reach as far as ingest has read?",
    "error",
    "Kafka has lost what bronze has",
)
def _kafka_has_what_was_read(facts: PipelineFacts) -> Iterator[Finding]:
    topic = _topic(facts).description
    ahead = {
        number: at - end
        for number, at in _ingest(facts).read_until.items()
        if (end := topic.ends.get(number, at)) < at
    }
    if ahead:
        where = _words(f"{topic.name}-{number}: {count:,}" for number, count in sorted(ahead.items()))
        yield Finding(
            "error",
            f"offsets that ingest has read and Kafka does not have: {where}",
            "end offsets behind those that were read",
            "stop ingest, and find out what the cluster has lost, before producers fill these offsets again",
        )


_DEAD_LETTERS: Final = CheckRegistrar("cluster", ("topic", "dead_letters"))
_DEAD_LETTERS.register_probe_failure(
    "dead_letter_topic_is_there",
    "Is there the topic of quarantine.dead_letter_topic?",
    "The cluster does not answer",
    "create the topic",
    "dead_letters",
)


@_DEAD_LETTERS.check(
    "dead_letters_fit", "Does the dead-letter topic take the largest record of the topic?", "warning", _KEPT
)
def _dead_letters_fit(facts: PipelineFacts) -> Iterator[Finding]:
    topic, copies = _topic(facts).description, facts.dead_letters
    source, target = topic.number(LARGEST), copies.number(LARGEST) if copies else None
    if copies and source is not None and target is not None and target < source + HEADERS_SIZE:
        yield Finding(
            "warning",
            f"{LARGEST} is {target:,} for topic {copies.name}, and {source:,} for topic {topic.name}: a"
            " large broken record would stop speed_stream",
            f"{source + HEADERS_SIZE:,} at least: a copy has more headers than its record",
            f"raise {LARGEST} of topic {copies.name}",
        )


@CheckRegistrar("racks", ("topic",), "docs/racks.md", "cluster").check(
    "bytes_stay_in_the_rack",
    "Could more bytes stay within the rack (`oncelake rack doctor`)?",
    "warning",
    "What it needs",
)
def _bytes_stay_in_the_rack(facts: PipelineFacts) -> Iterator[Finding]:
    topic, rack = _topic(facts).racked, facts.config.kafka.rack
    racks = sorted({rack for rack in topic.racks.values() if rack})
    if rack.is_off and not racks:
        return
    for hint in advise(topic, racks, rack.mode).hints:
        yield Finding(
            "info" if rack.is_off else "warning",
            hint,
            "each byte read in its own rack",
            # That command looks at pipelines with one cluster.
            "see docs/racks.md; the console shows the shares of each cluster"
            if facts.cluster
            else f"see {command(facts.config, 'rack doctor')}",
        )


def _topic(facts: PipelineFacts) -> TopicFacts:
    if facts.topic is None:
        raise ValueError("the check does not say that it needs the topic")
    return facts.topic


def _ingest(facts: PipelineFacts) -> StreamFacts:
    return (facts.streams or {}).get("ingest", StreamFacts())


def _between_runs(facts: PipelineFacts) -> timedelta:
    """Return the time from one run of ingest to the next, or since the last one, whichever is longer."""
    progress = _ingest(facts).progress
    if progress is None:
        return facts.config.ingest.trigger_interval
    step = timedelta(seconds=progress.trigger_s)
    if not progress.trigger_s and progress.previous_at:
        step = progress.started_at - progress.previous_at
    return max(step, facts.at - (progress.ended_at or progress.written_at))


def _words(items: Iterable[object]) -> str:
    texts = [str(item) for item in items]
    return ", ".join(texts[:_MOST]) + (" and more" if len(texts) > _MOST else "")
