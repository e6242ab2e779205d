"""A request that ends a transaction and arrives late ends no other: each row once for committed readers."""

import os
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from pipelines.publishing.slots import SlotProgress
from pipelines.publishing.transactional_sink import TransactionalSink, publish_rows
from tests.support.kafka import make_topic
from tests.support.readers import messages_of
from tests.support.transaction_proxy import TransactionProxy, transaction_proxy

ROWS, BATCHES = 40, 3
INVALID_PRODUCER_EPOCH, PRODUCER_FENCED = 47, 90


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TransactionProxy]:
    with transaction_proxy(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.mark.parametrize(
    "as_abort", [pytest.param(False, id="commit"), pytest.param(True, id="abort", marks=pytest.mark.thorough)]
)
def test_a_late_end_of_a_transaction_ends_no_later_one(
    spark: SparkSession, proxy: TransactionProxy, as_abort: bool
) -> None:
    name = f"late-{os.urandom(4).hex()}"
    admin = AdminClient({"bootstrap.servers": proxy.direct})
    for fresh in (name, f"{name}-progress"):
        make_topic(admin, NewTopic(fresh, 1, 1))
    # Rows go in several requests, so that the late one can come between two.
    one_by_one = {"batch.num.messages": 5, "linger.ms": 0, "max.in.flight.requests.per.connection": 1}
    client = {"bootstrap.servers": proxy.servers, **one_by_one}
    sink = TransactionalSink(name, name, 1, client, progress_topic=f"{name}-progress")

    def publish(batch: int) -> None:
        rows = spark.range(batch * ROWS, (batch + 1) * ROWS).selectExpr(
            "CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value"
        )
        # As a stream does that is started again.
        for left in reversed(range(3)):
            try:
                publish_rows(rows, sink, SlotProgress(batch + 1, "query", "topic", 1), is_new=batch == 0)
                return
            except PythonException:
                if not left:
                    raise

    publish(0)
    proxy.hold_next(arrives_before=4, as_abort=as_abort)
    publish(1)
    assert proxy.is_holding, "the client has not sent it again"
    publish(2)
    # So the tests can fail: it did arrive, and was refused.
    assert proxy.answer is not None
    found = Counter(message.key for message in messages_of(proxy.direct, name))
    assert found == Counter(str(number).encode() for number in range(BATCHES * ROWS))
    assert proxy.answer in (INVALID_PRODUCER_EPOCH, PRODUCER_FENCED)
