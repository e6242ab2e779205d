"""Whatever timestamp a record has, ingest reads it and what comes after it, and each day can be sealed."""

from collections.abc import Callable

import pytest

from pipelines.errors import SourceError
from pipelines.kafka.backlog import backlog
from pipelines.kafka.source import envelopes_between
from pipelines.ledger.leases import lease
from pipelines.nightly.seal import seal
from pipelines.steps.ingest import ingest
from pipelines.steps.reconcile import reconcile
from tests.support.kafka import MakeTopic, ordered_producer
from tests.support.lakes import Lake, flight
from tests.support.nights import ONE, stream

MakeLake = Callable[..., Lake]
# As brokers before Kafka 4.0 have it.
TAKES_ANY = {f"message.timestamp.{side}.max.ms": str(2**63 - 1) for side in ("before", "after")}
LAST_MS = (2**63 - 1) // 1000
GOOD = 1_357_041_600_000


def send(broker: str, topic: str, *timestamps: int) -> None:
    producer = ordered_producer(broker)
    for n, timestamp in enumerate(timestamps):
        headers: dict[str, str | bytes | None] = {"sent": str(timestamp)}
        producer.produce(
            topic, flight(flight=n + 1), key="k", partition=0, timestamp=timestamp, headers=headers
        )
        assert producer.flush(60) == 0


def stamps(lake: Lake) -> list[tuple[str, int]]:
    rows = lake.table("bronze").orderBy("_offset")
    found = rows.selectExpr("CAST(headers[0].value AS STRING) AS sent", "unix_millis(_kafka_timestamp) AS ms")
    return [(row["sent"], row["ms"]) for row in found.collect()]


@pytest.mark.usefixtures("two_partitions")
def test_a_timestamp_that_spark_cannot_hold_stops_nothing(
    broker: str, topic: MakeTopic, make_lake: MakeLake
) -> None:
    name = topic(partitions=1, **TAKES_ANY)
    settings = (f"kafka.bootstrap_servers={broker}", f"kafka.topic={name}", "batch.seal_wait=0 seconds")
    lake = make_lake(*settings, "batch.seal_by=kafka", "kafka.max_offsets_per_trigger=1000")
    send(broker, name, GOOD)
    ingest(lake.pipeline, once=True)
    sent = (LAST_MS, 10**18, 2**63 - 1, GOOD)
    send(broker, name, *sent[:1])
    # Dates of Python end with the year 9999.
    behind = backlog(lake.pipeline).partitions[0]
    assert (behind.unread, behind.first_at) == (1, None)
    send(broker, name, *sent[1:])

    # Each of these asks Kafka for the records.
    with (
        lease(lake.pipeline, "before") as held,
        pytest.raises(SourceError, match=r"lacks records in offsets 1\.\.4"),
    ):
        seal(lake.pipeline, ONE, held)
    assert [(each.kind, each.offsets) for each in reconcile(lake.pipeline).findings] == [("lag", 4)]
    between = envelopes_between(lake.spark, lake.config.kafka, {0: range(1, 4)})
    assert between.where(f"unix_millis(_kafka_timestamp) = {LAST_MS}").count() == 3

    assert ingest(lake.pipeline, once=True).records == 4
    expected = [(str(GOOD), GOOD), *((str(each), min(each, LAST_MS)) for each in sent)]
    assert stamps(lake) == expected
    assert reconcile(lake.pipeline).findings == []
    with lease(lake.pipeline, "after") as held:
        assert seal(lake.pipeline, ONE, held).total() == 5
    # The last record of bronze is compared with Kafka's.
    send(broker, name, 10**18)
    assert ingest(lake.pipeline, once=True).records == 1
    assert ingest(lake.pipeline, once=True).records == 0
    counts = stream(lake).counts
    assert (counts.records, counts.quarantined, counts.late) == (6, 0, 0)

    placed = make_lake(*settings, "kafka.rack.mode=placement", f"lake.root={lake.config.root}2")
    ingest(placed.pipeline, once=True)
    assert stamps(placed) == [*expected, (str(10**18), LAST_MS)]
