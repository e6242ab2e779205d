"""Kubernetes: a StatefulSet for each stream, CronJobs for the night and for upkeep, and what they need."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from pipelines.deployment.deployment_model import StreamProcess
from pipelines.deployment.files import DeploymentFile, Document, yaml_file
from pipelines.deployment.pods import Pods, cron, failing_for_good
from pipelines.errors import AuditFailed, ConfigError, SourceError

SCALING: Final = [
    (
        "What scales: a streaming query has one driver, and its checkpoint refuses a second copy of the"
        " stream. More executors make it faster (spark.executor.instances or dynamic allocation in"
        " spark.conf, with a cluster in spark.master), more pods do not."
    )
]
"""What can and cannot scale, as comments say it."""

_IMAGE: Final = (
    "The image has Oncelake's wheel, Java and the jars, and a numeric USER that is not root. Each environment"
    " variable comes from the secret under its own name."
)
_NIGHT_S: Final = 28_800
_ZONES: Final = (
    "kafka.rack: pods get their zone by the label topology.kubernetes.io/zone, which Kubernetes copies"
    " from the node (PodTopologyLabelsAdmission, KEP-4742). For older clusters see docs/racks.md."
)


def kubernetes_files(pods: Pods) -> list[DeploymentFile]:
    """Return the files for Kubernetes.

    Raises:
        ConfigError: The configuration does not fit into a ConfigMap, or a setting cannot be read here.
    """
    processes = pods.described.processes
    streams = [document for each in processes for document in _stream(pods, each)]
    racks = [_ZONES] if pods.rack_environment() else []
    ports = [port for each in processes if (port := pods.metrics_port(each))]
    probes = _PROBES if ports else _NO_PROBES
    return [
        base_file(pods),
        yaml_file("streams.yaml", [*SCALING, _ONE_EACH, probes, *racks], streams),
        yaml_file("scheduled.yaml", [_SCHEDULED, *racks], _scheduled(pods)),
    ]


_PROBES: Final = (
    "The probe of /livez restarts a stream whose process does not answer. Do not probe /healthz: it is bad"
    " while a single task takes long, and a stream that is killed begins its micro-batch anew. Alert on it"
    " instead (OncelakeStreamStuck, or alerts of lag)."
)
_NO_PROBES: Final = (
    "No probes: set metrics.port, and metrics.host: 0.0.0.0, so that the kubelet can ask /livez."
)
_ONE_EACH: Final = (
    "Streams are StatefulSets with one replica, because a Deployment may start the next pod before the"
    " last one has ended. The pod is restarted after all exit codes; alert on CrashLoopBackOff, since"
    " exit codes 2 and 4 need a person."
)
_SCHEDULED: Final = (
    "The night begins when the day is over in the time zone of the contract and sealed"
    " (batch.seal_grace). Exit codes 2 and 3 (for upkeep: 2 and 4) are not tried again, since the result"
    " would be the same."
)


def base_file(pods: Pods) -> DeploymentFile:
    """Return the file with what must be there before any pod."""
    title = f"What the pods of pipeline {pods.described.config.name} need. Apply this file first."
    network = (
        "The NetworkPolicy allows what the configuration names: Kafka, the registry, HTTPS and DNS. It"
        " allows all ports where an address is in an environment variable, or spark.master names a"
        " cluster."
    )
    return yaml_file("base.yaml", [title, _IMAGE, network], pods.base())


def _stream(pods: Pods, process: StreamProcess) -> list[Document]:
    part = process.part
    metadata, port = pods.of_process(process), pods.metrics_port(process)
    container = pods.container(process.job, *process.options)
    named = [{"name": "metrics", "containerPort": port}] if port else []
    if port:
        container |= {"ports": named, "startupProbe": _probe(port, 60), "livenessProbe": _probe(port, 5)}
    service: dict[str, Any] = {"clusterIP": "None", "selector": pods.labels(part)}
    if port:
        service["ports"] = [{"name": "metrics", "port": port}]
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service},
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": metadata,
            "spec": {
                "replicas": 1,
                "serviceName": metadata["name"],
                "selector": {"matchLabels": pods.labels(part)},
                "template": pods.template(part, {"containers": [container]}),
            },
        },
    ]


def _probe(port: int, minutes: int) -> dict[str, Any]:
    # A stream that starts has no server before it has compared its tables, which a large lake makes long.
    return {
        "httpGet": {"path": "/livez", "port": port},
        "periodSeconds": 60,
        "timeoutSeconds": 10,
        "failureThreshold": minutes,
    }


def _scheduled(pods: Pods) -> list[Document]:
    described = pods.described
    longest = described.config.batch.max_duration
    night_s = min(_NIGHT_S, int(longest / timedelta(seconds=1)))
    permanent = ConfigError.exit_code
    return [
        _cron_job(
            pods,
            "nightly",
            described.nightly_at,
            job_spec(
                pods,
                "nightly",
                [pods.container("nightly_batch")],
                (permanent, AuditFailed.exit_code),
                night_s,
            ),
        ),
        _cron_job(
            pods,
            "maintain",
            described.maintain_at,
            job_spec(
                pods, "maintain", [pods.container("maintain")], (permanent, SourceError.exit_code), night_s
            ),
        ),
    ]


def _cron_job(pods: Pods, part: str, at: timedelta, job: Document) -> Document:
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": pods.metadata(part),
        "spec": {
            "schedule": cron(at),
            "timeZone": pods.described.contract.day_time_zone,
            # A second run would only find the lease of the first.
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": 19_800,
            "successfulJobsHistoryLimit": 3,
            "failedJobsHistoryLimit": 7,
            "jobTemplate": {"spec": job},
        },
    }


def job_spec(
    pods: Pods, part: str, containers: Sequence[Document], permanent: Sequence[int], within_s: int
) -> dict[str, Any]:
    """Return a job that is tried again as long as that may help.

    Args:
        pods: Of the pipeline.
        part: What it is.
        containers: Run one after the other.
        permanent: Exit codes that are not tried again.
        within_s: Seconds that all attempts together have.
    """
    *before, last = containers
    spec: dict[str, Any] = {"restartPolicy": "Never"}
    if before:
        spec["initContainers"] = list(before)
    names = [each["name"] for each in containers]
    return {
        # The pause between attempts doubles from 10 seconds to 6 minutes: an hour and a half in total.
        "backoffLimit": 20,
        "activeDeadlineSeconds": within_s,
        "podFailurePolicy": failing_for_good(names, permanent),
        "template": pods.template(part, {**spec, "containers": [last]}),
    }
