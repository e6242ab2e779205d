"""Failures of publishing in words."""

import re
from typing import Final

from pipelines.errors import InfrastructureError, OncelakeError, SourceError
from pipelines.sinks.kafka_transactional import TransactionalSink

_PROGRESS: Final = re.compile(r"ProgressError: (?P<said>[^\n]*)")
_KAFKA: Final = re.compile(r"KafkaException: (?P<said>[^\n]*)")


def explained(text: str, error: OncelakeError, sink: TransactionalSink) -> OncelakeError:
    """A failure in words: what a task raised stands in a trace.

    Args:
        text: what Spark says.
        error: what is to be said if the text tells nothing.
        sink: where rows were to go.
    """
    if found := _PROGRESS.search(text):
        return SourceError(
            f"{sink.name}: {found['said']}. Does another deployment publish under the same pipeline and"
            " environment? oncelake publish status tells what both say"
        )
    if "DELTA_SCHEMA_CHANGED" in text:
        return InfrastructureError(
            f"{sink.name}: the speed layer has got other columns while it was read; start again"
        )
    if found := _KAFKA.search(text):
        return InfrastructureError(
            f"{sink.name}: Kafka refused, or did not answer: {found['said']}. What was not committed is"
            " rolled back: start again when the cause is mended"
        )
    return error
