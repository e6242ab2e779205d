"""Each way back that the runbook names, walked as written: it ends in a certified night, each event once."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

from pipelines.runtime.local_broker import broker as running_broker
from pipelines.steps.loading import open_pipeline
from testbed.waiting import wait_until
from tests.support.kafka import MakeTopic, fresh_topics, make_anew, make_topic
from tests.support.nights import ONE, THREE, TWO, on
from tests.support.runbook import Project

MISMATCH: Final = "A table and its checkpoint do not match"
CERTIFIED_GONE: Final = "The certified version is gone"
RECREATED: Final = "The topic was recreated"
MOVE: Final = "Move to another cluster"
CHANGED: Final = "Change of rules, watermark or state partitions"
NIGHT, NIGHT_2 = (f"oncelake nightly_batch --pipeline {name} --date " for name in ("flights", "flights_2"))
INGEST, SPEED, INGEST_2, SPEED_2 = (
    f"oncelake {job} --pipeline {name} --once"
    for name in ("flights", "flights_2")
    for job in ("ingest_stream", "speed_stream")
)
POISON: Final = b"poison"
SENT: Final = {ONE: (1, 2, 3, 1, 2), TWO: (4, 5, 4)}
"""The flights of each day, as they are sent: the even ones to another partition."""
KEPT: Final = {"retention.ms": "-1"}


def send(servers: str, topic: str, days: Mapping[date, tuple[int, ...]], origin: str = "EWR") -> None:
    producer = Producer({"bootstrap.servers": servers})
    for day, numbers in days.items():
        at = int(datetime(day.year, day.month, day.day, 12, tzinfo=UTC).timestamp() * 1000)
        for number in numbers:
            value = on(day.day, number, origin=origin).value
            producer.produce(topic, value, str(number), partition=(number + 1) % 2, timestamp=at)
        producer.produce(topic, POISON, "0", partition=0, timestamp=at)
    assert producer.flush(60) == 0


def each_once(served: DataFrame, days: Mapping[date, tuple[int, ...]]) -> None:
    """Readers get each event of these days once, and nothing else."""
    rows = served.select("_event_date", "flight").collect()
    assert Counter(map(tuple, rows)) == Counter((day, n) for day, numbers in days.items() for n in {*numbers})


def certified(summary: dict[str, object], *days: date) -> None:
    """A night has certified these days, and no other."""
    assert summary["days"] == {f"{day}": "certified" for day in days}


def whole(project: Project) -> None:
    """The rest of what was sent is certified, and everything is there once."""
    certified(project.done(f"{NIGHT}{TWO}"), TWO)
    each_once(project.served(), SENT)
    assert project.done(f"oncelake validate --pipeline flights --date {ONE}")["status"] == "done"
    assert project.done("oncelake reconcile --pipeline flights")["status"] == "done"


@pytest.fixture(scope="module")
def sent(broker: str, admin: AdminClient) -> Iterator[str]:
    """A topic with two days, to which nobody sends any more."""
    with fresh_topics(admin) as make:
        topic = make(2, "flights", **KEPT)
        send(broker, topic, SENT)
        yield topic


def done(project: Project, *lines: str) -> Project:
    for line in lines:
        project.done(line)
    return project


def begun(project: Project) -> Project:
    """All was read, and the first day is certified."""
    return done(project, INGEST, SPEED, f"{NIGHT}{ONE}")


@pytest.fixture(scope="module")
def all_read(
    spark: SparkSession, sent: str, broker: str, tmp_path_factory: pytest.TempPathFactory
) -> Project:
    folder = tmp_path_factory.mktemp("runbook") / "project"
    project = Project.laid_out(folder, broker, sent)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        return done(project, INGEST, SPEED)


@pytest.fixture(scope="module")
def prepared(all_read: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The first day is certified."""
    project = all_read.copied(tmp_path_factory.mktemp("runbook") / "project")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(project.folder)
        return done(project, f"{NIGHT}{ONE}")


@pytest.fixture
def entered(monkeypatch: pytest.MonkeyPatch) -> Callable[[Project], Project]:
    """Goes into the folder of a project, as whoever follows the runbook."""

    def enter(project: Project) -> Project:
        monkeypatch.chdir(project.folder)
        return project

    return enter


@pytest.fixture
def project(prepared: Project, entered: Callable[[Project], Project], tmp_path: Path) -> Project:
    """A project whose topic nobody else changes; its tests do not either."""
    return entered(prepared.copied(tmp_path / "project"))


@pytest.fixture
def own_topic(topic: MakeTopic, broker: str) -> str:
    """A topic with two days that a test may change."""
    name = topic(2, "flights", **KEPT)
    send(broker, name, SENT)
    return name


@pytest.fixture
def own(
    own_topic: str, broker: str, entered: Callable[[Project], Project], spark: SparkSession, tmp_path: Path
) -> Project:
    """A project with that topic."""
    return begun(entered(Project.laid_out(tmp_path / "project", broker, own_topic)))


def test_the_checkpoint_of_the_speed_stream_is_lost(
    all_read: Project, entered: Callable[[Project], Project], tmp_path: Path
) -> None:
    project = entered(all_read.copied(tmp_path / "project"))
    project.lose("ops/checkpoints/flights/speed")
    project.refused(SPEED, 4, MISMATCH)
    project.follow(MISMATCH, "--query speed")
    night = project.done(f"oncelake nightly_batch --pipeline flights --from {ONE} --to {TWO}")
    certified(night, ONE, TWO)
    each_once(project.served(), SENT)
    assert project.done("oncelake reconcile --pipeline flights")["status"] == "done"


@pytest.mark.thorough
def test_all_checkpoints_are_lost(project: Project) -> None:
    project.lose("ops/checkpoints")
    project.refused(INGEST, 4, MISMATCH)
    project.follow(MISMATCH, "--query ingest")
    project.refused(SPEED, 4, MISMATCH)
    project.follow(MISMATCH, "--query speed")
    whole(project)


@pytest.mark.thorough
def test_speed_layer_and_quarantine_are_lost(project: Project) -> None:
    project.lose("speed/flights", "quarantine/flights")
    project.refused(SPEED, 4, MISMATCH)
    project.follow(MISMATCH, "--query speed")
    whole(project)


@pytest.mark.thorough
def test_the_state_is_divided_among_another_number_of_partitions(
    own: Project, own_topic: str, broker: str
) -> None:
    def partitions() -> int:
        state = own.lake / "ops/checkpoints/flights/speed/state/0"
        return len([folder for folder in state.iterdir() if folder.name.isdecimal()])

    before = own.config().speed.state_partitions
    assert partitions() == before
    setting = "state_partitions: {}"
    own.edit("conf/local/oncelake.yml", setting.format(before), setting.format(before + 1))
    own.refused(SPEED, 2, CHANGED)
    *_, rebuilt = own.follow(CHANGED, "checkpoint reset")
    assert (
        rebuilt["counts"]["records"]
        == open_pipeline("flights").spark.read.format("delta").load(own.config().table("bronze")).count()
    )
    assert partitions() == before + 1
    # The state knows the events of before: a further copy of one is left out.
    send(broker, own_topic, {TWO: (5,)})
    own.done(INGEST)
    counts = own.done(SPEED)["counts"]
    assert {name: counts[name] for name in ("rows", "duplicates", "late", "quarantined")} == {
        "rows": 0,
        "duplicates": 1,
        "late": 0,
        "quarantined": 1,
    }
    whole(own)


@pytest.mark.thorough
def test_bronze_is_lost_and_kafka_has_all_of_it(project: Project) -> None:
    project.lose("bronze/flights")
    project.refused(INGEST, 4, MISMATCH)
    project.follow(MISMATCH, "--query ingest")
    project.refused(SPEED, 4, "A foreign checkpoint")
    project.follow(MISMATCH, "--query speed")
    whole(project)
    certified(project.done(f"{NIGHT}{ONE}"), ONE)
    each_once(project.served(), SENT)


@pytest.mark.thorough
def test_bronze_is_lost_and_kafka_has_deleted_a_day(
    own: Project, own_topic: str, broker: str, admin: AdminClient
) -> None:
    # Of the first day: 1, 3 and 1 again in one partition, and its broken record.
    first = [TopicPartition(own_topic, 0, 4), TopicPartition(own_topic, 1, 2)]
    for deleted in admin.delete_records(first).values():
        deleted.result(30)
    own.lose("bronze/flights")
    own.refused(INGEST, 4, MISMATCH)
    own.follow(MISMATCH, "--query ingest")
    own.follow(MISMATCH, "--query speed")
    # Ingest knows that records are gone, and keeps a margin of days; the operator knows which day is whole.
    own.refused(f"{NIGHT}{TWO}", 2, "After a loss")
    own.follow("Bronze is another table", "WHOLE_FROM", DAY=f"{TWO}")
    # Their neighbours are gone, so what bronze now has of them proves nothing.
    for day in (ONE, TWO):
        assert own.call(f"{NIGHT}{day}")[0] == 2
    send(broker, own_topic, {THREE: (6, 7, 6)})
    own.done(INGEST)
    own.done(SPEED)
    certified(own.done(f"{NIGHT}{THREE}"), THREE)
    each_once(own.served(), {**SENT, THREE: (6, 7)})


@pytest.mark.thorough
def test_the_batch_layer_is_lost(project: Project) -> None:
    project.lose("batch/flights")
    project.refused(f"{NIGHT}{TWO}", 4, CERTIFIED_GONE)
    begin_anew(project)


@pytest.mark.thorough
def test_the_verdicts_are_lost(project: Project) -> None:
    project.lose("ops/certifications")
    project.refused(f"{NIGHT}{TWO}", 4, "Verdicts are gone")
    project.follow(CERTIFIED_GONE, "mv ")
    begin_anew(project)


def begin_anew(project: Project) -> None:
    """What `The certified version is gone` says where there is no backup."""
    project.follow(CERTIFIED_GONE, "DELETE FROM")
    project.follow(CERTIFIED_GONE, "first_rebuildable_day")
    night = project.follow(CERTIFIED_GONE, "--from FIRST", FIRST=f"{ONE}", LAST=f"{TWO}")
    certified(night[-1], ONE, TWO)
    each_once(project.served(), SENT)
    whole(project)


@pytest.mark.thorough
def test_all_that_the_jobs_have_noted_is_lost(project: Project) -> None:
    project.lose("ops")
    project.refused(INGEST, 4, MISMATCH)
    project.refused(f"{NIGHT}{TWO}", 4, "Verdicts are gone")
    project.follow(CERTIFIED_GONE, "mv ")
    project.follow(MISMATCH, "--query ingest")
    project.follow(MISMATCH, "--query speed")
    certified(project.done(f"{NIGHT}{TWO}"), TWO)
    project.follow(CERTIFIED_GONE, "first_rebuildable_day")
    certified(project.follow(CERTIFIED_GONE, "--from FIRST", FIRST=f"{ONE}", LAST=f"{ONE}")[-1], ONE)
    whole(project)


@pytest.mark.thorough
def test_the_whole_lake_is_put_back_as_it_was_at_a_backup(
    own: Project, own_topic: str, broker: str, tmp_path: Path
) -> None:
    shutil.copytree(own.lake, tmp_path / "backup")
    send(broker, own_topic, {THREE: (6, 7, 6)})
    for line in (INGEST, SPEED, f"{NIGHT}{TWO}"):
        own.done(line)
    own.put_back(tmp_path / "backup")
    own.follow("Backups and upgrades", "reconcile")
    own.done(SPEED)
    certified(own.done(f"{NIGHT}{TWO}"), TWO)
    certified(own.done(f"{NIGHT}{THREE}"), THREE)
    each_once(own.served(), {**SENT, THREE: (6, 7)})


@pytest.mark.thorough
def test_the_topic_is_recreated(own: Project, own_topic: str, broker: str, admin: AdminClient) -> None:
    make_anew(admin, own_topic, 2)
    send(broker, own_topic, {THREE: (6, 7, 6)})
    own.refused(INGEST, 4, RECREATED)
    own.follow(RECREATED, "cp conf/base")
    own.follow(RECREATED, "oncelake plan")
    certified(own.done(f"{NIGHT_2}{THREE}"), THREE)
    (night,) = own.follow(RECREATED, "--from FIRST", FIRST=f"{TWO}", LAST=f"{TWO}")
    certified(night, TWO)
    each_once(own.served(), SENT)
    each_once(own.served("flights_2"), {THREE: (6, 7)})


@pytest.mark.thorough
def test_the_key_of_a_contract_is_changed(own: Project, own_topic: str, broker: str) -> None:
    contract, new = (own.folder / f"data_contracts/{name}.odcs.yaml" for name in ("flights", "flights_2"))
    before = contract.read_text()
    origin = "      - name: origin\n        logicalType: string\n"
    own.edit(str(contract), origin + "        primaryKey: true\n        primaryKeyPosition: 3\n", origin)
    own.edit(str(contract), "primaryKeyPosition: 4", "primaryKeyPosition: 3")
    # For the contract of before another flight, for this one a copy.
    send(broker, own_topic, {TWO: (5,)}, origin="JFK")
    own.refused(f"{NIGHT}{TWO}", 2, "A breaking change of a contract")
    contract.rename(new)
    contract.write_text(before)
    own.follow(RECREATED, "cp conf/base")
    own.edit("conf/base/pipelines/flights_2.yml", contract.name, new.name)
    own.follow(RECREATED, "oncelake plan")
    certified(own.done(f"oncelake nightly_batch --pipeline flights_2 --from {ONE} --to {TWO}"), ONE, TWO)
    each_once(own.served("flights_2"), SENT)
    # The pipeline of before goes on as it was.
    own.done(INGEST)
    own.done(SPEED)
    certified(own.done(f"{NIGHT}{TWO}"), TWO)
    assert own.served().count() == len({*SENT[ONE]}) + len({*SENT[TWO]}) + 1


def mirrored(from_servers: str, to_servers: str, topic: str) -> None:
    """Copies what a topic has to the topic of that name of another cluster, as MirrorMaker does."""
    consumer = Consumer({"bootstrap.servers": from_servers, "group.id": topic})
    producer = Producer({"bootstrap.servers": to_servers})
    try:
        places = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in (0, 1)]
        left = sum(end - begin for begin, end in map(consumer.get_watermark_offsets, places))
        consumer.assign(places)
        copied = 0

        def is_copied() -> bool:
            nonlocal copied
            for record in consumer.consume(100, timeout=0.5):
                at, partition = record.timestamp()[1], record.partition() or 0
                producer.produce(topic, record.value(), record.key(), partition, timestamp=at)
                copied += 1
            return copied == left

        wait_until(is_copied, f"{left} records are copied", 60)
        assert producer.flush(60) == 0
    finally:
        consumer.close()


@pytest.mark.thorough
def test_a_pipeline_moves_to_another_cluster(
    own: Project, own_topic: str, broker: str, admin: AdminClient, tmp_path: Path
) -> None:
    # Of the first day the old cluster has only a part left.
    deleted = TopicPartition(own_topic, 0, 2)
    admin.delete_records([deleted])[deleted].result(30)
    with running_broker(tmp_path / "broker") as other:
        servers = other.bootstrap_servers
        make_topic(AdminClient({"bootstrap.servers": servers}), NewTopic(own_topic, 2, 1, config=KEPT))
        send(broker, own_topic, {THREE: (6,)})
        mirrored(broker, servers, own_topic)
        mirrored(broker, servers, own_topic)
        own.follow(RECREATED, "cp conf/base")
        local = own.folder / "conf/local/pipelines/flights_2.yml"
        local.parent.mkdir(exist_ok=True)
        local.write_text(f"kafka:\n  bootstrap_servers: {servers}\n")
        own.follow(RECREATED, "oncelake plan")
        # Producers have moved.
        send(servers, own_topic, {THREE: (7, 6)})
        for line in (INGEST, SPEED, INGEST_2, SPEED_2, f"{NIGHT}{TWO}"):
            own.done(line)
        own.follow(MOVE, "first_rebuildable_day", DAY=f"{TWO}")
        assert own.call(f"{NIGHT_2}{TWO}")[0] == 2
        days = {"OLD_FIRST": f"{TWO}", "OLD_LAST": f"{TWO}", "FIRST": f"{THREE}", "LAST": f"{THREE}"}
        (_, night) = own.follow(MOVE, "--to LAST", **days)
        certified(night, THREE)
        own.follow(MOVE, "left_anti", FIRST=f"{THREE}")
        assert own.session["missing"] == 0
        own.done("oncelake reconcile --pipeline flights_2")
        before, after = own.served(), own.served("flights_2")
        rows = before.where(f"_event_date < '{THREE}'").unionByName(after.where(f"_event_date >= '{THREE}'"))
        each_once(rows, {**SENT, THREE: (6, 7)})
