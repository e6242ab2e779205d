"""`oncelake lag`: how far are the streams behind, and why?"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

import click
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from rich import box
from rich.console import Console
from rich.table import Table

from pipelines.cli.job_runner import Job, JobFailed, run_job
from pipelines.cli.options import CommonOptions, LogFormat, common_options, once, output_option
from pipelines.cli.parameter_types import SECONDS
from pipelines.cli.terminal import harmless
from pipelines.config.model import PipelineConfig
from pipelines.contracts.contract import DataContract
from pipelines.durations import about
from pipelines.errors import ConfigError, InfrastructureError, OncelakeError
from pipelines.lag.alerts import AlertState, raised_since
from pipelines.lag.stage_facts import PartitionLag, StageFacts
from pipelines.lag.texts import advice_text, caught_up_text, least_retention, rate_text, symptom_text
from pipelines.runtime.notifications import HOOK_SETTINGS, hooks
from pipelines.spark.failures import cause, explain_failure
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.lag import StageLag, write_lag_metrics
from pipelines.steps.lag import lag as lag_of
from pipelines.steps.lag_alerts import LagAlerts

_COLUMNS: Final = ("stage", "partition", "records", "behind", "in/s", "out/s", "caught up", "deleted in")
_WIDTH: Final = 100
# Of a topic with a thousand partitions, a person looks at the worst.
_MOST_ROWS: Final = 12


@click.command()
@common_options
@output_option
@once(
    "--watch",
    type=SECONDS,
    metavar="SECONDS",
    help="Repeat until Ctrl-C, with a pause of SECONDS in between.",
)
@click.option(
    "--alert",
    "is_alerting",
    is_flag=True,
    help="Call the notify hooks when a stream falls behind, and again when it has caught up.",
)
@click.option(
    "--metrics",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Also write FOLDER/PIPELINE.lag.prom for Prometheus' textfile collector.",
)
def lag(
    output: LogFormat | None, watch: float | None, is_alerting: bool, metrics: Path | None, **common: Any
) -> None:
    """Show how far each stream is behind, and name the cause."""
    options = CommonOptions(**common)
    is_json = (output or options.log_format) == "json"

    def body(pipeline: Pipeline, run_id: str) -> dict[str, Any]:
        alerts = LagAlerts(pipeline, goes_on=watch is not None) if is_alerting else None
        evaluate = partial(_evaluation, pipeline, alerts, metrics)
        if watch is not None:
            _watch(evaluate, watch, is_json=is_json)
        return evaluate()

    # To end a watch is no failure.
    check = _require_hook if is_alerting else None
    run_job(Job("lag", body, check, is_stream=watch is not None), options, output)


def _require_hook(config: PipelineConfig, contract: DataContract) -> None:
    """Make sure that an alert has somebody to go to.

    Raises:
        ConfigError: It has not.
    """
    if not any(hooks(config.notify)):
        raise ConfigError(
            f"--alert: pipeline {config.name} has no hook that could be called; set"
            f" {' or '.join(HOOK_SETTINGS)}, or leave --alert out"
        )


def _evaluation(pipeline: Pipeline, alerts: LagAlerts | None, metrics: Path | None) -> dict[str, Any]:
    """Return what is told of the lag; people, or Prometheus, are told of it if that is asked for.

    Raises:
        OncelakeError: The lag cannot be found out, alerts cannot be kept, or metrics not be written.
    """
    try:
        stages = stages_of(pipeline)
    except OncelakeError as error:
        states = alerts.take_failure(error) if alerts else None
        if states is None:
            raise
        raise JobFailed(error, {"alerts": raised_since(states)}) from None
    told = summary_of(stages)
    if alerts:
        told = alerts_told(told, alerts.take(stages))
    # Behind the alerts: who cannot write a file still calls people.
    if metrics:
        write_lag_metrics(pipeline, stages, metrics)
    return told


def stages_of(pipeline: Pipeline) -> list[StageLag]:
    """Return the lag of the stages.

    Raises:
        OncelakeError: It cannot be found out.
    """
    try:
        return lag_of(pipeline)
    except (PySparkException, Py4JJavaError) as error:
        # One failure does not end a watch, and counts for an alert.
        raise explain_failure(error) or InfrastructureError(
            f"{pipeline.config.root}: the lag cannot be found out: {cause(error)}. Check that this user may"
            " read there, and that the store answers"
        ) from None


def alerts_told(told: dict[str, Any], alerts: Mapping[str, AlertState]) -> dict[str, Any]:
    """Add the alerts to what is told of the lag.

    Args:
        told: As `summary_of` returns it.
        alerts: The alert of each stage, and of the evaluation itself.

    Returns:
        With `alerts`: those that are raised, each with the time since when; and a line for each.
    """
    raised = raised_since(alerts)
    lines = [f"alert: {name}, raised at {at}" for name, at in raised.items()]
    return {**told, "alerts": raised, "lines": [*told["lines"], *lines]}


def _watch(evaluate: Callable[[], dict[str, Any]], seconds: float, *, is_json: bool) -> NoReturn:
    """Print the lag again and again, until the process is told to stop; what fails is tried again."""
    while True:
        try:
            told = evaluate()
        except OncelakeError as error:
            told = {"error": str(error), "lines": [f"error: {harmless(str(error))}"]}
        now = datetime.now(UTC).isoformat(timespec="seconds")
        print(
            json.dumps({"at": now, **told}) if is_json else "\n".join([now, *told["lines"], ""]), flush=True
        )
        time.sleep(seconds)


def summary_of(stages: Sequence[StageLag]) -> dict[str, Any]:
    """Tell how far the stages of a pipeline are behind.

    Args:
        stages: What is known of them.

    Returns:
        `stages`: for each its figures, its partitions and the `diagnosis`; `lines`.
    """
    return {
        "stages": [_document(each) for each in stages],
        "lines": [*_table(stages), *(line for each in stages for line in _verdict(each))],
    }


def _document(stage: StageLag) -> dict[str, Any]:
    facts, diagnosis = stage.facts, stage.diagnosis
    return {
        "stage": facts.stage,
        **({"cluster": facts.cluster} if facts.cluster else {}),
        "at": facts.at.isoformat(timespec="seconds"),
        "records": facts.records,
        "behind_s": facts.behind_s,
        "rate_in": facts.rate_in,
        "rate_out": facts.rate_out,
        "catch_up_s": facts.catch_up_s,
        "capacity": facts.capacity,
        "executors": facts.stream.executors if facts.stream else None,
        "partitions": [{**asdict(each), "catch_up_s": each.catch_up_s} for each in facts.partitions],
        "diagnosis": {
            "cause": diagnosis.cause,
            "evidence": [symptom_text(each) for each in diagnosis.symptoms],
            "confidence": diagnosis.confidence,
            "advice": advice_text(diagnosis.advice, stage.start),
        },
    }


def _table(stages: Sequence[StageLag]) -> Iterator[str]:
    table = Table(*_COLUMNS[:2], box=box.SIMPLE, pad_edge=False)
    for column in _COLUMNS[2:]:
        table.add_column(column, justify="right")
    for stage in stages:
        facts = stage.facts
        table.add_row(facts.name, "all", *_cells(facts), style="bold")
        by_lag = sorted(facts.partitions, key=lambda each: each.records, reverse=True)
        for each in sorted(by_lag[:_MOST_ROWS], key=lambda each: each.partition or 0):
            if each.partition is not None:
                table.add_row("", str(each.partition), *_cells(each))
        if len(by_lag) > _MOST_ROWS:
            table.add_row("", f"{len(by_lag) - _MOST_ROWS} more, less behind")
    console = Console(width=_WIDTH, no_color=True)
    with console.capture() as captured:
        console.print(table)
    yield from (line.rstrip() for line in captured.get().splitlines() if line.strip())


def _cells(figures: StageFacts | PartitionLag) -> tuple[str, ...]:
    left = figures.retention_s if isinstance(figures, PartitionLag) else least_retention(figures)
    parts = figures.partitions if isinstance(figures, StageFacts) else (figures,)
    more = "≥ " if any(each.is_cut for each in parts) else ""
    return (
        f"{more}{figures.records:,}",
        _duration(figures.behind_s) or "?" if figures.records else "",
        rate_text(figures.rate_in),
        rate_text(figures.rate_out),
        caught_up_text(figures),
        _duration(left) if figures.records else "",
    )


def _duration(seconds: float | None) -> str:
    return "" if seconds is None else about(seconds)


def _verdict(stage: StageLag) -> Iterator[str]:
    diagnosis = stage.diagnosis
    name = diagnosis.cause.replace("_", " ") if diagnosis.cause != "none" else "not behind"
    sure = f" ({diagnosis.confidence:.0%} sure)" if diagnosis.confidence < 1 else ""
    found = "; ".join(harmless(symptom_text(each)) for each in diagnosis.symptoms)
    yield f"{stage.facts.name}: {name}{sure}: {found}"
    if diagnosis.advice:
        yield f"    {advice_text(diagnosis.advice, stage.start)}"
