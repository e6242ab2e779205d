"""`oncelake explain`: what became of every record of a dedup key."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

import click

from pipelines.cli.job_runner import Job, run_job
from pipelines.cli.options import CommonOptions, LogFormat, common_options, key_option, output_option
from pipelines.cli.terminal import harmless, searched_text
from pipelines.config.model import PipelineConfig
from pipelines.contracts.contract import DataContract
from pipelines.lineage.key_filter import AskedPart, asked_key
from pipelines.lineage.outcome import Facts, Outcome, coordinates_text
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.explain import MOST_RECORDS, Explained
from pipelines.steps.explain import explain as look

_HEADINGS: Final = (
    "record",
    "sent (UTC)",
    "ingested (UTC)",
    "event time (UTC)",
    "day",
    "in",
    "payload",
    "what",
)


@click.command()
@common_options
@key_option(required=True)
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000),
    default=20,
    show_default=True,
    help="Maximum number of keys to show if only some parts are given.",
)
@output_option
def explain(key_texts: tuple[str, ...], limit: int, output: LogFormat | None, **common: Any) -> None:
    """Show the records of a dedup key, and their verdicts.

    With all parts of the key, show that key; with some of them, show the first keys that match.
    """
    key: list[AskedPart] = []

    def check(config: PipelineConfig, contract: DataContract) -> None:
        key.extend(asked_key(contract, key_texts))

    def body(pipeline: Pipeline, run_id: str) -> dict[str, Any]:
        return explanation_document(look(pipeline, key, limit), pipeline.contract)

    run_job(Job("explain", body, check=check), CommonOptions(**common), output)


def explanation_document(explained: Explained, contract: DataContract) -> dict[str, Any]:
    """Return what the command prints, as JSON or as `lines` of text."""
    shown = [
        (key, list(records))
        for key, records in groupby(explained.records, key=lambda each: tuple(each[0].key))
    ]
    return {
        "counts": {"keys": explained.keys, "records": len(explained.records)},
        "looked_in": searched_text(explained.searched),
        "is_whole": explained.is_whole and len(shown) == explained.keys,
        "records": [_as_json(facts, fate, contract) for facts, fate in explained.records],
        "lines": list(_lines(explained, shown, contract)),
    }


def _lines(
    result: Explained, shown: Sequence[tuple[tuple[str | None, ...], Any]], contract: DataContract
) -> Iterator[str]:
    if not result.records:
        yield f"no record has this key: searched {searched_text(result.searched)}, with those broken"
        yield "records whose key can be read"
        return
    for key, records in shown:
        yield ""
        yield ", ".join(
            f"{path} = {'(not shown or not readable)' if value is None else harmless(value)}"
            for path, value in zip(contract.key, key, strict=True)
        )
        yield from _table([_row(facts, fate) for facts, fate in records])
    yield ""
    yield f"searched {searched_text(result.searched)}"
    if not result.is_whole:
        yield f"only the first {MOST_RECORDS:,} records are shown: give more parts of the key"
    elif len(shown) < result.keys:
        yield f"only the first {len(shown):,} of {result.keys:,} keys are shown: give more parts, or --limit"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    whole = [_HEADINGS, *rows]
    # The last column is the longest, and never padded.
    widths = [max(len(row[n]) for row in whole) for n in range(len(_HEADINGS) - 1)]
    for row in whole:
        yield "  ".join([*(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)), row[-1]])


def _row(facts: Facts, fate: Outcome) -> tuple[str, ...]:
    return (
        coordinates_text({"_topic": facts.topic, "_partition": facts.partition, "_offset": facts.offset}),
        facts.kafka_timestamp or "-",
        facts.ingested_at,
        facts.event_time or "-",
        facts.event_day or "-",
        " ".join(facts.layers),
        facts.payload or "-",
        f"{fate.verdict}: {fate.reason}"
        if fate.verdict not in ("duplicate", "conflict")
        else f"{fate.verdict} {fate.reason}",
    )


def _as_json(facts: Facts, fate: Outcome, contract: DataContract) -> dict[str, Any]:
    names = ("topic", "partition", "offset", "kafka_timestamp", "ingested_at", "event_time", "event_day")
    return {
        "key": dict(zip(contract.key, facts.key, strict=True)),
        **{name: getattr(facts, name) for name in names},
        "layers": list(facts.layers),
        "payload": facts.payload,
        "verdict": fate.verdict,
        "reason": fate.reason,
        "differs_in": list(fate.differs_in),
        "wins": facts.best and facts.reading == 1,
        "winner": facts.winner and {name.removeprefix("_"): value for name, value in facts.winner.items()},
    }
