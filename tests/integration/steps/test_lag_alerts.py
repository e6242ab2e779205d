"""People are told once that a stream is behind, and once that it no longer is, by the hooks of `notify`."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from pipelines.config.model import LagConfig, NotifyConfig
from pipelines.contracts.contract import DataContract
from pipelines.errors import InfrastructureError, SourceError
from pipelines.lag.alert_file import write_alerts
from pipelines.lag.alerts import AlertState, PipelineAlerts
from pipelines.steps.ingest import ingest
from pipelines.steps.lag import StageLag, lag
from pipelines.steps.lag_alerts import LagAlerts
from testbed.waiting import wait_until
from tests.support.kafka import fresh_topics
from tests.support.lake_copies import lake_in
from tests.support.lakes import Lake, flight


@dataclass(frozen=True)
class Behind:
    """What `lag` finds of a pipeline whose topic has 20 records.

    Attributes:
        by_all: where neither stream has ever run.
        by_speed: where ingest has run.
    """

    by_all: list[StageLag]
    by_speed: list[StageLag]


@pytest.fixture(scope="module")
def behind(
    spark: SparkSession,
    contract: DataContract,
    broker: str,
    admin: AdminClient,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Behind]:
    with fresh_topics(admin) as topic:
        name = topic(partitions=1)
        producer = Producer({"bootstrap.servers": broker})
        for number in range(20):
            producer.produce(name, flight(flight=number + 1))
        assert producer.flush(60) == 0
        settings = (f"kafka.bootstrap_servers={broker}", f"kafka.topic={name}")
        pipeline = lake_in(tmp_path_factory.mktemp("behind"), spark, contract, *settings).pipeline
        by_all = list(lag(pipeline))
        ingest(pipeline, once=True)
        yield Behind(by_all, list(lag(pipeline)))


class Alerted:
    """A lake whose hook appends what it is told to a file."""

    def __init__(self, lake: Lake, folder: Path) -> None:
        self.lake, self.told_to = lake, folder / "told"
        command = (
            "sh",
            "-c",
            f"cat >> {self.told_to}; echo >> {self.told_to}; test ! -e {folder / 'broken'}",
        )
        settings = {"notify": NotifyConfig(command=command), "lag": LagConfig(raise_after=2, clear_after=2)}
        lake.config = lake.config.model_copy(update=settings)

    def evaluate(self, found: Sequence[StageLag]) -> Mapping[str, AlertState]:
        """One evaluation by a process of its own."""
        return LagAlerts(self.lake.pipeline, goes_on=False).take(found)

    def told(self) -> list[dict[str, Any]]:
        if not self.told_to.exists():
            return []
        return [json.loads(line) for line in self.told_to.read_text().splitlines()]

    def changes(self) -> list[tuple[str, str]]:
        return [(each["stage"], each["alert"]) for each in self.told()]


@pytest.fixture
def alerted(make_lake: Callable[..., Lake], tmp_path: Path) -> Alerted:
    return Alerted(make_lake(), tmp_path)


def test_each_alert_is_told_once_when_it_is_raised_and_once_when_it_is_cleared(
    alerted: Alerted, behind: Behind
) -> None:
    alerted.evaluate(behind.by_all)
    assert alerted.told() == []
    for _ in range(3):
        states = alerted.evaluate(behind.by_all)
    assert alerted.changes() == [("ingest", "raised"), ("speed", "raised")]
    assert {name: state.is_raised for name, state in states.items()} == {
        "evaluation": False,
        "ingest": True,
        "speed": True,
    }
    first = alerted.told()[0]
    assert (first["job"], first["pipeline"], first["env"]) == ("lag", "flights", "local")
    assert (first["cause"], first["evidence"], first["records"]) == ("stopped", ["it has never run"], 20)
    assert first["advice"] == "start it: oncelake ingest_stream --pipeline flights"

    for _ in range(3):
        alerted.evaluate(behind.by_speed)
    assert alerted.changes()[2:] == [("ingest", "cleared")]


def test_a_hook_that_failed_is_called_again_by_the_next_process(
    alerted: Alerted, behind: Behind, tmp_path: Path
) -> None:
    (tmp_path / "broken").touch()
    alerted.evaluate(behind.by_all)
    alerted.evaluate(behind.by_all)
    # It is not called for what stands behind.
    assert alerted.changes() == [("ingest", "raised")]
    (tmp_path / "broken").unlink()
    alerted.evaluate(behind.by_all)
    assert alerted.changes()[1:] == [("ingest", "raised"), ("speed", "raised")]
    alerted.evaluate(behind.by_all)
    assert len(alerted.told()) == 3


def test_lag_that_cannot_be_found_out_is_an_alert_of_its_own(alerted: Alerted) -> None:
    for _ in range(2):
        LagAlerts(alerted.lake.pipeline, goes_on=False).take(SourceError("the topic is empty"))
    (told,) = alerted.told()
    assert (told["stage"], told["alert"], told["error"]) == ("evaluation", "raised", "the topic is empty")


def test_alerts_that_cannot_be_kept_are_told_only_by_a_process_that_goes_on(
    alerted: Alerted, behind: Behind
) -> None:
    # No folder can be made in place of a file.
    folder = Path(alerted.lake.config.alerts_file).parent
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.touch()
    for _ in range(3):
        with pytest.raises(InfrastructureError, match="the alerts of lag cannot be kept"):
            LagAlerts(alerted.lake.pipeline, goes_on=False).take(behind.by_all)
    assert alerted.told() == []
    lasting = LagAlerts(alerted.lake.pipeline, goes_on=True)
    for _ in range(3):
        lasting.take(behind.by_all)
    assert alerted.changes() == [("ingest", "raised"), ("speed", "raised")]


def test_a_file_that_cannot_be_read_is_not_taken_for_none(
    alerted: Alerted, behind: Behind, caplog: pytest.LogCaptureFixture
) -> None:
    Path(alerted.lake.config.alerts_file).mkdir(parents=True)
    with pytest.raises(InfrastructureError, match="the alerts of lag cannot be read"):
        alerted.evaluate(behind.by_all)
    # Where the lag itself cannot be found out, that is the failure.
    LagAlerts(alerted.lake.pipeline, goes_on=False).take_failure(SourceError("the topic is empty"))
    assert "the alerts of lag cannot be read" in caplog.text


def test_the_alert_of_a_stage_that_the_pipeline_no_longer_has_is_cleared(
    alerted: Alerted, behind: Behind
) -> None:
    raised = AlertState(is_raised=True, changed_at=datetime(2026, 1, 1, tzinfo=UTC))
    write_alerts(alerted.lake.pipeline, PipelineAlerts({"publish": raised}))
    alerted.evaluate(behind.by_all)
    alerted.evaluate(behind.by_all)
    assert ("publish", "cleared") in alerted.changes()


def test_a_file_that_nobody_understands_is_replaced(
    alerted: Alerted, behind: Behind, caplog: pytest.LogCaptureFixture
) -> None:
    file = Path(alerted.lake.config.alerts_file)
    file.parent.mkdir(parents=True)
    file.write_text("[]")
    alerted.evaluate(behind.by_all)
    assert "is not a valid alerts file" in caplog.text
    assert alerted.evaluate(behind.by_all)["ingest"].is_raised


def test_processes_that_evaluate_beside_each_other_tell_nothing_twice(
    alerted: Alerted, behind: Behind
) -> None:
    lasting = LagAlerts(alerted.lake.pipeline, goes_on=True)
    for _ in range(3):
        lasting.take(behind.by_all)
        alerted.evaluate(behind.by_all)
    assert alerted.changes() == [("ingest", "raised"), ("speed", "raised")]
    # Each counts, and knows what the other has found.
    lasting.take(behind.by_speed)
    states = alerted.evaluate(behind.by_speed)
    assert not states["ingest"].is_raised
    lasting.take(behind.by_speed)
    assert alerted.changes()[2:] == [("ingest", "cleared")]


def test_processes_that_evaluate_at_the_same_moment_take_turns(
    alerted: Alerted, behind: Behind, tmp_path: Path
) -> None:
    alerted.evaluate(behind.by_all)
    told_to, go = alerted.told_to, tmp_path / "go"
    waits = f"cat >> {told_to}; echo >> {told_to}; until test -e {go}; do sleep 0.1; done"
    notify = NotifyConfig(command=("sh", "-c", waits))
    alerted.lake.config = alerted.lake.config.model_copy(update={"notify": notify})
    pipeline = alerted.lake.pipeline
    both = [
        threading.Thread(target=LagAlerts(pipeline, goes_on=False).take, args=(behind.by_all,)) for _ in "ab"
    ]
    for each in both:
        each.start()
    wait_until(lambda: bool(alerted.told()), "one of them calls the hook")
    # Long enough for the other to do so, if it did not wait.
    for each in both:
        each.join(1)
    assert len(alerted.told()) == 1
    go.touch()
    for each in both:
        each.join()
    assert alerted.changes() == [("ingest", "raised"), ("speed", "raised")]


def test_what_could_not_be_kept_is_kept_by_a_later_evaluation(alerted: Alerted, behind: Behind) -> None:
    lasting = LagAlerts(alerted.lake.pipeline, goes_on=True)
    lasting.take(behind.by_all)
    file = Path(alerted.lake.config.alerts_file)
    file.unlink()
    file.mkdir()
    lasting.take(behind.by_all)
    assert alerted.changes() == [("ingest", "raised"), ("speed", "raised")]
    file.rmdir()
    lasting.take(behind.by_all)
    alerted.evaluate(behind.by_all)
    assert len(alerted.told()) == 2
