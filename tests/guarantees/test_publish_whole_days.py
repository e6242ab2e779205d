"""`oncelake publish --date` that fails: what it says, and that nobody has to wait for it afterwards."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from demo.waiting import wait_until
from pipelines.contracts.contract import DataContract
from pipelines.errors import InfrastructureError, OncelakeError, SourceError
from pipelines.fault_points import Point, armed
from pipelines.ledger.leases import Lease
from pipelines.publishing.cluster import asking, read_progress, take_all, write_progress
from pipelines.publishing.settings import sink_of
from pipelines.publishing.slots import ProgressError, SlotProgress, Written
from pipelines.publishing.transactional_sink import TransactionalSink
from pipelines.steps import publish_days as whole_days
from pipelines.steps.nightly import nightly
from pipelines.steps.publish_days import publish_days
from tests.support.accidents import dying
from tests.support.kafka import MakeTopic
from tests.support.lakes import Lake
from tests.support.nights import ONE, on
from tests.support.publish_faults import Fault, striking
from tests.support.readers import is_open, messages_of

FLIGHTS = range(1, 13)


@pytest.fixture
def make(
    publishing_lake: Callable[..., Lake], small_by_flight: DataContract, topic: MakeTopic
) -> Callable[..., Lake]:
    """A lake with a certified day."""
    made = partial(publishing_lake, small_by_flight, topic(partitions=2, name="whole"))
    lake = made()
    lake.ingest([on(1, number) for number in FLIGHTS])
    nightly(replace(lake.pipeline, contract=small_by_flight), "run", [ONE], "late")
    return made


def whole(lake: Lake) -> dict[date, int | None]:
    return publish_days(lake.pipeline, "run", [ONE], again=False).rows


def sent(lake: Lake) -> Counter[bytes | None]:
    assert lake.config.publish
    found = messages_of(lake.config.kafka.bootstrap_servers, lake.config.publish.topic)
    return Counter(message.key for message in found)


def sink_of_the_day(lake: Lake, admin: AdminClient) -> TransactionalSink:
    """The sink by which the day is being sent: its name has the day, a version and more."""
    sink = sink_of(lake.config)
    groups = admin.list_consumer_groups().result(30).valid
    (name,) = (each.group_id for each in groups if each.group_id.startswith(f"{sink.name}.day."))
    return replace(sink, name=name)


def progress(sink: TransactionalSink) -> dict[int, SlotProgress]:
    with asking(sink) as cluster:
        return read_progress(cluster, sink, is_stable=True)


def test_a_task_that_fails_is_told_and_leaves_no_transaction_open(
    make: Callable[..., Lake], admin: AdminClient, tmp_path: Path
) -> None:
    lake = make()
    assert lake.config.publish
    servers, output = lake.config.kafka.bootstrap_servers, lake.config.publish.topic
    fails = Fault(0, 1, Point.SLOT_SENT, "task", f"{tmp_path}/fault")
    told = r"RuntimeError: a fault of the test\. What .*: fix the cause"
    with striking(fails), pytest.raises(InfrastructureError, match=told):
        whole(lake)
    assert Path(fails.marker).exists()
    wait_until(lambda: not is_open(servers, output), "readers wait for nobody", 30)
    sink = sink_of_the_day(lake, admin)
    wait_until(lambda: 0 in progress(sink), "slot 0 is done", 30)
    some = sent(lake)
    assert 0 < len(some) < len(FLIGHTS)
    # The rest has to be made of what was sent by then.
    other = make("publish.retraction=record")
    with pytest.raises(SourceError, match=r"slot 0 .* by other rules.*publish\.retraction: found record"):
        whole(other)
    true = progress(sink)[0]
    assert true.written
    wrong = Written(true.written.rows + 1, true.written.digest, true.written.rules)
    write_progress(sink, take_all(sink, {}), {0: replace(true, written=wrong)})
    with pytest.raises(SourceError, match=r"slot 0 of micro-batch 0 was published with \d+ rows"):
        whole(lake)
    assert sent(lake) == some
    write_progress(sink, take_all(sink, {}), {0: true})
    assert whole(lake) == {ONE: len(FLIGHTS)}
    assert set(sent(lake).values()) == {1}
    assert len(sent(lake)) == len(FLIGHTS)


def test_what_goes_wrong_is_told_in_words_and_nothing_is_sent(
    make: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = make()
    ended: list[str] = []
    monkeypatch.setattr(whole_days, "end_transactions", lambda sink, run: ended.append(sink.name))

    def refused(told: type[OncelakeError], said: str) -> None:
        with pytest.raises(told, match=said):
            whole(lake)
        assert not sent(lake)

    with armed(Point.PART_DUE, dying(KafkaException(KafkaError(KafkaError._FENCED)))):
        refused(InfrastructureError, "Kafka refused, or did not")
    with armed(Point.PART_DUE, dying(ProgressError("another has them"))):
        refused(SourceError, r"another has them\. Does another deployment")
    assert len(ended) == 2
    assert all(f".day.{ONE}." in name for name in ended)
    with monkeypatch.context() as patched:
        patched.setattr(whole_days, "read_kept", lambda *words: None)
        refused(SourceError, rf"version \d+, by which {ONE} is certified, is gone: rebuild")

    def lost(lease: Lease) -> None:
        raise InfrastructureError("this run lost its lease")

    with monkeypatch.context() as patched:
        patched.setattr(Lease, "require", lost)
        refused(InfrastructureError, "lost its lease")
