"""What `oncelake lag` says of a pipeline on a real cluster, whatever has happened to it."""

import socket
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from pipelines.cli import streams
from pipelines.cli.lag import summary_of
from pipelines.contracts.contract import DataContract
from pipelines.errors import ConfigError, OncelakeError, SourceError
from pipelines.fault_points import Point, armed
from pipelines.lag.diagnosis import Diagnosis, Symptom
from pipelines.lag.phases import phases_of
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.stream_monitor import StreamMonitor, refusal_noted
from pipelines.spark.stream_progress import StreamProgress, read_progress
from pipelines.steps.ingest import ingest
from pipelines.steps.lag import StageLag, lag
from pipelines.steps.speed import speed
from testbed.waiting import wait_until
from tests.support.accidents import dying
from tests.support.kafka import MakeTopic, make_anew, ordered_producer
from tests.support.lakes import Lake, flight
from tests.support.nights import on
from tests.support.published import send

DISK_FULL = Symptom("run_failed", {"failure": "the disk is full"})


class Watched:
    """A topic with two partitions, and the lake that is filled from it."""

    def __init__(self, broker: str, topic: str, make_lake: Callable[..., Lake]) -> None:
        self.topic = topic
        self.admin = AdminClient({"bootstrap.servers": broker})
        self.lake = make_lake(f"kafka.bootstrap_servers={broker}", f"kafka.topic={topic}")
        self._producer = ordered_producer(broker)
        self._numbers = iter(range(1, 1_000))

    def send(self, count: int, partition: int = 0) -> None:
        for _ in range(count):
            value = flight(flight=next(self._numbers))
            self._producer.produce(self.topic, value, partition=partition)
        assert self._producer.flush(60) == 0

    def send_broken(self) -> None:
        self._producer.produce(self.topic, b"not json", partition=0)
        assert self._producer.flush(60) == 0

    def delete_until(self, offset: int, partition: int = 0) -> None:
        at = TopicPartition(self.topic, partition, offset)
        for deleted in self.admin.delete_records([at]).values():
            deleted.result(30)

    def lag(self) -> dict[str, StageLag]:
        return {each.facts.stage: each for each in lag(self.lake.pipeline)}

    def causes(self) -> dict[str, str]:
        return {stage: each.diagnosis.cause for stage, each in self.lag().items()}


@pytest.fixture
def watched(broker: str, topic: MakeTopic, make_lake: Callable[..., Lake]) -> Watched:
    week = {"retention.ms": str(7 * 86_400_000)}
    return Watched(broker, topic(partitions=2, **week), make_lake)


def test_each_stage_is_told_with_what_it_lacks_and_why_and_its_stream_leaves_figures(
    watched: Watched,
) -> None:
    watched.send(20)
    watched.send_broken()
    found = watched.lag()
    assert found["ingest"].facts.records == 21
    assert found["ingest"].diagnosis == Diagnosis("stopped", (Symptom("never_ran", {}),), 1.0, "start")
    assert found["ingest"].start == "oncelake ingest_stream --pipeline flights"
    assert found["speed"].diagnosis.symptoms == (Symptom("no_table", {"table": "bronze"}),)

    ingest(watched.lake.pipeline, once=True)
    found = watched.lag()
    assert {stage: each.facts.records for stage, each in found.items()} == {"ingest": 0, "speed": 21}
    assert found["speed"].diagnosis.symptoms == (Symptom("never_ran", {}),)
    assert [each.partition for each in found["speed"].facts.partitions] == [0]
    # The records are seconds old, whatever event times they have.
    assert 0 < (found["speed"].facts.behind_s or 0) < 600

    speed(watched.lake.pipeline, once=True)
    has_left_figures(watched)
    watched.send(5, partition=1)
    found = watched.lag()
    assert {stage: each.facts.records for stage, each in found.items()} == {"ingest": 5, "speed": 0}
    by_partition = {each.partition: each for each in found["ingest"].facts.partitions}
    assert {number: each.records for number, each in by_partition.items()} == {0: 0, 1: 5}
    assert by_partition[0].behind_s is None
    assert 0 <= (by_partition[1].behind_s or 0) < 600
    assert (by_partition[0].rate_in, by_partition[1].rate_in) == (21 / 300, 5 / 300)
    # Since five minutes ago, when it had read nothing.
    assert by_partition[0].rate_out == pytest.approx(21 / 300, rel=0.2)
    assert by_partition[1].rate_out == 0
    assert 6 * 86_400 < (by_partition[1].retention_s or 0) < 7 * 86_400

    told = summary_of(list(found.values()))
    assert [each["stage"] for each in told["stages"]] == ["ingest", "speed"]
    assert told["lines"][-1] == "speed: not behind: all is processed"


def has_left_figures(watched: Watched) -> None:
    """Each stream has left the figures of its micro-batch."""
    kept = read_progress(watched.lake.spark, watched.lake.pipeline.checkpoint("speed"))
    assert kept
    assert kept.ended_at is not None
    first = kept.batches[0]
    assert (first.number, first.records) == (0, 21)
    assert first.seconds > first.phases["write"] > 0
    assert first.state
    # Spark counts whole milliseconds, of which 21 records may need none.
    assert first.state.memory_bytes > 0
    assert first.tasks
    assert (first.tasks.tasks > 0, first.tasks.failed, first.tasks.run_s > 0) == (True, 0, True)
    # Tasks that decode hand their rows on to those that deduplicate and write.
    assert 0 < first.tasks.handing_on_s < first.tasks.run_s
    assert {*first.parts} == {"commit", "quarantine"}
    divided = phases_of(first, "speed")
    assert min(divided.values()) >= 0
    assert min(divided[each] for each in ("decode", "quarantine", "commit")) > 0
    assert sum(divided.values()) == pytest.approx(sum(first.phases.values()))
    assert {*kept_run(watched.lake.pipeline).batches[0].parts} == {"commit"}


def dies(pipeline: Pipeline) -> None:
    """A run of ingest begins, and fails."""
    with (
        armed(Point.BATCH_LOOKED_FOR, dying(OncelakeError("the disk is full"))),
        pytest.raises(OncelakeError),
        refusal_noted(pipeline, "ingest"),
    ):
        ingest(pipeline, once=True)


def refused(pipeline: Pipeline) -> None:
    """A run of ingest is refused before it begins."""
    with pytest.raises(SourceError), refusal_noted(pipeline, "ingest"):
        raise SourceError("bronze was restored\nand more")


def test_why_a_run_failed_or_was_refused_and_what_kafka_deleted_meanwhile_is_told(
    watched: Watched,
) -> None:
    pipeline = watched.lake.pipeline
    watched.send(20)
    ingest(pipeline, once=True)
    watched.send(10)
    before = kept_run(pipeline)
    refused(pipeline)
    found = watched.lag()["ingest"]
    stopped = found.diagnosis
    assert (stopped.cause, stopped.advice) == ("stopped", "fix_and_start")
    assert stopped.symptoms[0].figures["failure"] == "bronze was restored"
    # As the runs before were started, whatever the one that was refused.
    assert found.start == "oncelake ingest_stream --pipeline flights --once"
    assert kept_run(pipeline) == before

    # A run that has begun and fails says so itself.
    dies(pipeline)
    found = watched.lag()["ingest"]
    stopped = found.diagnosis
    assert (stopped.cause, stopped.symptoms[1], stopped.advice) == ("stopped", DISK_FULL, "fix_and_start")
    assert found.start == "oncelake ingest_stream --pipeline flights --once"

    # One that is refused does not speak over one that runs.
    running = StreamMonitor(pipeline, "ingest", timedelta(seconds=1))
    wait_until(lambda: has_begun(pipeline), "the run has begun", 30)
    refused(pipeline)
    running.end(None)
    watched.delete_until(25)
    lost = watched.lag()["ingest"]
    assert lost.facts.refusal is None
    assert lost.diagnosis.cause == "retention"
    assert lost.diagnosis.symptoms == (Symptom("offsets_deleted", {"partition": 0, "offsets": 5}),)
    assert lost.facts.records == 5


def test_the_commands_leave_word_of_what_they_refuse_and_a_topic_that_was_recreated_is_not_taken_for_the_one(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.send(20)
    ingest(watched.lake.pipeline, once=True)
    lake = watched.lake.config
    wrong = {
        "kafka": lake.kafka.model_copy(update={"topic": "nobody-made-it"}),
        "quarantine": lake.quarantine.model_copy(update={"dead_letter_topic": "nobody-made-it"}),
    }
    pipeline = watched.lake.variant(config=lake.model_copy(update=wrong)).pipeline
    bodies: list[Any] = []
    monkeypatch.setattr(streams, "run_job", lambda job, options: bodies.append(job.body))
    for command in (streams.ingest_stream, streams.speed_stream):
        CliRunner().invoke(command, ["--pipeline", "flights", "--once"], catch_exceptions=False)
    for body in bodies:
        with pytest.raises(ConfigError):
            body(pipeline, "run")
    make_anew(watched.admin, watched.topic, 2)
    found = watched.lag()
    refusals = [each.facts.refusal for each in found.values()]
    assert ["nobody-made-it" in each.failure for each in refusals if each] == [True, True]
    diagnosis = found["ingest"].diagnosis
    assert (diagnosis.cause, diagnosis.advice) == ("other_topic", "topic_recreated")


def has_begun(pipeline: Pipeline) -> bool:
    """Whether a run says that it is at work; for a moment there is no file while it says so."""
    kept = read_progress(pipeline.spark, pipeline.checkpoint("ingest"))
    return kept is not None and kept.ended_at is None


def kept_run(pipeline: Pipeline) -> StreamProgress:
    kept = read_progress(pipeline.spark, pipeline.checkpoint("ingest"))
    assert kept
    return kept


def test_a_run_that_is_fenced_leaves_the_figures_of_the_run_that_goes_on(watched: Watched) -> None:
    pipeline = watched.lake.pipeline

    def kept() -> StreamProgress | None:
        return read_progress(pipeline.spark, pipeline.checkpoint("ingest"))

    first = StreamMonitor(pipeline, "ingest", None)
    wait_until(lambda: kept() is not None, "the first run has begun", 30)
    begun = kept()
    second = StreamMonitor(pipeline, "ingest", None)
    wait_until(lambda: kept() != begun, "the second run has begun", 30)
    first.end("another run writes with this checkpoint, or a copy of it")
    left = kept()
    second.end(None)
    assert left
    assert (left.failure, left.ended_at, left.previous_at) == (None, None, begun and begun.started_at)


def test_a_stream_tells_of_itself_by_http_while_it_runs_as_soon_as_its_port_is_free(
    watched: Watched, broker: str, make_lake: Callable[..., Lake], caplog: pytest.LogCaptureFixture
) -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    settings = (f"kafka.bootstrap_servers={broker}", f"kafka.topic={watched.topic}", f"metrics.port={port}")
    pipeline = make_lake(*settings, "kafka.rack.mode=client").pipeline
    seen: dict[str, str] = {}

    def look() -> None:
        for path in ("healthz", "metrics"):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10) as answer:
                seen[path] = answer.read().decode()

    def has_own() -> bool:
        with suppress(OSError):
            look()
        return "oncelake_stream_read_bytes_total{" in seen.get("metrics", "")

    def set_free() -> None:
        taken.close()
        wait_until(has_own, "it answers, and has asked for its own metrics", 60)

    watched.send(20)
    with armed(Point.BATCH_LOOKED_FOR, set_free):
        assert ingest(pipeline, once=True).records == 20
    assert caplog.text.count("The stream continues without /metrics and /healthz") == 1
    assert "oncelake_stream_offset_commits_total{" in seen["metrics"]
    assert '"status": "ok"' in seen["healthz"]
    assert 'oncelake_stream_healthy{env="local",pipeline="flights",stream="ingest"} 1.0' in seen["metrics"]
    with pytest.raises(OSError, match="refused"):
        look()


def test_rows_that_wait_to_be_published_are_counted_until_they_are(
    publishing_lake: Callable[..., Lake], contract: DataContract, topic: MakeTopic
) -> None:
    lake = publishing_lake(contract, topic(partitions=2), f"kafka.topic={topic(partitions=2)}")
    lake.ingest_and_enter([on(1, 1), on(1, 2)])

    def published() -> StageLag:
        return next(each for each in lag(lake.pipeline) if each.facts.stage == "publish")

    before = published()
    assert (before.facts.records, before.diagnosis.symptoms) == (2, (Symptom("never_ran", {}),))
    assert 0 < (before.facts.behind_s or 0) < 600
    assert send(lake) == 2
    after = published()
    assert (after.facts.records, after.diagnosis.cause) == (0, "none")
