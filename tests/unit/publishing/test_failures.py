"""What a failure of publishing says, and what it advises."""

import pytest

from pipelines.errors import InfrastructureError, OncelakeError, SourceError
from pipelines.publishing.failures import explained
from pipelines.publishing.transactional_sink import TransactionalSink

SINK = TransactionalSink("oncelake.local.flights", "events", 3, {"bootstrap.servers": "localhost:1"})
UNKNOWN = InfrastructureError("nobody knows")
TRACE = 'Traceback (most recent call last):\n  File "slot_writer.py", line 1, in write_slot\n'


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (
            "pipelines.publishing.slots.ProgressError: it belongs to another stream",
            SourceError,
            "it belongs to another stream. Does",
        ),
        (
            "pipelines.publishing.slots.UnsentError: slot 1: the brokers did not accept 7 rows in time",
            InfrastructureError,
            "did not accept 7 rows in time: raise publish.transaction_timeout (found 5 minutes)",
        ),
        (
            'cimpl.KafkaException: KafkaError{code=_FENCED,str="fenced"}',
            InfrastructureError,
            "micro-batches take too long: raise publish.transaction_timeout (found 5 minutes)",
        ),
        (
            'cimpl.KafkaException: KafkaError{code=_TIMED_OUT,str="Failed to get committed offsets: T"}',
            InfrastructureError,
            "a transaction of an earlier task hangs. See docs/publishing.md, 'A transaction that hangs'",
        ),
        (
            'cimpl.KafkaException: KafkaError{code=TOPIC_AUTHORIZATION_FAILED,str="no"}',
            InfrastructureError,
            "fix the cause and start again.",
        ),
        (
            "[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file /lake/speed/x.parquet",
            SourceError,
            "See docs/publishing.md, 'When versions are gone'",
        ),
    ],
)
def test_a_failure_says_what_to_do(text: str, kind: type[OncelakeError], said: str) -> None:
    told = explained(TRACE + text + "\n\tat org.apache.spark", UNKNOWN, SINK)
    assert type(told) is kind
    assert said in str(told)
    assert "Traceback" not in str(told)


def test_only_a_transaction_that_was_ended_is_advised_to_last_longer() -> None:
    refused = explained('KafkaException: KafkaError{code=TOPIC_AUTHORIZATION_FAILED,str="no"}', UNKNOWN, SINK)
    assert "transaction_timeout" not in str(refused)


def test_other_slots_are_advised_only_where_a_start_takes_them() -> None:
    late = explained("UnsentError: slot 1: the brokers did not accept 7 rows in time", UNKNOWN, SINK)
    assert "; or raise publish.slots, while no slot has published any of this micro-batch" in str(late)


def test_what_is_not_known_is_said_as_it_is() -> None:
    assert explained("java.lang.OutOfMemoryError", UNKNOWN, SINK) is UNKNOWN
