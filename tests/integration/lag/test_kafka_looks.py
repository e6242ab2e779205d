"""A look at Kafka's records names the keys that make a partition hot, and finds quotas."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from pipelines.kafka.admin import admin_client
from pipelines.kafka.fetches import sampled_records
from pipelines.lag.diagnosis import Symptom
from pipelines.lag.stage_facts import StageFacts
from pipelines.records.redaction import shown_record_key
from pipelines.spark.stream_monitor import StreamMonitor
from pipelines.spark.stream_progress import read_progress
from pipelines.steps.ingest import ingest
from pipelines.steps.lag import StageLag, lag
from testbed.waiting import wait_until
from tests.support.kafka import MakeTopic, ordered_producer
from tests.support.lakes import Lake, flight

MakeLake = Callable[..., Lake]
RECORDS = 3_000
# Bytes each second: a broker lets a client have what ten seconds allow, and then makes it wait.
QUOTA = 20_000.0


def send_skewed(broker: str, topic: str) -> None:
    """Of records of a minute ago, most go to partition 1; six of ten there have the key `UA`."""
    producer = ordered_producer(broker)
    ago = int((time.time() - 60) * 1000)
    for n in range(RECORDS):
        key = "UA" if n % 10 < 6 else f"{n}"
        producer.produce(topic, flight(flight=n), key=key, partition=1, timestamp=ago)
        if n % 100 == 0:
            producer.produce(topic, flight(flight=n), key=f"{n}", partition=2, timestamp=ago)
            # So that there is more than one batch for a broker to send.
            assert producer.flush(60) == 0
    assert producer.flush(60) == 0


@contextmanager
def behind(lake: Lake, broker: str) -> Iterator[Callable[[], StageLag]]:
    """Ingest has begun, runs, and has not read what is skewed; yields what finds out why."""
    topic = lake.config.kafka.topic
    producer = ordered_producer(broker)
    producer.produce(topic, flight(), key="first", partition=0)
    assert producer.flush(60) == 0
    ingest(lake.pipeline, once=True)
    running = StreamMonitor(lake.pipeline, "ingest", timedelta(seconds=1))

    def has_begun() -> bool:
        kept = read_progress(lake.spark, lake.pipeline.checkpoint("ingest"))
        return kept is not None and kept.ended_at is None

    try:
        wait_until(has_begun, "the run has begun", 30)
        send_skewed(broker, topic)
        yield lambda: next(each for each in lag(lake.pipeline) if each.facts.stage == "ingest")
    finally:
        running.end(None)


@pytest.fixture
def skewed(broker: str, topic: MakeTopic, make_lake: MakeLake) -> Lake:
    name = topic(partitions=3, **{"retention.ms": str(7 * 86_400_000)})
    client = f"kafka.options.client.id=of-{name}"
    return make_lake(f"kafka.bootstrap_servers={broker}", f"kafka.topic={name}", client)


def test_the_key_that_makes_a_partition_hot_is_named_as_far_as_the_contract_lets_it_be(
    broker: str, skewed: Lake
) -> None:
    with behind(skewed, broker) as asked:
        found = asked()
        has_named(found, "'UA'")
        quick(found.facts)

        hashing: Any = {"carrier": "hash"}
        skewed.contract = replace(skewed.contract, personal=hashing)
        fingerprint = shown_record_key(skewed.contract, b"UA")
        assert fingerprint
        assert fingerprint.startswith("sha256:")
        has_named(asked(), fingerprint)

        dropping: Any = {"carrier": "drop"}
        skewed.contract = replace(skewed.contract, personal=dropping)
        hidden = asked().diagnosis

        ingest(skewed.pipeline, once=True)
        keeping_up = asked()
    # Who keeps up is not held up by a look.
    assert (keeping_up.facts.fetches, keeping_up.facts.sample) == (None, None)
    assert [each.kind for each in hidden.symptoms] == ["hot_partition", "hidden_key"]
    assert not any("UA" in str(each.figures) for each in hidden.symptoms)


def has_named(found: StageLag, key: str) -> None:
    """Partition 1 is hot, and the key is named with its share."""
    assert (found.diagnosis.cause, found.diagnosis.advice) == ("skew", "divide_key")
    hot, frequent = found.diagnosis.symptoms
    assert (hot.kind, hot.figures["partition"]) == ("hot_partition", 1)
    assert (frequent.kind, frequent.figures["key"], frequent.figures["partition"]) == ("frequent_key", key, 1)
    sample = found.facts.sample
    assert sample
    # A part of them tells, from places that are spread over all.
    assert 1_000 <= sample.records <= 2_000 < RECORDS
    first = sample.keys[0]
    assert first.least - 0.05 <= 0.6 <= first.share + 0.05
    assert 0 <= first.offset < RECORDS


def quick(facts: StageFacts) -> None:
    """The broker has answered fetches, and made nobody wait."""
    assert facts.fetches
    assert len(facts.fetches.latency_s) == 1
    assert (facts.fetches.silent, facts.fetches.throttled_s) == ((), 0.0)


def test_a_sample_is_spread_over_its_range_and_stays_within_it(broker: str, skewed: Lake) -> None:
    send_skewed(broker, skewed.config.kafka.topic)
    records = list(sampled_records(skewed.pipeline, 1, range(500, 2_900)))
    offsets = [each.offset for each in records]
    assert offsets == sorted({*offsets})
    assert (offsets[0], offsets[-1] < 2_900) == (500, True)
    # Of each sixteenth, the first of them.
    assert {(offset - 500) // 150 for offset in offsets} == {*range(16)}
    assert {each.key for each in records if each.offset % 10 == 0} == {b"UA"}
    assert [*sampled_records(skewed.pipeline, 0, range(0))] == []


def test_a_quota_of_the_brokers_is_told_as_what_makes_ingest_wait(broker: str, skewed: Lake) -> None:
    with behind(skewed, broker) as asked:
        assert asked().diagnosis.cause == "skew"
        set_quota(skewed, QUOTA)
        try:
            found = asked()
        finally:
            set_quota(skewed, None)
        free = asked()
    assert (found.diagnosis.cause, found.diagnosis.advice) == ("kafka", "check_quotas")
    assert found.facts.fetches
    waited = found.facts.fetches.throttled_s
    assert found.diagnosis.symptoms == (Symptom("throttled", {"waited_s": waited}),)
    assert waited >= 0.1
    # Nobody waits for keys that are not the reason.
    assert found.facts.sample is None
    assert free.diagnosis.cause == "skew"


def set_quota(lake: Lake, rate: float | None) -> None:
    """Lets the client of ingest read so many bytes each second; None for any number of them."""
    kafka = lake.config.kafka
    with admin_client(lake.spark, kafka) as admin:
        jvm, quota = admin.jvm, admin.jvm.org.apache.kafka.common.quota
        entity = jvm.java.util.HashMap()
        entity.put("client-id", kafka.options["client.id"])
        limit = quota.ClientQuotaAlteration.Op("consumer_byte_rate", rate)
        change = quota.ClientQuotaAlteration(
            quota.ClientQuotaEntity(entity), jvm.java.util.Collections.singletonList(limit)
        )
        admin.get(admin.client.alterClientQuotas(jvm.java.util.Collections.singletonList(change)).all())


def test_what_a_look_cannot_find_out_hides_nothing_else(
    broker: str, skewed: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    with behind(skewed, broker) as asked:
        kafka = skewed.config.kafka
        # Consumers refuse it, as brokers do who lacks a right; the admin client has no such setting.
        wrong = kafka.model_copy(update={"options": {**kafka.options, "fetch.max.bytes": "-7"}})
        skewed.config = skewed.config.model_copy(update={"kafka": wrong})
        found = asked()
    assert found.facts.records > RECORDS
    assert (found.diagnosis.cause, found.diagnosis.advice) == ("skew", "spread_partitions")
    assert (found.facts.fetches, found.facts.sample) == (None, None)
    assert "how brokers answer fetches is unknown" in caplog.text
