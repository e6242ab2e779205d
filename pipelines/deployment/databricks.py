"""Databricks: settings of jobs as the Jobs API takes them (`POST /api/2.2/jobs/create`)."""

from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version
from typing import Any, Final

from pipelines import __version__
from pipelines.deployment.deployment_model import StreamProcess
from pipelines.deployment.files import DeploymentFile, json_file
from pipelines.deployment.pods import Pods
from pipelines.errors import AuditFailed, ConfigError
from pipelines.runtime.own_jar import packaged_jar

_NIGHT_S: Final = 21_600
_CLUSTER: Final = "oncelake"
_SCALING: Final = (
    "One run at a time: a streaming query has one driver, and its checkpoint refuses a second copy of the"
    " stream. More workers make it faster."
)
_UNTRIED: Final = (
    " Not tried on Databricks: Oncelake is tested with Spark {} and Delta Lake {}, so choose a runtime with"
    " these, and try it before you use it in production."
)


@dataclass(frozen=True)
class Clusters:
    """The clusters of jobs.

    Attributes:
        runtime: The version of the Databricks runtime.
        node_type: The type of all nodes.
        workers: Their number at least.
        most_workers: Their number at most; None for a fixed number.
        partitions: Of the topic, which limit those of each ingest; None if unknown.
        files: The folder with `jobs`, `conf`, `data_contracts`, the wheel, and in `jars` Oncelake's jar.
    """

    runtime: str
    node_type: str
    files: str
    workers: int = 1
    most_workers: int | None = None
    partitions: int | None = None


def databricks_files(pods: Pods, clusters: Clusters) -> list[DeploymentFile]:
    """Return a file for each job.

    Raises:
        ConfigError: Ingest would have more workers than the topic has partitions.
    """
    most = clusters.most_workers or clusters.workers
    if clusters.partitions is not None and most > clusters.partitions:
        raise ConfigError(
            f"--max-workers {most}: expected at most the number of partitions, {clusters.partitions}: one"
            " task reads one partition, and further workers of ingest would have nothing to do"
        )
    if most < clusters.workers:
        raise ConfigError(f"--max-workers {most}: expected at least --workers, {clusters.workers}")
    described, zone = pods.described, pods.described.contract.day_time_zone
    always = {"continuous": {"pause_status": "UNPAUSED", "task_retry_mode": "ON_FAILURE"}}
    scheduled: dict[str, dict[str, Any]] = {
        job: {
            "schedule": {
                "quartz_cron_expression": _quartz(at),
                "timezone_id": zone,
                "pause_status": "UNPAUSED",
            },
            "timeout_seconds": _NIGHT_S,
        }
        for job, at in (("nightly_batch", described.nightly_at), ("maintain", described.maintain_at))
    }
    streams = (
        json_file(f"{_name(each)}.json", _stream(pods, clusters, each, always))
        for each in described.processes
    )
    others = (json_file(f"{job}.json", _job(pods, clusters, job, when)) for job, when in scheduled.items())
    return [*streams, *others]


def _name(process: StreamProcess) -> str:
    return f"{process.job}-{process.cluster}" if process.cluster else process.job


def _stream(pods: Pods, clusters: Clusters, process: StreamProcess, when: dict[str, Any]) -> dict[str, Any]:
    job = _job(pods, clusters, process.job, when)
    if process.cluster:
        job["name"] += f"@{process.cluster}"
        (task,) = job["tasks"]
        task["spark_python_task"]["parameters"] += process.options
    return job


def _job(pods: Pods, clusters: Clusters, job: str, when: dict[str, Any]) -> dict[str, Any]:
    is_stream = job.endswith("_stream")
    retried = {} if is_stream else {"max_retries": 2, "min_retry_interval_millis": 900_000}
    return {
        "name": f"oncelake-{job.replace('_', '-')}-{pods.described.config.name}",
        "description": (_SCALING if is_stream else _NIGHT)
        + _UNTRIED.format(version("pyspark"), version("delta-spark")),
        "max_concurrent_runs": 1,
        **when,
        "tasks": [
            {
                "task_key": job,
                "job_cluster_key": _CLUSTER,
                "spark_python_task": {
                    "python_file": f"{clusters.files}/jobs/{job}.py",
                    "parameters": pods.options(home=clusters.files),
                },
                "libraries": [
                    {"whl": f"{clusters.files}/oncelake-{__version__}-py3-none-any.whl"},
                    {"jar": f"{clusters.files}/jars/{packaged_jar().name}"},
                ],
                **retried,
            }
        ],
        "job_clusters": [{"job_cluster_key": _CLUSTER, "new_cluster": _cluster(pods, clusters)}],
        "tags": {"oncelake": pods.described.config.name},
    }


_NIGHT: Final = (
    "Databricks does not distinguish exit codes: it also tries again what fails with"
    f" {ConfigError.exit_code} or {AuditFailed.exit_code}, which gives the same result."
)


def _cluster(pods: Pods, clusters: Clusters) -> dict[str, Any]:
    number: dict[str, Any] = {"num_workers": clusters.workers}
    if clusters.most_workers is not None:
        number = {"autoscale": {"min_workers": clusters.workers, "max_workers": clusters.most_workers}}
    # Values of secrets are put in when a cluster starts, and not shown.
    secrets = {name: f"{{{{secrets/{pods.place.secret}/{name}}}}}" for name in pods.described.variables}
    return {
        "spark_version": clusters.runtime,
        "node_type_id": clusters.node_type,
        **number,
        **({"spark_env_vars": secrets} if secrets else {}),
    }


def _quartz(at: timedelta) -> str:
    minutes = int(at / timedelta(minutes=1)) % (24 * 60)
    return f"0 {minutes % 60} {minutes // 60} * * ?"
