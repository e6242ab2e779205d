"""`oncelake doctor`: is anything wrong with a pipeline, its cluster or its lake?"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import click

from pipelines.cli.job_runner import Examination, JobFailed, Opening, print_summary, run_job
from pipelines.cli.options import (
    CommonOptions,
    LogFormat,
    common_options,
    each_cluster_option,
    once,
    output_option,
)
from pipelines.cli.terminal import harmless
from pipelines.config.model import PipelineConfig
from pipelines.doctor.acls import Acl, acls
from pipelines.doctor.check_list import CheckResult, DoctorCheck
from pipelines.doctor.check_report import CheckReport
from pipelines.doctor.findings import ClusterLabel, FailOn, Finding
from pipelines.steps.doctor import ChecksFailed, diagnose


@click.command()
@common_options
@each_cluster_option
@output_option
@click.option(
    "--acls",
    "lists_acls",
    is_flag=True,
    help="List the ACLs that each job needs on the Kafka clusters, and check nothing.",
)
@once(
    "--fail-on",
    type=click.Choice(["error", "warning"]),
    default="error",
    help="End with exit code 3 at findings of this severity or higher.",
)
def doctor(
    output: LogFormat | None, fail_on: FailOn, lists_acls: bool, cluster: str | None, **common: Any
) -> None:
    """Check configuration, clusters, tables and object store.

    Also checkpoints and nightly runs. Changes no table; writes and deletes a probe under ops/. Ends with exit
    code 3 if there are findings of severity --fail-on or higher.
    """
    if lists_acls:
        options = CommonOptions(**common)
        config, _ = options.load()
        print_summary(_as_summary(config, cluster), output or options.log_format)
        return

    def body(opening: Opening, run_id: str) -> dict[str, Any]:
        try:
            return summary_of(diagnose(opening.config, opening.start, fail_on, cluster))
        except ChecksFailed as unsound:
            raise JobFailed(unsound, summary_of(unsound.checkup)) from None

    # A few questions need no executors of a cluster.
    settings = (*common["settings"], "spark.master=local[2]")
    run_job(Examination("doctor", body), CommonOptions(**{**common, "settings": settings}), output)


def _as_summary(config: PipelineConfig, cluster: str | None) -> dict[str, Any]:
    """Tell the ACLs of all jobs: `acls`, as `pipelines.doctor.acls.Acl` has them, with `command`; `lines`."""
    servers = None if cluster is None else config.source(cluster).kafka.bootstrap_servers
    needed = [acl for acl in acls(config) if servers in (None, acl.servers)]
    return {
        "job": "doctor",
        "pipeline": config.name,
        "env": config.env,
        "status": "done",
        "duration_s": 0.0,
        "acls": [{**asdict(acl), "command": acl.command} for acl in needed],
        "lines": [
            line for job in dict.fromkeys(acl.job for acl in needed) for line in _acl_lines(job, needed)
        ],
        "exit_code": 0,
    }


def _acl_lines(job: str, needed: Sequence[Acl]) -> Iterator[str]:
    yield job
    for acl in needed:
        if acl.job == job:
            beginning = " (prefix)" if acl.is_prefix else ""
            otherwise = f"; optional, otherwise {acl.optional}" if acl.optional else ""
            yield f"    {acl.operation} on {acl.resource} {acl.name}{beginning}{otherwise}"


def summary_of(checkup: CheckReport) -> dict[str, Any]:
    """Tell what the checks have found.

    Args:
        checkup: What came of all checks.

    Returns:
        `counts`; `findings`, the gravest first: `check`, `group`, `severity`, `found`, `expected`, `fix` and
        `runbook`; `checks`: `name`, `group` and `status` of each (`passed`, `found`, `skipped`,
        `not_applicable`); `lines`. Findings and checks of one of several clusters name it: `cluster`, which
        is null for the first, and `servers`.
    """
    findings = list(checkup.findings())
    skipped = [_name(result) for result in checkup.results if result.status == "skipped"]
    return {
        "counts": {
            "checks": len(checkup.results),
            "errors": checkup.count("error"),
            "warnings": checkup.count("warning"),
            "infos": checkup.count("info"),
            "skipped": len(skipped),
        },
        "findings": [_document(check, finding) for check, finding in findings],
        "checks": [
            {
                "name": result.check.name,
                "group": result.check.group,
                "status": result.status,
                **_cluster(result.cluster),
            }
            for result in checkup.results
        ],
        "lines": [
            *(line for check, finding in findings for line in _lines(check, finding)),
            *([f"skipped, since something failed before: {', '.join(skipped)}"] if skipped else []),
            *([] if findings or skipped else ["nothing found"]),
        ],
    }


def _name(result: CheckResult) -> str:
    """Return the name of a check, with the cluster that it looked at."""
    return f"{result.check.name} of {result.cluster.words}" if result.cluster else result.check.name


def _cluster(cluster: ClusterLabel | None) -> dict[str, str | None]:
    if cluster is None:
        return {"cluster": None, "servers": None}
    return {"cluster": cluster.name, "servers": cluster.servers}


def _document(check: DoctorCheck, finding: Finding) -> dict[str, str | None]:
    return {
        "check": check.name,
        "group": check.group,
        "severity": finding.severity,
        "found": finding.found,
        "expected": finding.expected,
        "fix": finding.fix,
        "runbook": check.link,
        **_cluster(finding.cluster),
    }


def _lines(check: DoctorCheck, finding: Finding) -> list[str]:
    return [
        f"{finding.severity}: {check.group}: {check.name}",
        *(
            f"    {what}: {harmless(words)}"
            for what, words in (
                *((("cluster", finding.cluster.words),) if finding.cluster else ()),
                ("found", finding.found),
                ("expected", finding.expected),
                ("fix", finding.fix),
                ("see", f"{check.page}, '{check.runbook}'"),
            )
        ),
    ]
