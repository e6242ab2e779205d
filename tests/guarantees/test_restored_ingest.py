"""Bronze and ingest's checkpoint know each other: where one was put back, nothing is lost or doubled."""

import json
import platform
import re
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from delta.tables import DeltaTable

from pipelines.cli.reconcile import message_of
from pipelines.delta.checkpoint_fit import BEGIN
from pipelines.delta.idempotent_writer import IdempotentWriter
from pipelines.delta.record_tables import ensure_bronze
from pipelines.delta.reset_fence import reset_fence
from pipelines.delta.tables import version
from pipelines.errors import InfrastructureError, SourceError
from pipelines.fault_points import Point, armed
from pipelines.kafka.ingest_position import Continuation
from pipelines.kafka.ingest_state import SparkIngestState
from pipelines.kafka.source import read_envelopes
from pipelines.kafka.topics import find_topic, require_same_topic
from pipelines.lineage.key_filter import asked_key
from pipelines.lineage.searches import OfKey
from pipelines.spark.checkpoints import first_offsets, note_path
from pipelines.spark.stream_progress import progress_in, progress_path
from pipelines.spark.streams import Trigger, each_batch
from pipelines.steps.checkpoints import reset_checkpoint
from pipelines.steps.forget import forget
from pipelines.steps.ingest import IngestJob, ingest
from pipelines.steps.reconcile import RecordsMissing, reconcile
from testbed.waiting import wait_until
from tests.support.accidents import dying, once
from tests.support.delta_rows import rows_in
from tests.support.kafka import MakeTopic, ordered_producer
from tests.support.lakes import Lake, flight

MakeLake = Callable[..., Lake]


class Source:
    """A topic of two partitions, and the lake that is filled from it."""

    def __init__(self, broker: str, name: str, make_lake: MakeLake) -> None:
        self.producer = ordered_producer(broker)
        self.name = name
        self.sent: Counter[int] = Counter()
        self.lake = make_lake(f"kafka.bootstrap_servers={broker}", f"kafka.topic={name}")
        self.checkpoint = Path(self.lake.config.checkpoint("ingest"))
        self.bronze = Path(self.lake.config.table("bronze"))

    def send(self, count: int, partition: int = 0) -> None:
        for n in range(count):
            self.producer.produce(self.name, flight(flight=n + 1), partition=partition)
        assert self.producer.flush(60) == 0
        self.sent[partition] += count

    def ingest(self) -> int:
        return ingest(self.lake.pipeline, once=True).records

    def refused(self, why: str) -> None:
        """Ingest ends with exit code 4 and the command that fixes it, and reads nothing."""
        before = self.commits()
        with pytest.raises(
            SourceError, match=rf"(?s){why}.*oncelake checkpoint reset --pipeline flights"
        ) as no:
            self.ingest()
        assert no.value.exit_code == 4
        assert self.commits() == before

    def fixed(self) -> None:
        """The command is followed, and bronze has each record once."""
        reset_checkpoint(self.lake.pipeline, "reset", "ingest")
        self.ingest()
        self.holds_each_record_once()

    def holds_each_record_once(self) -> None:
        """Bronze has each record that was sent once."""
        found = Counter(rows_in(self.bronze, "_partition", "_offset"))
        assert found == Counter((p, n) for p, count in self.sent.items() for n in range(count))

    def commits(self) -> list[Path]:
        return sorted((self.bronze / "_delta_log").glob("*.json"))

    def restore(self, to: int) -> None:
        DeltaTable.forPath(self.lake.spark, str(self.bronze)).restoreToVersion(to)


@pytest.fixture
def source(broker: str, topic: MakeTopic, make_lake: MakeLake) -> Source:
    return Source(broker, topic(partitions=2), make_lake)


def test_a_checkpoint_whose_first_offsets_are_damaged_is_refused_and_reset(source: Source) -> None:
    file = source.checkpoint / "sources/0/0"
    source.send(20)
    source.ingest()
    source.send(5)
    before = source.commits()

    def refused(left: bytes) -> None:
        file.write_bytes(left)
        with pytest.raises(SourceError, match=r"sources/0/0: the file is empty, cut off or changed"):
            source.ingest()
        assert source.commits() == before

    # As after a crash of the machine, once with the file's checksum and once without it.
    refused(file.read_bytes()[:-4])
    (file.parent / ".0.crc").unlink()
    refused(b"")
    note = Path(note_path(str(source.checkpoint)))
    (note.parent / f".{note.name}.crc").unlink(missing_ok=True)
    note.write_text(json.dumps(json.loads(note.read_text()) | {"lost": "half of"}))
    source.fixed()


def test_a_run_that_stood_still_while_its_checkpoint_was_reset_writes_nothing_more(source: Source) -> None:
    pipeline = source.lake.pipeline
    source.send(20)
    source.ingest()
    source.send(10)

    def run_the_other(begins: Continuation | None) -> None:
        assert begins is not None
        fenced = IdempotentWriter(str(source.bronze), None, fence=reset_fence(pipeline))
        job = IngestJob(pipeline, fenced, once=True, starting_offsets=begins.starting_offsets)
        trigger = Trigger(True, pipeline.config.ingest.trigger_interval)
        at = str(source.checkpoint)
        other = each_batch(job.plan(), job.write, name="other", checkpoint=at, trigger=trigger)
        other.awaitTermination(120)
        assert other.exception() is None

    def reset() -> None:
        progress = Path(progress_path(str(source.checkpoint)))
        wait_until(lambda: progress_in(progress.read_text()).ended_at is None, "the run tells of itself")
        with pytest.raises(InfrastructureError, match="ingest_stream runs, as process"):
            reset_checkpoint(pipeline, "reset", "ingest")
        # As on another machine, of which nothing is seen.
        text = progress.read_text().replace(platform.node(), "elsewhere")
        (progress.parent / f".{progress.name}.crc").unlink(missing_ok=True)
        progress.write_text(text)
        done = reset_checkpoint(pipeline, "reset", "ingest")
        source.send(5)
        run_the_other(done.begins)

    with (
        armed(Point.BATCH_LOOKED_FOR, once(reset)),
        pytest.raises(SourceError, match="in its place") as refused,
    ):
        source.ingest()
    assert refused.value.exit_code == 4
    source.holds_each_record_once()
    # The other one goes on.
    source.send(3)
    assert source.ingest() == 3
    source.holds_each_record_once()


def put_back(backup: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(backup, folder)


def test_what_was_put_back_or_lost_is_refused_and_a_run_that_was_killed_is_not(
    source: Source, tmp_path: Path
) -> None:
    folders = {"bronze": source.bronze, "checkpoint": source.checkpoint}
    for moment in ("before", "after"):
        source.send(20)
        source.ingest()
        for name, folder in folders.items():
            shutil.copytree(folder, tmp_path / moment / name)
    source.send(5)
    # Of this partition bronze has nothing yet.
    source.send(10, partition=1)
    at = version(source.lake.spark, str(source.bronze)) - 1

    _each_accident_is_refused(source, tmp_path, at)

    # Killed before it could say so: committed to bronze, and not in the checkpoint. Or it has said so, on a
    # disk that did not keep it, and somebody does what the message says.
    end = source.checkpoint / "commits/1"
    end.write_bytes(b"")
    with pytest.raises(
        SourceError, match=r"commits/1: the file that says that micro-batch 1 is done is empty"
    ):
        source.ingest()
    for name in ("1", ".1.crc"):
        (end.parent / name).unlink()
    assert source.ingest() == 35
    assert source.ingest() == 0
    assert len(rows_in(source.bronze, "_offset")) == 55

    source.send(5)
    put_back(tmp_path / "before/checkpoint", source.checkpoint)
    source.refused("is ahead of its checkpoint")
    source.refused("is ahead of its checkpoint")
    source.fixed()
    assert reconcile(source.lake.pipeline).findings == []

    put_back(tmp_path / "after/bronze", source.bronze)
    put_back(tmp_path / "after/checkpoint", source.checkpoint)
    source.restore(at)
    source.fixed()
    # Bronze knows this query as well, and at this micro-batch.
    put_back(tmp_path / "after/checkpoint", source.checkpoint)
    source.refused("would read these records again")
    shutil.rmtree(source.bronze)
    source.fixed()
    put_back(tmp_path / "after/checkpoint", source.checkpoint)
    source.refused("does not know query")


def _each_accident_is_refused(source: Source, backups: Path, at: int) -> None:
    folders = {"bronze": source.bronze, "checkpoint": source.checkpoint}
    before = backups / "before"
    accidents: list[tuple[str, Callable[[], object], str]] = [
        ("bronze", lambda: put_back(before / "bronze", source.bronze), "is behind its checkpoint"),
        # Delta restores a table that refuses deletes, and leaves what it knows of queries as it is.
        ("bronze", lambda: source.restore(at), "20 records .* bronze does not"),
        ("bronze", lambda: shutil.rmtree(source.bronze), "there is no such table"),
        ("checkpoint", lambda: shutil.rmtree(source.checkpoint), "its checkpoint .* does not exist"),
    ]
    for name, accident, why in accidents:
        accident()
        source.refused(why)
        put_back(backups / "after" / name, folders[name])


def test_a_checkpoint_without_a_micro_batch_begins_where_bronze_ends_or_is_refused(
    source: Source, tmp_path: Path
) -> None:
    source.send(10)
    source.ingest()
    shutil.copytree(source.bronze, tmp_path / "older")
    source.send(10)
    source.send(5, partition=1)
    source.ingest()
    shutil.copytree(source.bronze, tmp_path / "newer")
    reset_checkpoint(source.lake.pipeline, "reset", "ingest")
    assert source.ingest() == 0
    assert first_offsets(source.lake.spark, str(source.checkpoint))[source.name] == {0: 20, 1: 5}
    # Killed when it knew where it begins, and had planned nothing.
    for kind in ("offsets", "commits"):
        shutil.rmtree(source.checkpoint / kind)
    shutil.copytree(source.checkpoint, tmp_path / "killed")
    put_back(tmp_path / "newer", source.bronze)
    assert source.ingest() == 0

    put_back(tmp_path / "killed", source.checkpoint)
    put_back(tmp_path / "older", source.bronze)
    source.send(5)
    note = Path(note_path(str(source.checkpoint)))
    assert BEGIN in note.read_text()
    source.refused(r"goes on at .*-0 @ 10, but .* begins at offset 20: offsets 10 to 19 would never be read")
    source.fixed()


class Killed(BaseException):
    """The process is killed here."""


def test_a_reset_that_dies_between_its_steps_does_not_forget_where_ingest_began(
    source: Source, admin: AdminClient
) -> None:
    pipeline = source.lake.pipeline

    def began() -> Mapping[int, int]:
        return SparkIngestState(pipeline, find_topic(pipeline.spark, pipeline.config.kafka)).first_began()

    source.send(10)
    for deleted in admin.delete_records([TopicPartition(source.name, 0, 3)]).values():
        deleted.result(30)
    source.ingest()
    assert began() == {0: 3, 1: 0}
    with armed(Point.CHECKPOINT_MOVED, dying(Killed())), pytest.raises(Killed):
        reset_checkpoint(pipeline, "reset", "ingest")
    source.refused("its checkpoint .* does not exist")
    reset_checkpoint(pipeline, "reset", "ingest")
    assert began() == {0: 3, 1: 0}
    source.send(2)
    assert source.ingest() == 2
    assert began() == {0: 3, 1: 0}


def test_a_bronze_that_was_copied_without_its_checkpoint_is_not_filled_once_more(
    source: Source, tmp_path: Path
) -> None:
    source.send(10)
    source.send(5, partition=1)
    source.ingest()
    # A query copies the rows, and neither properties nor what the table knows of streams.
    rows, copy = source.lake.spark.read.format("delta").load(str(source.bronze)), tmp_path / "copy"
    rows.write.format("delta").save(str(copy))
    put_back(copy, source.bronze)
    shutil.rmtree(source.checkpoint)
    Path(note_path(str(source.checkpoint))).unlink()
    source.send(2)
    with pytest.raises(SourceError, match=r"copied without the checkpoint.*checkpoint reset --pipeline"):
        source.ingest()
    assert source.lake.count("bronze") == 15
    source.fixed()


def test_a_reset_names_the_stream_that_is_to_be_reset_before_it(source: Source) -> None:
    source.send(3)
    source.ingest()
    metadata = Path(source.lake.config.checkpoint("speed")) / "metadata"
    metadata.parent.mkdir(parents=True)
    metadata.write_bytes(b"")
    with pytest.raises(SourceError, match=r"checkpoint reset --pipeline flights --query speed; then this"):
        reset_checkpoint(source.lake.pipeline, "reset", "ingest")
    assert source.checkpoint.exists()
    reset_checkpoint(source.lake.pipeline, "reset", "speed")
    source.fixed()


@pytest.mark.thorough
def test_what_was_forgotten_is_empty_when_it_is_read_once_more(source: Source) -> None:
    lake, contract = source.lake, source.lake.contract
    source.send(3)
    source.send(2, partition=1)
    source.ingest()
    search = OfKey(replace(lake.pipeline, contract=contract), asked_key(contract, ["flight=2"]))
    assert (
        forget(replace(lake.pipeline, contract=contract), "forget", search, dry_run=False).counts.bronze == 2
    )
    shutil.rmtree(source.bronze)
    source.fixed()
    emptied = lake.table("bronze").where("_forgotten IS NOT NULL")
    assert sorted(map(tuple, emptied.select("_partition", "_offset").collect())) == [(0, 1), (1, 1)]
    assert lake.table("bronze").where("value IS NOT NULL").count() == 3
    assert emptied.where("value IS NOT NULL OR key IS NOT NULL OR headers IS NOT NULL").isEmpty()
    # What is sent later is new.
    source.send(2)
    assert source.ingest() == 2
    assert lake.table("bronze").where("_forgotten IS NOT NULL").count() == 2
    assert reconcile(lake.pipeline).findings == []


@pytest.mark.thorough
def test_a_loss_of_before_these_checks_is_told(source: Source, tmp_path: Path) -> None:
    def ingest_as_before() -> None:
        stream = read_envelopes(source.lake.spark, source.lake.config.kafka).writeStream.format("delta")
        stream = stream.option("checkpointLocation", str(source.checkpoint)).trigger(availableNow=True)
        stream.start(str(source.bronze)).awaitTermination()

    ensure_bronze(source.lake.pipeline)
    require_same_topic(source.lake.pipeline, find_topic(source.lake.spark, source.lake.config.kafka))
    source.send(20)
    ingest_as_before()
    shutil.copytree(source.checkpoint, tmp_path / "backup")
    source.send(20)
    ingest_as_before()
    put_back(tmp_path / "backup", source.checkpoint)
    source.send(20)
    ingest_as_before()
    assert source.lake.count("bronze") == 40
    with pytest.raises(RecordsMissing) as lost:
        reconcile(source.lake.pipeline)
    assert lost.value.exit_code == 4
    found = message_of(lost.value.reconciliation)
    assert re.search("20 records .* ingest's checkpoint says they were read", found)
    source.refused("20 records .* bronze does not")
    source.fixed()
