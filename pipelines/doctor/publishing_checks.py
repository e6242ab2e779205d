"""Checks of publishing: the cluster of the output topic, the slots, and the progress."""

from collections.abc import Iterator
from typing import Final

from pipelines.config.streams import Query
from pipelines.doctor.check_list import PUBLISHING, CheckRegistrar
from pipelines.doctor.findings import Finding
from pipelines.doctor.lake_checks import longest_batch
from pipelines.doctor.pipeline_facts import PipelineFacts, StreamFacts
from pipelines.durations import about, format_interval
from pipelines.kafka.setting_names import LARGEST
from pipelines.publishing.slot_connections import LARGEST_SENT

_TURN_ON: Final = "Turn it on"

_CHECKS: Final = CheckRegistrar("publishing", ("output",), PUBLISHING)
_CHECKS.register_probe_failure(
    "output_cluster_answers",
    "Does the cluster of the output topic answer, and is there the topic?",
    _TURN_ON,
    "check publish.bootstrap_servers and publish.options",
    "output",
    "publishing",
)


@_CHECKS.check(
    "cluster_is_set_for_publishing",
    "Are limits, topic and replicas fit for publishing (`oncelake publish doctor`)?",
    "warning",
    _TURN_ON,
)
def _cluster_is_set_for_publishing(facts: PipelineFacts) -> Iterator[Finding]:
    for warning in facts.output.advice if facts.output else ():
        yield Finding("warning", warning, "a cluster that loses no row", "see the message")


@_CHECKS.check(
    "transactions_are_allowed",
    "Does the cluster allow transactions as long as publish.transaction_timeout?",
    "error",
    _TURN_ON,
)
def _transactions_are_allowed(facts: PipelineFacts) -> Iterator[Finding]:
    if facts.output and facts.output.transactions:
        yield Finding("error", facts.output.transactions, "the limit of the cluster", "shorten it")


@_CHECKS.check(
    "slots_have_partitions",
    "Has each slot a partition?",
    "warning",
    _TURN_ON,
    "slots_over_partitions",
)
def _slots_have_partitions(facts: PipelineFacts) -> Iterator[Finding]:
    publish, output = facts.config.publish, facts.output
    if publish and output and 0 < output.cluster.partitions < publish.slots:
        yield Finding(
            "warning",
            f"publish.slots is {publish.slots}, and topic {publish.topic} has {output.cluster.partitions}"
            " partitions: the other slots begin transactions that hold nothing",
            f"{output.cluster.partitions} at most",
            f"set publish.slots to {output.cluster.partitions} while no micro-batch is in flight",
        )


@_CHECKS.check("rows_fit_the_topic", "Does the output topic take the largest row?", "warning", _TURN_ON)
def _rows_fit_the_topic(facts: PipelineFacts) -> Iterator[Finding]:
    publish = facts.config.publish
    limit = facts.output.cluster.max_message_bytes if facts.output else None
    if publish is None or limit is None:
        return
    sent = publish.options.get("message.max.bytes", "")
    largest = int(sent) if sent.isdecimal() else LARGEST_SENT
    read = facts.topic.description.number(LARGEST) if facts.topic else None
    if sent and limit < largest:
        yield Finding(
            "warning",
            f"{LARGEST} of topic {publish.topic} is {limit:,}, and message.max.bytes of the producer"
            f" {largest:,}: the cluster refuses what the producer sends",
            f"{largest:,} at least",
            f"raise {LARGEST} of topic {publish.topic}, or set message.max.bytes in publish.options",
        )
    elif read is not None and read > min(limit, largest):
        yield Finding(
            "info",
            f"{LARGEST} of topic {facts.config.kafka.topic} is {read:,}, and {min(limit, largest):,} can be"
            " published",
            "as much, if events are that large",
            f"raise {LARGEST} of topic {publish.topic}, and message.max.bytes if publish.options has it",
        )


@CheckRegistrar("publishing", ("output", "streams"), PUBLISHING).check(
    "transactions_outlast_batches",
    "Is publish.transaction_timeout longer than the micro-batches?",
    "warning",
    "What transactions cost",
)
def _transactions_outlast_batches(facts: PipelineFacts) -> Iterator[Finding]:
    query: Query = "publish"
    publish, longest = (
        facts.config.publish,
        longest_batch((facts.streams or {}).get(query, StreamFacts())),
    )
    if publish and longest * 2 > publish.transaction_timeout:
        yield Finding(
            "warning",
            f"a micro-batch took {about(longest.total_seconds())}, and publish.transaction_timeout is"
            f" {format_interval(publish.transaction_timeout)}",
            "twice as long as a micro-batch: brokers abort what takes longer",
            "raise publish.transaction_timeout; or lower publish.max_bytes_per_trigger, by which later"
            " micro-batches are planned",
        )


@CheckRegistrar("publishing", ("publishing",), PUBLISHING).check(
    "progress_agrees",
    "Do the checkpoint of publish_stream and the progress in the cluster agree?",
    "error",
    "Refused at the start, with exit code 4",
)
def _progress_agrees(facts: PipelineFacts) -> Iterator[Finding]:
    if facts.publishing and facts.publishing.problem:
        yield Finding(
            "error", facts.publishing.problem, "checkpoint and progress of one history", "see the message"
        )
