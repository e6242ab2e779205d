"""Failures of publishing in words."""

import re
from typing import Final

from pipelines.durations import format_interval
from pipelines.errors import InfrastructureError, OncelakeError, SourceError
from pipelines.publishing.transactional_sink import TransactionalSink
from pipelines.spark.failures import TABLE_IS_GONE, first_line

_PROGRESS: Final = re.compile(r"(?:Progress|Unreadable)Error: (?P<said>[^\n]*)")
_CONTENT: Final = re.compile(r"ContentError: (?P<said>[^\n]*)")
_TOO_LATE: Final = re.compile(r"UnsentError: (?P<said>[^\n]*)")
_KAFKA: Final = re.compile(r"KafkaException: (?P<said>[^\n]*)")
# The errors of a producer whose transaction was ended by the cluster, or by another producer.
_ENDED: Final = re.compile(r"_FENCED|INVALID_PRODUCER_EPOCH|INVALID_TXN_STATE|_TIMED_OUT")
_TOO_LARGE: Final = re.compile(r"MSG_SIZE_TOO_LARGE|[Mm]essage size too large")
# What librdkafka says where an offset is in a transaction that does not end (KIP-447).
_UNSTABLE: Final = "committed offsets"
_GONE: Final = re.compile(rf"[^\n]*(?:{TABLE_IS_GONE})[^\n]*")


def explained(text: str, error: OncelakeError, sink: TransactionalSink) -> OncelakeError:
    """Return a failure in words: what a task raised is in a trace.

    Args:
        text: What Spark says.
        error: What is to be said if the text does not help.
        sink: Where rows were to go.
    """
    if match := _PROGRESS.search(text) or _CONTENT.search(text):
        another = (
            ". Does another deployment publish under the same pipeline and environment? To see progress and"
            f" checkpoint, run: {sink.command('publish status')}"
        )
        why = "" if match.re is _CONTENT else another
        return SourceError(f"{sink.name}: {match['said']}{why}")
    if "DELTA_SCHEMA_CHANGED" in text:
        return InfrastructureError(
            f"{sink.name}: the columns of the speed layer were changed while it was read; start again"
        )
    longer = (
        f"publish.transaction_timeout (found {format_interval(sink.transaction_timeout)}), up to the brokers'"
        " transaction.max.timeout.ms"
    )
    if match := _TOO_LATE.search(text):
        return InfrastructureError(
            f"{sink.name}: {match['said']}: raise {longer}; or raise publish.slots,"
            f" while no slot has published any of this micro-batch ({sink.command('publish status')})"
        )
    if match := _KAFKA.search(text):
        return InfrastructureError(f"{sink.name}: {_refused(match['said'], longer)}")
    if match := _GONE.search(text):
        return SourceError(
            f"{sink.name}: what has to be published next is gone from the speed layer or the batch layer."
            f" See docs/publishing.md, 'When versions are gone'. Spark says: {first_line(match[0])}"
        )
    return error


def _refused(said: str, longer: str) -> str:
    """Return what a refusal of Kafka means.

    Args:
        said: By librdkafka.
        longer: The setting that gives transactions more time.
    """
    if _UNSTABLE in said:
        return (
            f"the progress of a slot cannot be read: {said}. If the cluster answers otherwise, a transaction"
            " of an earlier task hangs. See docs/publishing.md, 'A transaction that hangs'"
        )
    if _TOO_LARGE.search(said):
        return (
            f"a row is larger than the output topic, or message.max.bytes in publish.options, allows:"
            f" {said}. What was not committed is rolled back. Raise max.message.bytes of the topic, or that"
            " option, and start again"
        )
    why = (
        f" If it ends so each time and no other job publishes, micro-batches take too long: raise {longer}"
        if _ENDED.search(said)
        else ""
    )
    return (
        f"Kafka refused, or did not answer: {said}. What was not committed is rolled back: fix the cause and"
        f" start again.{why}"
    )
