"""What is asked of a pipeline is asked within a limit, and not of a cluster that does not answer."""

from datetime import UTC, datetime, timedelta
from threading import Event, current_thread
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from pipelines.config.loader import load_config
from pipelines.doctor.pipeline_facts import NightFacts, Part
from pipelines.errors import AuditFailed, ConfigError, InfrastructureError
from pipelines.ledger.certifications import Verdict
from pipelines.spark.pipeline import Pipeline
from pipelines.steps import probes as asked_of_lake
from pipelines.steps.doctor import ChecksFailed, _Asked, diagnose, probes, within
from pipelines.steps.probes import night_facts

MINUTE = timedelta(minutes=1)


def test_an_answer_that_does_not_come_is_given_up_and_others_come_as_they_are() -> None:
    never = Event()
    with pytest.raises(TimeoutError):
        within(timedelta(milliseconds=10), never.wait)
    never.set()
    assert within(MINUTE, lambda: 7) == 7
    # A thread that is given up does not keep the process.
    assert within(MINUTE, lambda: current_thread().daemon) is True

    def refuse() -> None:
        raise ConfigError("no such topic")

    with pytest.raises(ConfigError, match="no such topic"):
        within(MINUTE, refuse)


def test_each_part_is_asked_for_once_after_those_that_it_builds_on() -> None:
    asked = probes(load_config("flights", environ={}))
    parts = [probe.part for probe in asked]
    assert sorted([*parts, "runtime", "session"]) == sorted(get_args(Part))
    for at, probe in enumerate(asked):
        assert {*probe.builds_on} <= {*parts[:at]}, probe.part


@pytest.mark.parametrize(
    ("settings", "builds_on"),
    [
        ((), ("topic",)),
        (("publish.topic=out",), ("topic",)),
        (("publish.topic=out", "publish.bootstrap_servers=localhost:9092"), ("topic",)),
        (("publish.topic=out", "publish.bootstrap_servers=other:9092"), ()),
    ],
)
def test_another_cluster_is_asked_even_if_the_first_does_not_answer(
    settings: tuple[str, ...], builds_on: tuple[Part, ...]
) -> None:
    asked = {probe.part: probe for probe in probes(load_config("flights", environ={}, settings=settings))}
    assert asked["output"].builds_on == builds_on


def test_a_session_that_does_not_start_is_one_finding_and_the_rest_is_skipped() -> None:
    config = load_config("flights", environ={})

    def start() -> Pipeline:
        raise InfrastructureError("jars cannot be fetched")

    with pytest.raises(ChecksFailed, match="findings of severity error: session_starts") as found:
        diagnose(config, start, "error")
    assert isinstance(found.value, AuditFailed)
    assert found.value.exit_code == 3
    results = {each.check.name: each for each in found.value.checkup.results}
    assert results["session_starts"].findings[0].found == "jars cannot be fetched"
    assert results["commits_are_whole"].status == results["put_if_absent"].status == "skipped"
    assert results["jars_are_whole"].status in ("passed", "found")


def test_when_bronze_began_is_asked_only_as_long_as_no_night_has_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, newest = list[str](), list[Verdict]()
    made = datetime(2026, 1, 1, tzinfo=UTC)

    def since(_: object, path: str) -> datetime:
        asked.append(path)
        return made

    pipeline: Any = SimpleNamespace(spark=None, table=str)
    monkeypatch.setattr(asked_of_lake, "verdicts", lambda _: newest)
    monkeypatch.setattr(asked_of_lake, "last_commit_at", lambda *_: made)
    monkeypatch.setattr(asked_of_lake, "filled_since", since)
    assert night_facts(pipeline) == NightFacts((), None, made, bronze_since=made)
    newest.append(Verdict("p", made.date(), "failed", "run", 1, 1, 2, 2, 0, 0, 0, 0, 0, 2, made))
    assert night_facts(pipeline) == NightFacts((made.date(),), made, made)
    assert asked == ["bronze"]


def test_what_passes_while_other_parts_are_asked_makes_no_stream_late() -> None:
    before = datetime.now(UTC)
    asked = _Asked()
    after = datetime.now(UTC)
    asked.ask("store", lambda: None, MINUTE)
    assert before <= asked.of(load_config("flights", environ={})).at <= after
