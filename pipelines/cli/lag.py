"""`oncelake lag`: how far are the streams behind, and why?"""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final, NoReturn

import click
from rich import box
from rich.console import Console
from rich.table import Table

from pipelines.cli.job_runner import Job, run_job
from pipelines.cli.options import CommonOptions, LogFormat, common_options, once, output_option
from pipelines.cli.terminal import harmless
from pipelines.durations import about
from pipelines.errors import OncelakeError
from pipelines.lag.evidence import Evidence, PartitionLag
from pipelines.lag.texts import advice_text, caught_up_text, evidence_text, least_retention, rate_text
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.lag import StageLag
from pipelines.steps.lag import lag as lag_of

_COLUMNS: Final = ("stage", "partition", "records", "behind", "in/s", "out/s", "caught up", "deleted in")
_WIDTH: Final = 100
# Of a topic with a thousand partitions, a person looks at the worst.
_MOST_ROWS: Final = 12


@click.command()
@common_options
@output_option
@once(
    "--watch",
    type=click.FloatRange(min=1),
    metavar="SECONDS",
    help="Repeat until Ctrl-C, with a pause of SECONDS in between.",
)
def lag(output: LogFormat | None, watch: float | None, **common: Any) -> None:
    """Show how far each stream is behind, and name the cause."""
    options = CommonOptions(**common)
    is_json = (output or options.log_format) == "json"

    def body(pipeline: Pipeline, run_id: str) -> dict[str, Any]:
        if watch is not None:
            _watch(pipeline, watch, is_json=is_json)
        return summary_of(lag_of(pipeline))

    # To end a watch is no failure.
    run_job(Job("lag", body, is_stream=watch is not None), options, output)


def _watch(pipeline: Pipeline, seconds: float, *, is_json: bool) -> NoReturn:
    """Print the lag again and again, until the process is told to stop; what fails is tried again."""
    while True:
        try:
            told = summary_of(lag_of(pipeline))
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
    evidence, diagnosis = stage.evidence, stage.diagnosis
    return {
        "stage": evidence.stage,
        "at": evidence.at.isoformat(timespec="seconds"),
        "records": evidence.records,
        "behind_s": evidence.behind_s,
        "rate_in": evidence.rate_in,
        "rate_out": evidence.rate_out,
        "catch_up_s": evidence.catch_up_s,
        "partitions": [{**asdict(each), "catch_up_s": each.catch_up_s} for each in evidence.partitions],
        "diagnosis": {
            "cause": diagnosis.cause,
            "evidence": [evidence_text(each) for each in diagnosis.evidence],
            "confidence": diagnosis.confidence,
            "advice": advice_text(diagnosis.advice, stage.start),
        },
    }


def _table(stages: Sequence[StageLag]) -> Iterator[str]:
    table = Table(*_COLUMNS[:2], box=box.SIMPLE, pad_edge=False)
    for column in _COLUMNS[2:]:
        table.add_column(column, justify="right")
    for stage in stages:
        evidence = stage.evidence
        table.add_row(evidence.stage, "all", *_cells(evidence), style="bold")
        by_lag = sorted(evidence.partitions, key=lambda each: each.records, reverse=True)
        for each in sorted(by_lag[:_MOST_ROWS], key=lambda each: each.partition or 0):
            if each.partition is not None:
                table.add_row("", str(each.partition), *_cells(each))
        if len(by_lag) > _MOST_ROWS:
            table.add_row("", f"{len(by_lag) - _MOST_ROWS} more, less behind")
    console = Console(width=_WIDTH, no_color=True)
    with console.capture() as captured:
        console.print(table)
    yield from (line.rstrip() for line in captured.get().splitlines() if line.strip())


def _cells(figures: Evidence | PartitionLag) -> tuple[str, ...]:
    left = figures.retention_s if isinstance(figures, PartitionLag) else least_retention(figures)
    parts = figures.partitions if isinstance(figures, Evidence) else (figures,)
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
    found = "; ".join(harmless(evidence_text(each)) for each in diagnosis.evidence)
    yield f"{stage.evidence.stage}: {name}{sure}: {found}"
    if diagnosis.advice:
        yield f"    {advice_text(diagnosis.advice, stage.start)}"
