"""The Spark Operator: an application for each stream, and scheduled ones for the night and for upkeep."""

import re
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version
from typing import Any, Final

from pipelines import __version__
from pipelines.config.streams import STREAMS
from pipelines.deployment.deployment_model import StreamProcess
from pipelines.deployment.files import DeploymentFile, Document, yaml_file
from pipelines.deployment.pods import STOP_WITHIN_S, Pods, cron
from pipelines.errors import ConfigError
from pipelines.resources import resource

_NIGHT_S: Final = 21_600
_DYNAMIC: Final = "spark.dynamicAllocation"
# Those of conf/spark-defaults.conf that a job does not set itself.
_OF_EXECUTORS: Final = (
    "spark.executor.extraJavaOptions",
    "spark.stage.maxConsecutiveAttempts",
    "spark.task.maxFailures",
)
_SCALING: Final = (
    "What scales: a streaming query has one driver, and its checkpoint refuses a second copy of the stream."
    " Change executor.instances, or let dynamicAllocation change it between its limits."
)
_RETRIES: Final = (
    "The operator does not distinguish exit codes: it also starts an application again whose failure"
    " stays the same. Alert on any state but RUNNING of a stream, and on FAILED of a run."
)
_IMAGE: Final = (
    "The image is the one that docs/deploy.md describes for Kubernetes: Spark with the jars in its own"
    " folder, the Python packages, and conf, data_contracts, jobs and the zip in the project's folder."
)


@dataclass(frozen=True)
class Executors:
    """How many executors applications have.

    Attributes:
        instances: Of each application; None for `spark.executor.instances`, else two.
        partitions: Of the topic, which limit those of each ingest; None if unknown.
        account: The service account of drivers, which may create pods.
    """

    instances: int | None = None
    partitions: int | None = None
    account: str = "spark"


def spark_operator_files(pods: Pods, executors: Executors) -> list[DeploymentFile]:
    """Return the files for the Spark Operator.

    Raises:
        ConfigError: Ingest would have more executors than the topic has partitions.
    """
    streams: list[Document] = [
        {
            "apiVersion": "sparkoperator.k8s.io/v1beta2",
            "kind": "SparkApplication",
            "metadata": pods.of_process(each),
            # A driver that is evicted ends well, and the retries of OnFailure are for its whole life.
            "spec": _application(pods, each.job, executors, each) | {"restartPolicy": {"type": "Always"}},
        }
        for each in pods.described.processes
    ]
    described = pods.described
    nightly = _scheduled(pods, "nightly_batch", described.nightly_at, executors)
    maintain = _scheduled(pods, "maintain", described.maintain_at, executors)
    return [
        yaml_file("streams.yaml", [_SCALING, _RETRIES, _IMAGE], streams),
        yaml_file("scheduled.yaml", [_RETRIES, _IMAGE], [nightly, maintain]),
    ]


def _scheduled(pods: Pods, job: str, at: timedelta, executors: Executors) -> Document:
    # The operator has no deadline: that of the driver's pod ends a run that hangs.
    deadline = {
        "spec": {
            "activeDeadlineSeconds": _NIGHT_S,
            "containers": [{"name": "spark-kubernetes-driver"}],
        }
    }
    spec = _application(pods, job, executors)
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "ScheduledSparkApplication",
        "metadata": pods.metadata(job.removesuffix("_batch")),
        "spec": {
            "schedule": cron(at),
            "timeZone": pods.described.contract.day_time_zone,
            # A second run would only find the lease of the first.
            "concurrencyPolicy": "Forbid",
            "successfulRunHistoryLimit": 3,
            "failedRunHistoryLimit": 7,
            "template": spec
            | {"restartPolicy": _restart(2, 900), "driver": spec["driver"] | {"template": deadline}},
        },
    }


def _application(
    pods: Pods, job: str, executors: Executors, process: StreamProcess | None = None
) -> dict[str, Any]:
    """Return the application of a job.

    Args:
        pods: Of the pipeline.
        job: The job.
        executors: How many it has.
        process: Which process of a stream it is; None if it is none.
    """
    described, home = pods.described, pods.place.home
    secrets = {name: {"name": pods.place.secret, "key": name} for name in described.variables}
    most = executors.partitions if process and process.stream is STREAMS["ingest"] else None
    count = executors.instances or described.spark_number("spark.executor.instances") or 2
    if most is not None and count > most:
        raise ConfigError(
            f"--executors {count}: expected at most the number of partitions, {most}: one task reads one"
            " partition, and further executors of ingest would have nothing to do"
        )
    dynamic = _dynamic_allocation(pods, most)
    return {
        "type": "Python",
        "pythonVersion": "3",
        "mode": "cluster",
        "sparkVersion": version("pyspark"),
        "image": pods.place.image,
        "mainApplicationFile": f"local://{home}/jobs/{job}.py",
        "arguments": pods.options(*(process.options if process else ())),
        "deps": {"pyFiles": [f"local://{home}/oncelake-{__version__}.zip"]},
        "sparkConf": _defaults(),
        **({"dynamicAllocation": dynamic} if dynamic else {}),
        "driver": {
            "cores": 1,
            "memory": f"{-(-pods.driver_bytes() // (1 << 20))}m",
            "labels": pods.labels(),
            "serviceAccount": executors.account,
            "terminationGracePeriodSeconds": STOP_WITHIN_S,
            **({"envSecretKeyRefs": secrets} if secrets else {}),
        },
        "executor": {
            **({} if dynamic else {"instances": count}),
            "cores": described.spark_number("spark.executor.cores") or 2,
            "memory": described.spark_setting("spark.executor.memory") or "4g",
            "labels": pods.labels(),
            **({"env": racks} if (racks := pods.rack_environment()) else {}),
        },
    }


def _dynamic_allocation(pods: Pods, most: int | None) -> dict[str, Any]:
    """Return what the configuration says of dynamic allocation; nothing if it is off.

    Args:
        pods: Of the pipeline.
        most: Executors that have something to do; None if unknown.
    """
    described = pods.described
    if (described.spark_setting(f"{_DYNAMIC}.enabled") or "false").lower() != "true":
        return {}
    wanted = {name: described.spark_number(f"{_DYNAMIC}.{name}") for name in ("minExecutors", "maxExecutors")}
    limits = {name: value for name, value in wanted.items() if value is not None}
    if most is not None:
        limits["maxExecutors"] = min(limits.get("maxExecutors", most), most)
    return {"enabled": True, **limits, "shuffleTrackingEnabled": True}


def _restart(retries: int, pause_s: int) -> dict[str, Any]:
    return {
        "type": "OnFailure",
        "onFailureRetries": retries,
        "onFailureRetryInterval": pause_s,
        "onSubmissionFailureRetries": 3,
        "onSubmissionFailureRetryInterval": 60,
    }


def _defaults() -> dict[str, str]:
    text = resource("conf/spark-defaults.conf").read_text(encoding="utf-8")
    found = dict(re.findall(r"^(spark\.\S+)\s+(\S.*)$", text, re.MULTILINE))
    return {name: found[name].strip() for name in _OF_EXECUTORS}
