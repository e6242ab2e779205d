"""`oncelake reconcile`: is everything that Kafka has in bronze?"""

from collections.abc import Sequence
from typing import Any, Final

import click

from pipelines.cli.job_runner import Job, JobFailed, run_job
from pipelines.cli.options import CommonOptions, LogFormat, common_options, each_cluster_option, output_option
from pipelines.config.clusters import retired
from pipelines.errors import OncelakeError
from pipelines.lineage.offset_comparison import DifferenceCause, OffsetDifference
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.reconcile import Reconciliation, RecordsMissing
from pipelines.steps.reconcile import reconcile as compare

_WHERE: Final = "{offsets:,} offsets within {span}{holes}"
_GONE: Final = f"{_WHERE}, which Kafka no longer has"
_DELETED: Final = "{span}: deleted from Kafka before they were read"
_LACKING: Final = "Kafka has them, and bronze does not"
_KNOWN: Final = "listed as lost in audit.known_gaps"
_TEXTS: Final[dict[DifferenceCause, str]] = {
    "before": "{span}: from before bronze began; Kafka no longer has them",
    "deleted": _DELETED,
    "deleted_known": f"{_DELETED}; {_KNOWN}",
    "skipped": f"{{offsets:,}} records of {{span}}: not read: {_LACKING}",
    "skipped_by_setting": "{offsets:,} records of {span}: not read: kafka.starting_offsets: latest",
    "lost": f"{{offsets:,}} records within {{span}}{{holes}}: {_LACKING}",
    "lost_though_read": (
        f"{{offsets:,}} records within {{span}}: {_LACKING}, though ingest's checkpoint says they were read"
    ),
    "no_record": (
        f"{_WHERE}: Kafka has no record there: transaction markers, or records of aborted transactions"
    ),
    "removed_by_compaction": f"{_WHERE}: removed by compaction",
    "gone_unknown": f"{_GONE}: whether they were records is unknown",
    "gone_known": f"{_GONE}: {_KNOWN}",
    "gone_compacted": f"{_GONE}: the topic is compacted",
    "gone_accepted": f"{_GONE}: audit.offset_gaps: warn accepts gaps",
    "not_read": "{span}: not read yet, or transaction markers",
    "made_anew": "bronze has {span}, {kafka}: the topic was recreated, or is another",
}


@click.command()
@common_options
@each_cluster_option
@output_option
def reconcile(output: LogFormat | None, **common: Any) -> None:
    """Compare the offsets in Kafka with those in bronze.

    End with exit code 4 if records are missing and nothing explains it.
    """

    def body(pipeline: Pipeline, run_id: str) -> dict[str, Any]:
        if pipeline.config.kafka.clusters:
            return _of_clusters(pipeline)
        try:
            return summary_of(compare(pipeline))
        except RecordsMissing as missing:
            raise JobFailed(
                missing, summary_of(missing.reconciliation), message_of(missing.reconciliation)
            ) from None

    run_job(Job("reconcile", body), CommonOptions(**common), output)


def _of_clusters(pipeline: Pipeline) -> dict[str, Any]:
    """Compare each cluster with bronze, whatever is found of the others.

    Raises:
        JobFailed: Records are missing, or a cluster cannot be asked, or not be trusted; the message has what
            was found of each.
    """
    compared, missing, failed = list[Reconciliation](), list[RecordsMissing](), list[OncelakeError]()
    for source in pipeline.sources():
        try:
            if not source.config.kafka.retired:
                compared.append(compare(source))
        except RecordsMissing as found:
            missing.append(found)
            compared.append(found.reconciliation)
        except OncelakeError as error:
            failed.append(error)
    told = summary_of_clusters(compared, retired(pipeline.config.kafka))
    message = "\n".join([*(message_of(each.reconciliation) for each in missing), *map(str, failed)])
    if worst := next(iter([*missing, *failed]), None):
        raise JobFailed(worst, told, message)
    return told


def summary_of_clusters(compared: Sequence[Reconciliation], not_asked: Sequence[str]) -> dict[str, Any]:
    """Tell how the clusters of a pipeline and bronze differ.

    Args:
        compared: What each cluster that answered and bronze have.
        not_asked: The clusters that are retired.

    Returns:
        `counts`, those of all clusters together; `clusters`: of each, by the name of its topic in bronze,
        what `summary_of` tells; `not_asked`; `lines`.
    """
    told = {each.name: summary_of(each) for each in compared}
    names = ("partitions", "missing", "explained", "not_read_yet")
    lines = [line for each in told.values() for line in each.pop("lines")]
    return {
        "counts": {name: sum(each["counts"][name] for each in told.values()) for name in names},
        "clusters": told,
        "not_asked": [*not_asked],
        "lines": [*lines, *(f"not asked, as retired: {name}" for name in not_asked)],
    }


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
        f"{'MISSING' if each.alarm else 'known':<8} {name}-{each.partition} @ {words_of(each)}"
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
        "findings": [
            {
                "partition": each.partition,
                "kind": each.kind,
                "offsets": each.offsets,
                "alarm": each.alarm,
                "words": words_of(each),
            }
            for each in reconciliation.findings
        ],
        "lines": lines or [f"bronze (version {reconciliation.bronze_version}) holds all that {name} has"],
    }


def message_of(reconciliation: Reconciliation) -> str:
    """Return the message of an error: what is missing, and nothing explains.

    Args:
        reconciliation: What Kafka and bronze have.
    """
    name = reconciliation.name
    alarms = (each for each in reconciliation.findings if each.alarm)
    lines = "\n".join(f"{name}-{each.partition} @ {words_of(each)}" for each in alarms)
    return (
        f"bronze and kafka.topic '{name}' differ without explanation.\n{lines}\n"
        "See docs/runbook.md, 'Is everything in bronze?'"
    )


def words_of(difference: OffsetDifference) -> str:
    """Say what differs and why, as `docs/runbook.md` quotes it.

    Args:
        difference: Of one partition.
    """
    end, holes = difference.kafka_end, ", ".join(_span(*hole) for hole in difference.holes)
    return _TEXTS[difference.cause].format(
        offsets=difference.offsets,
        span=_span(difference.first, difference.last),
        holes=f" (the first: {holes})" if holes else "",
        kafka="Kafka has no such partition" if end is None else f"Kafka's end offset is {end}",
    )


def _span(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first}..{last}"
