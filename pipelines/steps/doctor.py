"""Doctor: asks for what is known of a pipeline, each part within a limit of time, and makes all checks."""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from pipelines.config.clusters import require_not_retired
from pipelines.config.model import PipelineConfig
from pipelines.doctor.check_report import CheckReport, run_checks
from pipelines.doctor.findings import FailOn
from pipelines.doctor.lateness import observed_lateness
from pipelines.doctor.pipeline_facts import Failure, Part, PipelineFacts
from pipelines.errors import AuditFailed, OncelakeError
from pipelines.spark.failures import cause, explain_failure
from pipelines.spark.log_store import probe_store
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.plain_endpoints import plain_endpoints
from pipelines.steps.damaged_logs import damaged_logs
from pipelines.steps.probes import (
    dead_letter_facts,
    night_facts,
    output_facts,
    publishing_facts,
    runtime_facts,
    source_table_facts,
    stream_facts,
    table_facts,
    topic_facts,
)

LIMIT: Final = timedelta(minutes=1)
"""How long a part may take. What asks a cluster may also wait for `kafka.connect_timeout`."""

_CLUSTERS_AT_ONCE: Final = 8

_Answer = TypeVar("_Answer")


class ChecksFailed(AuditFailed):
    """Doctor has found something that is as grave as the level at which it fails. Exit code 3.

    Attributes:
        checkup: What came of all checks.
    """

    def __init__(self, message: str, checkup: CheckReport) -> None:
        super().__init__(message)
        self.checkup = checkup


@dataclass(frozen=True)
class Probe:
    """What asks for a part of the facts.

    Attributes:
        part: The part.
        ask: Asks for it.
        builds_on: Parts without which it is not asked for: it would fail in the same way, or mislead.
        limit: How long it may take.
        is_of_cluster: Whether it asks a cluster, and nothing of the lake: then it is asked for at once with
            the others that do.
    """

    part: Part
    ask: Callable[[Pipeline], object]
    builds_on: tuple[Part, ...] = ()
    limit: timedelta = LIMIT
    is_of_cluster: bool = False


def probes(config: PipelineConfig) -> tuple[Probe, ...]:
    """Return what is asked of a pipeline whose session has started, in this order.

    What is asked of each of several clusters is in `source_probes`, and comes after the first two.
    """
    publish, asking = config.publish, LIMIT + config.kafka.connect_timeout
    is_same = publish is None or publish.bootstrap_servers in (None, config.kafka.bootstrap_servers)
    topic = Probe("topic", topic_facts, limit=asking, is_of_cluster=True)
    return (
        Probe("store", probe_store),
        Probe("logs", damaged_logs),
        *(() if config.kafka.has_others else (topic,)),
        Probe("dead_letters", dead_letter_facts, ("topic",), asking, is_of_cluster=True),
        Probe("output", output_facts, ("topic",) if is_same else (), asking, is_of_cluster=True),
        Probe("streams", stream_facts),
        # Delta takes a commit that is cut off for the end of the log, or for none.
        Probe("tables", table_facts, ("logs",)),
        Probe("nights", night_facts, ("logs", "tables")),
        Probe("lateness", observed_lateness, ("logs", "tables")),
        Probe("publishing", publishing_facts, ("output",), asking),
    )


def source_probes(source: PipelineConfig) -> tuple[Probe, ...]:
    """Return what is asked of one of several clusters: first of itself, then of its ingest, in this order."""
    return (
        Probe("topic", topic_facts, limit=LIMIT + source.kafka.connect_timeout),
        Probe("streams", stream_facts),
        Probe("tables", source_table_facts, ("logs",)),
    )


def diagnose(
    config: PipelineConfig, start: Callable[[], Pipeline], fail_on: FailOn, cluster: str | None = None
) -> CheckReport:
    """Ask for all that is known of a pipeline, and make all checks.

    Args:
        config: The configuration.
        start: Starts the session.
        fail_on: The level from which on a finding is a failure.
        cluster: Of several clusters the one whose source is asked for; None for all that are not retired.

    Raises:
        ChecksFailed: There is such a finding.
        ConfigError: There is no cluster of this name, or it is retired.
    """
    sources = _sources(config, cluster)
    facts = _Asked()
    facts.ask("runtime", lambda: runtime_facts(config), LIMIT)
    pipeline: Any = None
    if "runtime" not in facts.failures:
        # In this thread, which Spark's signals belong to.
        pipeline = facts.start(start)
    store, logs, *others = probes(config)
    for probe in (store, logs):
        facts.take(probe, pipeline)
    of_sources = facts.ask_clusters(sources, [each for each in others if each.is_of_cluster], pipeline)
    for probe in others:
        if not probe.is_of_cluster:
            facts.take(probe, pipeline)
    environment = tuple(plain_endpoints(os.environ))
    checkup = run_checks(replace(facts.of(config), sources=of_sources, environment=environment))
    if names := checkup.at_least(fail_on):
        level = "error" if fail_on == "error" else "error or warning"
        raise ChecksFailed(
            f"{config.name}: findings of severity {level}: {', '.join(names)}; expected none. Each finding"
            " says what to do, see docs/doctor.md",
            checkup,
        )
    return checkup


def _sources(config: PipelineConfig, cluster: str | None) -> tuple[PipelineConfig, ...]:
    """Return the sources of those of several clusters that are asked; none if there is one cluster.

    Raises:
        ConfigError: There is no cluster of this name, or it is retired.
    """
    if cluster is not None:
        source = config.source(cluster)
        require_not_retired(source.kafka)
        return (source,)
    several = config.sources() if config.kafka.has_others else ()
    return tuple(source for source in several if not source.kafka.retired)


class _Asked:
    """The parts that were asked for."""

    def __init__(self, at: datetime | None = None) -> None:
        # What passes while others are asked makes nobody late.
        self._at = at or datetime.now(UTC)
        self.failures = dict[Part, Failure]()
        self._parts = dict[Part, Any]()
        self._left_out = set[Part]()

    def start(self, start: Callable[[], Pipeline]) -> Pipeline | None:
        """Start the session; None if it does not start."""
        try:
            return start()
        except OncelakeError as error:
            self.failures["session"] = Failure(str(error))
        except (PySparkException, Py4JError) as error:
            self.failures["session"] = Failure(f"Spark does not start: {cause(error)}", is_ours=False)
        return None

    def take(self, probe: Probe, pipeline: Pipeline | None) -> None:
        """Ask for a part, unless what it builds on has failed."""
        if pipeline is None or not self._lost.isdisjoint(probe.builds_on):
            self._left_out.add(probe.part)
            return
        self.ask(probe.part, lambda: probe.ask(pipeline), probe.limit)

    @property
    def _lost(self) -> set[Part]:
        """The parts on which nothing can be built: they are not known, or logs are damaged."""
        damaged: set[Part] = {"logs"} if self._parts.get("logs") else set()
        return {*self.failures, *self._left_out, *damaged}

    def ask_clusters(
        self, sources: Sequence[PipelineConfig], others: Sequence[Probe], pipeline: Pipeline | None
    ) -> tuple[PipelineFacts, ...]:
        """Ask clusters at once; one that does not answer neither hides nor holds up another.

        Args:
            sources: Of several clusters, those that are asked.
            others: What else asks a cluster, in the order in which it is taken.
            pipeline: The pipeline; None if no session has started.

        Returns:
            What is known of each source.
        """
        free = threading.Semaphore(_CLUSTERS_AT_ONCE)

        def ask(source: PipelineConfig) -> "_Asked":
            with free:
                return self._ask_cluster(source, pipeline)

        # No pool of threads: whoever leaves one waits for all of them, also after Ctrl-C.
        answers = [_answer_to(partial(ask, source)) for source in sources]
        answers_of_others = [_answer_to(partial(self._ask_apart, probe, pipeline)) for probe in others]
        asked = [answer.result() for answer in answers]
        for source, own in zip(sources, asked, strict=True):
            self._take_topic(source, own)
        for probe, answer in zip(others, answers_of_others, strict=True):
            self._take_answer(probe, answer.result())
        # Queries set what the session has for all, so what the lake knows of a source is asked one by one.
        return tuple(
            self._ask_lake(source, own, pipeline) for source, own in zip(sources, asked, strict=True)
        )

    def _ask_cluster(self, source: PipelineConfig, pipeline: Pipeline | None) -> "_Asked":
        """Ask a cluster itself."""
        own = _Asked(self._at)
        own._left_out |= self._lost & {"logs"}
        cluster, *_ = source_probes(source)
        own.take(cluster, pipeline and replace(pipeline, config=source))
        return own

    def _ask_lake(self, source: PipelineConfig, own: "_Asked", pipeline: Pipeline | None) -> PipelineFacts:
        """Ask for what the lake knows of a source whose cluster was asked."""
        _, *others = source_probes(source)
        for probe in others:
            own.take(probe, pipeline and replace(pipeline, config=source))
        return own.of(source)

    def _ask_apart(self, probe: Probe, pipeline: Pipeline | None) -> "_Asked":
        """Ask for a part alone, whatever becomes of what it builds on."""
        own = _Asked(self._at)
        own.take(replace(probe, builds_on=()), pipeline)
        return own

    def _take_answer(self, probe: Probe, own: "_Asked") -> None:
        """Take what came of a part, unless what it builds on has failed: it says the same, or misleads."""
        if not self._lost.isdisjoint(probe.builds_on):
            self._left_out.add(probe.part)
            return
        self._parts |= own._parts
        self.failures |= own.failures
        self._left_out |= own._left_out

    def _take_topic(self, source: PipelineConfig, own: "_Asked") -> None:
        """Take the topic of the first cluster, on which the dead-letter topic is."""
        if source.cluster is None and "topic" in own._parts:
            self._parts["topic"] = own._parts["topic"]
        elif source.cluster is None:
            # Whatever else asks the first cluster finds no more.
            self._left_out.add("topic")

    def ask(self, part: Part, ask: Callable[[], object], limit: timedelta) -> None:
        """Ask for a part, and wait no longer than a limit."""
        try:
            self._parts[part] = within(limit, ask)
        except TimeoutError:
            words = f"{part.replace('_', ' ')}: no answer within {limit.total_seconds():.0f} s"
            self.failures[part] = Failure(words, is_ours=False)
        except OncelakeError as error:
            self.failures[part] = Failure(str(error))
        except (PySparkException, Py4JError) as error:
            explained = explain_failure(error)
            words = str(explained or f"{part.replace('_', ' ')}: {cause(error)}")
            self.failures[part] = Failure(words, is_ours=explained is not None)

    def of(self, config: PipelineConfig) -> PipelineFacts:
        """Return all that is known."""
        parts: Mapping[str, Any] = {part: found for part, found in self._parts.items() if found is not None}
        return PipelineFacts(config, self._at, self.failures, frozenset(self._left_out), **parts)


def within(limit: timedelta, ask: Callable[[], object]) -> object:
    """Return an answer, unless it takes too long; then it is given up, and its thread ends with the process.

    Raises:
        TimeoutError: It takes too long.
    """
    return _answer_to(ask).result(limit.total_seconds())


def _answer_to(ask: Callable[[], _Answer]) -> Future[_Answer]:
    """Return the answer that a thread of its own will have, which does not keep the process."""
    answer = Future[_Answer]()

    def work() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it
            answer.set_exception(error)

    threading.Thread(target=work, name="doctor", daemon=True).start()
    return answer
