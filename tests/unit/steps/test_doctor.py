"""What is asked of a pipeline is asked within a limit, and not of a cluster that does not answer."""

import os
import signal
from datetime import UTC, datetime, timedelta
from threading import Barrier, Event, Lock, current_thread
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from pipelines.config.loader import load_config
from pipelines.doctor.pipeline_facts import NightFacts, Part
from pipelines.errors import AuditFailed, ConfigError, InfrastructureError
from pipelines.ledger.certifications import Verdict
from pipelines.spark.pipeline import Pipeline
from pipelines.steps import doctor
from pipelines.steps import probes as asked_of_lake
from pipelines.steps.doctor import ChecksFailed, Probe, _Asked, diagnose, probes, source_probes, within
from pipelines.steps.probes import night_facts, queries_of

MINUTE = timedelta(minutes=1)
EU = "kafka.clusters.eu.bootstrap_servers=eu:1"


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


def test_each_stream_and_each_cluster_is_asked_for_once_with_several_clusters() -> None:
    config = load_config("flights", environ={}, settings=[EU, "publish.topic=out"])
    first, eu = config.sources()
    assert queries_of(config) == ("speed", "publish")
    assert queries_of(first) == queries_of(eu) == ("ingest",)
    assert queries_of(load_config("flights", environ={})) == ("ingest", "speed")
    assert "topic" not in {probe.part for probe in probes(config)}
    assert [probe.part for probe in source_probes(eu)] == ["topic", "streams", "tables"]


class Clusters:
    """Clusters of which some do not answer, and a pipeline that reads them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *down: str | None) -> None:
        self.down, self.asked = down, list[tuple[str | None, str]]()
        self.config = load_config("flights", environ={}, settings=[EU])
        self.pipeline: Any = Pipeline(None, self.config, None)  # type: ignore[arg-type]
        own = (
            Probe("topic", self.topic),
            Probe("streams", lambda _: {}),
            Probe("tables", lambda _: "tables", ("logs",)),
        )
        monkeypatch.setattr(doctor, "source_probes", lambda _: own)

    def facts(self, asked: _Asked) -> list[Any]:
        """What is known of each."""
        return [*asked.ask_clusters(self.config.sources(), (), self.pipeline)]

    def topic(self, source: Pipeline) -> str:
        cluster = source.config.cluster
        self.asked.append((cluster, source.config.kafka.bootstrap_servers))
        if cluster in self.down:
            raise InfrastructureError(f"{cluster}: no answer")
        return f"topic of {cluster}"


def test_a_cluster_that_does_not_answer_hides_none_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    clusters, asked = Clusters(monkeypatch, "eu"), _Asked()
    asked.ask("logs", lambda: (), MINUTE)
    first, eu = clusters.facts(asked)
    assert {*clusters.asked} == {(None, clusters.config.kafka.bootstrap_servers), ("eu", "eu:1")}
    assert (first.topic, first.failures) == ("topic of None", {})
    assert (eu.topic, eu.failures["topic"].words) == (None, "eu: no answer")
    assert (eu.streams, eu.tables, eu.cluster and eu.cluster.name) == ({}, "tables", "eu")
    whole: Any = asked.of(clusters.config)
    assert (whole.topic, whole.failures, whole.at) == ("topic of None", {}, eu.at)


MANY = [f"kafka.clusters.c{number}.bootstrap_servers=c{number}:1" for number in range(12)]


def test_a_cluster_that_answers_late_holds_up_no_other_and_the_order_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clusters, asked, others_asked = Clusters(monkeypatch), _Asked(), Event()

    def topic(source: Pipeline) -> str:
        if source.config.cluster is None:
            # Asked before the other one, it answers only after that was asked.
            assert others_asked.wait(30)
        else:
            others_asked.set()
        return f"topic of {source.config.cluster}"

    monkeypatch.setattr(doctor, "source_probes", lambda _: (Probe("topic", topic),))
    first, eu = clusters.facts(asked)
    assert (first.topic, first.failures, eu.topic) == ("topic of None", {}, "topic of eu")


@pytest.mark.timeout(30)
def test_ctrl_c_does_not_wait_for_clusters_that_do_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would wait for the limit of each."""
    clusters, both_asked, never = Clusters(monkeypatch), Barrier(2), Event()

    def topic(_: Pipeline) -> str:
        if both_asked.wait() == 0:
            os.kill(os.getpid(), signal.SIGINT)
        never.wait()
        return "late"

    monkeypatch.setattr(doctor, "source_probes", lambda _: (Probe("topic", topic),))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            clusters.facts(_Asked())
    finally:
        never.set()
        signal.signal(signal.SIGINT, before)


def test_no_more_than_eight_clusters_are_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clusters, lock = Clusters(monkeypatch), Lock()
    clusters.config = load_config("flights", environ={}, settings=MANY)
    running, most = set[str | None](), list[int]()
    full = Event()

    def topic(source: Pipeline) -> str:
        with lock:
            running.add(source.config.cluster)
            most.append(len(running))
        if len(running) == 8:
            full.set()
        assert full.wait(30)
        with lock:
            running.discard(source.config.cluster)
        return f"topic of {source.config.cluster}"

    monkeypatch.setattr(doctor, "source_probes", lambda _: (Probe("topic", topic),))
    found = clusters.facts(_Asked())
    assert max(most) == 8
    assert [each.topic for each in found] == [
        f"topic of {each.cluster}" for each in clusters.config.sources()
    ]


def test_what_else_is_on_the_first_cluster_says_nothing_more_if_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clusters, asked = Clusters(monkeypatch, None), _Asked()
    asked.ask("logs", lambda: ("a damaged commit",), MINUTE)
    first, eu = clusters.facts(asked)
    assert ({*first.failures}, eu.topic, eu.failures) == ({"topic"}, "topic of eu", {})
    # Tables whose logs are damaged are read for no cluster.
    assert first.tables is eu.tables is None
    asked.take(Probe("dead_letters", lambda _: "asked", ("topic",)), clusters.pipeline)
    whole = asked.of(clusters.config)
    assert (whole.dead_letters, whole.failures) == (None, {})
    assert {"topic", "dead_letters"} <= whole.left_out


@pytest.mark.parametrize(("settings", "together"), [((), 3), ((EU,), 4)])
@pytest.mark.parametrize("down", ["all", "output"])
def test_clusters_are_asked_at_once_and_the_order_of_findings_stays(
    monkeypatch: pytest.MonkeyPatch, settings: tuple[str, ...], together: int, down: str
) -> None:
    """Each of source, dead-letter topic and the cluster of publish answers only while all are asked."""
    all_asked = Barrier(together, timeout=30)
    monkeypatch.setattr(doctor, "probe_store", lambda _: None)
    monkeypatch.setattr(doctor, "damaged_logs", lambda _: None)
    monkeypatch.setattr(doctor, "stream_facts", lambda _: None)
    monkeypatch.setattr(doctor, "table_facts", lambda _: None)
    monkeypatch.setattr(doctor, "source_table_facts", lambda _: None)
    monkeypatch.setattr(doctor, "night_facts", lambda _: None)
    monkeypatch.setattr(doctor, "observed_lateness", lambda _: None)
    monkeypatch.setattr(doctor, "publishing_facts", lambda _: None)

    def answer(part: str) -> Any:
        def ask(pipeline: Pipeline) -> None:
            all_asked.wait()
            if down in ("all", part):
                raise InfrastructureError(f"{part} of {pipeline.config.cluster}: no answer")

        return ask

    monkeypatch.setattr(doctor, "output_facts", answer("output"))
    monkeypatch.setattr(doctor, "topic_facts", answer("topic"))
    monkeypatch.setattr(doctor, "dead_letter_facts", answer("dead_letter"))
    given = ("publish.topic=out", "publish.bootstrap_servers=other:9092", *settings)
    config = load_config("flights", environ={}, settings=given)
    pipeline = Pipeline(None, config, None)  # type: ignore[arg-type]
    with pytest.raises(ChecksFailed) as found:
        diagnose(config, lambda: pipeline, "error")
    of_topics = ["topic of None: no answer", *(["topic of eu: no answer"] if settings else [])]
    told = [each.found for _, each in found.value.checkup.findings() if each.found.endswith("no answer")]
    # That the dead-letter topic is on a cluster that does not answer is no second finding.
    assert told == [*(of_topics if down == "all" else []), "output of None: no answer"]


def test_a_cluster_is_named_that_there_is_and_that_is_asked() -> None:
    config = load_config("flights", environ={}, settings=[EU, "kafka.clusters.eu.retired=true"])

    def start() -> Pipeline:
        raise AssertionError("nothing is started")

    with pytest.raises(ConfigError, match=r"--cluster us: no such cluster in kafka\.clusters; there are: eu"):
        diagnose(config, start, "error", "us")
    with pytest.raises(ConfigError, match=r"kafka\.clusters\.eu\.retired: found true"):
        diagnose(config, start, "error", "eu")
    with pytest.raises(ConfigError, match="there are: none"):
        diagnose(load_config("flights", environ={}), start, "error", "eu")


@pytest.mark.parametrize(("cluster", "looked_at"), [(None, {None, "eu"}), ("eu", {"eu"})])
def test_where_no_session_starts_all_of_the_clusters_is_skipped(
    cluster: str | None, looked_at: set[str | None]
) -> None:
    config = load_config("flights", environ={}, settings=[EU])

    def start() -> Pipeline:
        raise InfrastructureError("jars cannot be fetched")

    with pytest.raises(ChecksFailed) as found:
        diagnose(config, start, "error", cluster)
    results = [each for each in found.value.checkup.results if each.check.name == "retention_is_by_time"]
    assert {each.cluster.name for each in results if each.cluster} == looked_at
    assert {each.status for each in results} == {"skipped"}
    # Nor does one answer that nobody has asked.
    answers = [each for each in found.value.checkup.results if each.check.name == "cluster_answers"]
    assert {each.status for each in answers} == {"skipped"}
    told = {check.name for check, _ in found.value.checkup.findings()}
    assert ("clusters_not_looked_at" in told) == (cluster is not None)


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


def test_the_environment_in_which_doctor_runs_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", "http://me:hush-hush@lineage:5000")

    def start() -> Pipeline:
        raise InfrastructureError("jars cannot be fetched")

    with pytest.raises(ChecksFailed) as found:
        diagnose(load_config("flights", environ={}), start, "error")
    results = {each.check.name: each for each in found.value.checkup.results}
    (finding,) = results["logins_are_encrypted"].findings
    assert finding.found.startswith("OPENLINEAGE_URL is http://lineage:5000, with a login in the address")


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
