"""Console: collects what is known of all pipelines of a lake; none of them holds up the others."""

import re
import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import Final, Unpack

from pyspark.sql import SparkSession

import pipelines
from pipelines.config.loader import require_pipelines
from pipelines.config.model import PipelineConfig
from pipelines.console.readings import WITHHELD, Readings, why
from pipelines.console.view import (
    DAYS_SHOWN,
    ClusterFigures,
    DiagnosedStage,
    DiagnosisTexts,
    LakeFigures,
    LakeView,
    PipelineView,
    RackFigures,
    Reading,
)
from pipelines.contracts.contract import DataContract
from pipelines.delta.tables import exists, table_id, version
from pipelines.errors import ConfigError, OncelakeError
from pipelines.lag.stage_facts import StageFacts
from pipelines.lag.stages import streams
from pipelines.lag.texts import advice_text, symptom_text
from pipelines.ledger.overview import PipelineLedger, ledgers
from pipelines.spark.checkpoints import query_files
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.lag import StageLag, lag
from pipelines.steps.loading import Places, load_pipeline
from pipelines.steps.quarantine import unresolved_reasons
from pipelines.steps.racks import diagnose_racks

_REPORT: Final = re.compile(r"(.+)-(\d{4}-\d\d-\d\d)\.html")


@dataclass(frozen=True)
class ConfiguredPipeline:
    """A pipeline as its files describe it.

    Attributes:
        name: Its name.
        loaded: Its configuration and contract; None if they are refused.
        refusal: Why they are.
    """

    name: str
    loaded: tuple[PipelineConfig, DataContract] | None = None
    refusal: str | None = None


def describe_all(**places: Unpack[Places]) -> list[ConfiguredPipeline]:
    """Load all pipelines of an environment, whatever is wrong with some of them.

    Raises:
        ConfigError: There are none, or each of them is refused.
    """
    found = []
    for name in require_pipelines(places["conf_dir"], places["env"]):
        try:
            found.append(ConfiguredPipeline(name, load_pipeline(name, **places)))
        except OncelakeError as error:
            found.append(ConfiguredPipeline(name, refusal=str(error)))
    if not any(each.loaded for each in found):
        raise ConfigError("\n".join(f"{each.name}: {each.refusal}" for each in found))
    return found


@dataclass(frozen=True)
class CollectionLimits:
    """When figures are old, and how long they are waited for.

    Attributes:
        old_after_s: The age in seconds from which on figures are old.
        answer_s: For how many seconds an answer about a pipeline is waited for before the page says so.
    """

    old_after_s: float
    answer_s: float


class Collector:
    """Collects what the console shows.

    Args:
        spark: The session, for all pipelines.
        described: The pipelines.
        reports: The folder of reports.
        limits: When figures are old.
    """

    def __init__(
        self,
        spark: SparkSession,
        described: Sequence[ConfiguredPipeline],
        reports: Path,
        limits: CollectionLimits,
    ) -> None:
        self._spark, self._described, self._reports, self._limits = spark, described, reports, limits
        self._pipelines = {each.name: Pipeline(spark, *each.loaded) for each in described if each.loaded}
        loaded = list(self._pipelines.values())
        self._env = loaded[0].config.env
        self._ledgers = {each.name: Reading[PipelineLedger]() for each in loaded}
        self._days: dict[str, set[date]] = {}
        self._failure: str | None = None
        self._news = threading.Event()
        self._withheld = frozenset(each.name for each in loaded if each.contract.personal)
        shared = (limits.answer_s, self._news, self._withheld)
        self._lake = Readings({each.name: partial(_read_lake, each) for each in loaded}, *shared)
        self._cluster = Readings({each.name: partial(_read_cluster, each) for each in loaded}, *shared)

    def gather(self) -> None:
        """Read the tables that pipelines share, and have the rest read; what fails is told in the view."""
        self._lake.ask()
        self._cluster.ask()
        self._days = _days_with_report(self._reports)
        by_root = defaultdict(list)
        for each in self._pipelines.values():
            by_root[each.config.root].append(each.config)
        self._failure = None
        for root, configs in by_root.items():
            began = datetime.now(UTC)
            try:
                found = ledgers(self._spark, configs, DAYS_SHOWN)
            except Exception as error:  # noqa: BLE001 - whatever it is, the page says it
                withholds = any(config.name in self._withheld for config in configs)
                self._failure = f"{root}: {why(error, withholds=withholds)}"
                for config in configs:
                    self._ledgers[config.name] = self._ledgers[config.name].failed(self._failure)
            else:
                self._ledgers |= {
                    name: Reading(_harmless_ledger(ledger) if name in self._withheld else ledger, began)
                    for name, ledger in found.items()
                }

    def wait_for_news(self, most_s: float) -> None:
        """Wait until a pipeline was read, or for some seconds at most."""
        self._news.wait(most_s)
        self._news.clear()

    def is_done(self) -> bool:
        """Return whether all is read that was asked for, or is not to be waited for any longer."""
        now = datetime.now(UTC)
        return self._lake.is_done(now) and self._cluster.is_done(now)

    def view(self) -> LakeView:
        """Return what is known now."""
        now = datetime.now(UTC)
        return LakeView(
            self._env,
            pipelines.__version__,
            now,
            self._limits.old_after_s,
            tuple(self._view(each, now) for each in self._described),
            self._failure,
        )

    def _view(self, described: ConfiguredPipeline, now: datetime) -> PipelineView:
        name = described.name
        if described.loaded is None:
            return PipelineView(name, described.refusal)
        config, contract = described.loaded
        return PipelineView(
            name,
            zone=contract.day_time_zone,
            publishes_to=config.publish.topic if config.publish else None,
            ledger=self._ledgers[name],
            lake=self._lake.of(name, now),
            cluster=self._cluster.of(name, now),
            reports=frozenset(self._days.get(name, ())),
        )


def _read_lake(pipeline: Pipeline, before: LakeFigures | None) -> LakeFigures:
    spark, table = pipeline.spark, pipeline.table("quarantine")
    state = f"{table_id(spark, table)} {version(spark, table)}" if exists(spark, table) else None
    if before and before.quarantine_state == state:
        # Whoever has a large quarantine need not sort it again.
        reasons = before.quarantine
    else:
        reasons = unresolved_reasons(pipeline) if state else ()
    publish = query_files(spark, pipeline.checkpoint("publish")).query if pipeline.config.publish else None
    withholds = bool(pipeline.contract.personal)
    stages = (_harmless_stage(each) if withholds else each for each in streams(pipeline))
    return LakeFigures(tuple(stages), reasons, state, withholds, publish)


def _read_cluster(pipeline: Pipeline, before: ClusterFigures | None) -> ClusterFigures:
    withholds = bool(pipeline.contract.personal)
    told = (_harmless(each) if withholds else each for each in lag(pipeline))
    stages = tuple(DiagnosedStage(each.facts, _texts(each)) for each in told)
    asked = (each for each in pipeline.sources() if not each.config.kafka.retired)
    return ClusterFigures(stages, tuple(_read_racks(each, withholds=withholds) for each in asked))


def _read_racks(source: Pipeline, *, withholds: bool) -> RackFigures:
    """Return what of a cluster's topic can be read within a rack; a failure hides nothing else."""
    cluster, mode = source.config.cluster, source.config.kafka.rack.mode
    try:
        found = diagnose_racks(source, (), None, 0.0)
    except Exception as error:  # noqa: BLE001 - what is known of the rest is shown all the same
        return RackFigures(mode, cluster=cluster, failure=why(error, withholds=withholds))
    shares = found.advice.shares if found.executors else {}
    return RackFigures(mode, shares, tuple(found.advice.hints), cluster)


def _harmless(stage: StageLag) -> StageLag:
    """Return a stage without the causes of failures, which may name values of records."""
    symptoms = tuple(
        replace(each, figures={**each.figures, "failure": WITHHELD}) if "failure" in each.figures else each
        for each in stage.diagnosis.symptoms
    )
    diagnosis = replace(stage.diagnosis, symptoms=symptoms)
    return replace(stage, facts=_harmless_stage(stage.facts), diagnosis=diagnosis)


def _harmless_stage(facts: StageFacts) -> StageFacts:
    stream, refusal = facts.stream, facts.refusal
    return replace(
        facts,
        stream=replace(stream, failure=WITHHELD) if stream and stream.failure else stream,
        refusal=replace(refusal, failure=WITHHELD) if refusal else None,
    )


def _harmless_ledger(ledger: PipelineLedger) -> PipelineLedger:
    steps = (replace(each, detail=WITHHELD) if each.status == "failed" else each for each in ledger.steps)
    return replace(ledger, steps=tuple(steps))


def _texts(stage: StageLag) -> DiagnosisTexts:
    found = stage.diagnosis
    symptoms = tuple(symptom_text(each) for each in found.symptoms)
    return DiagnosisTexts(found.cause, symptoms, found.confidence, advice_text(found.advice, stage.start))


def _days_with_report(folder: Path) -> dict[str, set[date]]:
    """Return the days of which a folder has a page, by pipeline; none if the folder cannot be read."""
    found = defaultdict(set)
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError:
        return {}
    for match in filter(None, map(_REPORT.fullmatch, names)):
        try:
            found[match[1]].add(date.fromisoformat(match[2]))
        except ValueError:
            # Another file that happens to look like a report.
            continue
    return found
