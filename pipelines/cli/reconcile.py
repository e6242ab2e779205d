"""`oncelake reconcile`: is everything that Kafka has in bronze?"""

from dataclasses import asdict
from typing import Any

import click

from pipelines.cli.job_runner import Job, run_job
from pipelines.cli.options import CommonOptions, LogFormat, common_options, output_option
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.reconcile import Reconciliation, RecordsMissing
from pipelines.steps.reconcile import reconcile as compare


@click.command()
@common_options
@output_option
def reconcile(output: LogFormat | None, **common: Any) -> None:
    """Compare the offsets in Kafka with those in bronze.

    End with exit code 4 if records are missing and nothing explains it.
    """

    def body(pipeline: Pipeline, run_id: str) -> dict[str, Any]:
        try:
            return summary_of(compare(pipeline))
        except RecordsMissing as missing:
            missing.summary = summary_of(missing.reconciliation)
            raise

    run_job(Job("reconcile", body), CommonOptions(**common), output)


def summary_of(reconciliation: Reconciliation) -> dict[str, Any]:
    """Tell how Kafka and bronze differ.

    Args:
        reconciliation: What both have.

    Returns:
        `counts`, `partitions` (the offsets on both sides), `findings`, `lines`.
    """
    name, topic, bronze = reconciliation.name, reconciliation.topic, reconciliation.bronze
    explained = [each for each in reconciliation.findings if not each.alarm]
    lines = [
        f"{'MISSING' if each.alarm else 'known':<8} {name}-{each.partition} @ {each.words}"
        for each in reconciliation.findings
    ]
    return {
        "counts": {
            "partitions": len(topic.partitions),
            "missing": reconciliation.missing,
            "explained": sum(each.offsets for each in explained if each.kind == "gap"),
            "not_read_yet": sum(each.offsets for each in explained if each.kind == "lag"),
        },
        "topic": name,
        "cleanup_policy": topic.cleanup_policy,
        "bronze_version": reconciliation.bronze_version,
        "partitions": [
            {
                "partition": number,
                "kafka": [offsets.earliest, offsets.end],
                "bronze": [bronze[number].first, bronze[number].last + 1] if number in bronze else None,
            }
            for number, offsets in sorted(topic.partitions.items())
        ],
        "findings": [asdict(each) for each in reconciliation.findings],
        "lines": lines or [f"bronze (version {reconciliation.bronze_version}) holds all that {name} has"],
    }
