"""KEDA: runs to the end of the backlog between none and one, or executors by the backlog."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

from pipelines.config.kafka import KafkaConfig
from pipelines.config.model import PipelineConfig
from pipelines.deployment.files import DeploymentFile, Document, yaml_file
from pipelines.deployment.kubernetes import SCALING, base_file, job_spec
from pipelines.deployment.pods import Pods
from pipelines.durations import format_interval
from pipelines.errors import ConfigError, SourceError

SHORTEST_COOLDOWN: Final = timedelta(minutes=5)
_PERMANENT: Final = (ConfigError.exit_code, SourceError.exit_code)
_ONCE_S: Final = 28_800
_POLL_S: Final = 60
_MECHANISMS: Final = {
    "PLAIN": "plaintext",
    "SCRAM-SHA-256": "scram_sha256",
    "SCRAM-SHA-512": "scram_sha512",
}
_KEYS: Final = ".ssl.keystore."
_DECIDING: Final = ("security.protocol", "sasl.mechanism")
_USER_KEYS: Final = ("kafka-username", "kafka-password")


@dataclass(frozen=True)
class Workers:
    """Executors that are to be as many as the backlog needs.

    Attributes:
        kind: `StatefulSet` or `Deployment`.
        name: The object whose pods are the workers of a Spark cluster, one executor in each.
        partitions: Of the topic; of several clusters, of all together.
        rate_in: Records that come each second.
        rate_out: Records that one executor processes each second.
        catch_up: How long it may take until a backlog is worked off.
        cooldown: How long a smaller number must do until executors end.
        most: Executors at most; None for as many as there are partitions.
        clusters: How many clusters have a backlog.
    """

    kind: str
    name: str
    partitions: int
    rate_in: float
    rate_out: float
    catch_up: timedelta
    cooldown: timedelta = SHORTEST_COOLDOWN
    most: int | None = None
    clusters: int = 1


@dataclass(frozen=True)
class Scale:
    """How many executors there are.

    Attributes:
        least: The fewest that process more than comes.
        most: At most.
        threshold: Records of the backlog of a cluster for each of them.
    """

    least: int
    most: int
    threshold: int


def scale_of(workers: Workers) -> Scale:
    """Return how many executors work any backlog off in the wanted time, as long as the maximum allows it.

    With L records of backlog, KEDA wants n = L / threshold executors, and at least `least`. They work off
    n x rate_out - rate_in records each second, which must be L / catch_up. That holds for every L if it holds
    for L = least x threshold, hence threshold = catch_up x (rate_out - rate_in / least).

    Of several clusters KEDA takes the one that wants most. All k of them together have at most k times its
    backlog, so the threshold is a k-th of that.

    Raises:
        ConfigError: The figures contradict each other, or a limit.
    """
    if workers.cooldown < SHORTEST_COOLDOWN:
        raise ConfigError(
            f"--cooldown {format_interval(workers.cooldown)}: expected 5 minutes at least: tasks of executors"
            " that end are repeated, and a backlog that comes and goes would start and end them all the time"
        )
    most = workers.most or workers.partitions
    if most > workers.partitions:
        raise ConfigError(
            f"--max-executors {most}: expected at most the number of partitions, {workers.partitions}: one"
            " task reads one partition, and further executors would have nothing to do"
        )
    least = math.floor(workers.rate_in / workers.rate_out) + 1
    if least > most:
        raise ConfigError(
            f"--rate-in {workers.rate_in:g}, --rate-out {workers.rate_out:g}: {least} executors only keep"
            f" up, but the maximum is {most}; add partitions, or make an executor faster"
            " (docs/performance.md)"
        )
    seconds = workers.catch_up / timedelta(seconds=1)
    threshold = math.floor(seconds * (workers.rate_out - workers.rate_in / least) / workers.clusters)
    if threshold < 1:
        raise ConfigError(
            f"--catch-up {format_interval(workers.catch_up)}: expected a time in which an executor"
            " processes a record at least; make it longer"
        )
    return Scale(least, most, threshold)


def keda_files(pods: Pods, workers: Workers | None) -> list[DeploymentFile]:
    """Return the files for KEDA.

    Args:
        pods: Of the pipeline.
        workers: Executors to scale; None to run the streams to the end of the backlog, and not at all without
            one.

    Raises:
        ConfigError: The backlog cannot be seen by KEDA, or a limit is not kept.
    """
    sources = pods.described.asked
    if workers is None and len(sources) > 1:
        raise ConfigError(_ONE_AFTER_ANOTHER)
    workers = workers and replace(workers, clusters=len(sources))
    threshold = 1 if workers is None else scale_of(workers).threshold
    triggers = [_trigger(pods, source, threshold) for source in sources]
    secured = [
        source.cluster
        for source, trigger in zip(sources, triggers, strict=True)
        if "authenticationRef" in trigger
    ]
    auth = [_authentication(pods, cluster) for cluster in secured]
    secrets = [_SECRETS.format(*_user_keys(cluster), pods.place.secret) for cluster in secured]
    if workers is not None:
        return [
            yaml_file(
                "scaled-object.yaml",
                [*SCALING, *_of_workers(workers, triggers), _GROUP, *secrets],
                [*auth, _object(pods, workers, triggers)],
            )
        ]
    first = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": pods.metadata("first-run"),
        "spec": _run(pods, "first-run"),
    }
    return [
        base_file(pods),
        yaml_file("first-run.yaml", [_FIRST], [first]),
        yaml_file(
            "scaled-job.yaml", [*SCALING, _JOBS, _GROUP, *secrets], [*auth, _scaled_job(pods, triggers)]
        ),
    ]


_ONE_AFTER_ANOTHER: Final = (
    "oncelake deploy keda: expected --workers for a pipeline with several clusters (kafka.clusters): without"
    " it a run takes the streams one after the other, so a cluster that is down would stop those of the"
    " others; let the streams run all the time (oncelake deploy kubernetes), and scale the workers"
)
_GROUP: Final = (
    "The backlog is that of the consumer group to which ingest commits what is in bronze. Until the first"
    " commit KEDA counts all offsets of the topic (offsetResetPolicy: earliest), deleted ones as well, so"
    " let ingest read records once before this file is applied. With `latest`, KEDA would never see what"
    " was sent before."
)
_FIRST: Final = (
    "Apply this file before scaled-job.yaml, when the topic has records, and wait until the job is complete:"
    " ingest then has committed offsets, from which KEDA computes the backlog."
)
_JOBS: Final = (
    "A run takes what is there when it begins, one stream after the other, and ends. KEDA starts one when"
    " there is a record that ingest has not read, and never a second one beside it. Remove the"
    " StatefulSets of `oncelake deploy kubernetes` first: of two copies of a stream, one fails. The night"
    " works as with streams that run all the time; set batch.seal_wait to more than a run takes."
    " KEDA starts the next run a minute after one that failed for good: alert on failed Jobs."
)
_SECRETS: Final = (
    "KEDA does not read sasl.jaas.config: put user and password into the keys {0} and {1} of the secret {2}."
)


def _of_workers(workers: Workers, triggers: Sequence[Document]) -> list[str]:
    settings = [pair for trigger in triggers for pair in trigger["metadata"].items()]
    from_env = sorted({value for key, value in settings if key.endswith("FromEnv")})
    scale = scale_of(workers)
    of_one = " of one cluster" if workers.clusters > 1 else ""
    computed = (
        f"Computed from {workers.rate_in:g} records per second that come, {workers.rate_out:g} that one"
        " executor processes (oncelake lag shows rates), and a backlog that is to be gone in"
        f" {format_interval(workers.catch_up)}: {scale.least} executors keep up, one more for each"
        f" {scale.threshold} records{of_one}, and at most {scale.most} for {workers.partitions} partitions."
    )
    several = [_SEVERAL.format(workers.clusters)] if workers.clusters > 1 else []
    return [_ONE_EACH, computed, *several, *(_FROM_ENV.format(name) for name in from_env)]


_SEVERAL: Final = (
    "There is a trigger for each of the {0} clusters, and the one that wants most executors decides. It"
    " counts as if the others had as large a backlog, so that all are worked off in time, however much each"
    " has. While a cluster does not answer, the others can still start executors, and none are ended."
)
_FROM_ENV: Final = "KEDA takes {0} from the workers' container, which needs this environment variable."


_ONE_EACH: Final = (
    "Scales the workers of the Spark cluster that spark.master names, one executor in each, and no stream."
)


def _trigger(pods: Pods, config: PipelineConfig, threshold: int) -> dict[str, Any]:
    """Return the trigger of a cluster.

    Args:
        pods: Of the pipeline.
        config: The configuration of the cluster's source.
        threshold: Records of its backlog for each executor, or run.
    """
    described, kafka = pods.described, config.kafka
    options, servers, topic = kafka.options, kafka.setting("bootstrap_servers"), kafka.setting("topic")
    deciding = [kafka.setting(f"options.{name}") for name in _DECIDING]
    described.require_known("ingest.offsets_group", *deciding)
    if config.offsets_group is None:
        raise ConfigError(
            "ingest.offsets_group: expected the name of a group, got null: KEDA sees the backlog by its"
            " offsets; remove the setting"
        )
    metadata = {
        **_of("bootstrapServers", described.variable(servers), kafka.bootstrap_servers),
        # What a cluster leaves out is as in `kafka`.
        **_of(
            "topic",
            described.variable(topic if topic in described.raw else "kafka.topic"),
            kafka.topic,
        ),
        "consumerGroup": config.offsets_group,
        "lagThreshold": str(threshold),
        # A record that waits for more would not be in bronze when its day is sealed.
        "activationLagThreshold": "0",
        "offsetResetPolicy": "earliest",
        "scaleToZeroOnInvalidOffset": "false",
        "allowIdleConsumers": "false",
    }
    protocol = options.get("security.protocol", "PLAINTEXT").upper()
    if "SSL" in protocol:
        metadata["tls"] = "enable"
        _refuse_client_certificate(kafka)
    trigger: dict[str, Any] = {"type": "kafka", "metadata": metadata}
    if protocol.startswith("SASL"):
        mechanism = options.get("sasl.mechanism", "GSSAPI").upper()
        if mechanism not in _MECHANISMS:
            raise ConfigError(
                f"{kafka.setting('options.sasl.mechanism')}: expected {', '.join(_MECHANISMS)}, got"
                f" {mechanism}, which needs further settings of KEDA: write its TriggerAuthentication"
                " yourself, from the output for one of these"
            )
        metadata["sasl"] = _MECHANISMS[mechanism]
        trigger["authenticationRef"] = {"name": pods.name_for("kafka", config.cluster)}
    return trigger


def _refuse_client_certificate(kafka: KafkaConfig) -> None:
    """Make sure that the cluster asks for no certificate of a client."""
    names = (*(f"options.{name}" for name in kafka.options), *(f"secrets.{name}" for name in kafka.secrets))
    if found := [name for name in names if _KEYS in name]:
        raise ConfigError(
            f"{kafka.setting(found[0])}: expected none for KEDA, which needs key and certificate in a secret"
            " of its own: write its TriggerAuthentication yourself, from the output without this setting"
        )


def _of(name: str, variable: str | None, value: str) -> dict[str, str]:
    """Return a setting of a trigger, by the variable of the container that has it if it is in one."""
    return {f"{name}FromEnv": variable} if variable else {name: value}


def _user_keys(cluster: str | None) -> tuple[str, ...]:
    """Return the keys of the secret that have user and password for a cluster."""
    return tuple(f"{key}.{cluster}" if cluster else key for key in _USER_KEYS)


def _authentication(pods: Pods, cluster: str | None) -> Document:
    parameters = zip(("username", "password"), _user_keys(cluster), strict=True)
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "TriggerAuthentication",
        "metadata": {**pods.metadata("kafka"), "name": pods.name_for("kafka", cluster)},
        "spec": {
            "secretTargetRef": [
                {"parameter": parameter, "name": pods.place.secret, "key": key}
                for parameter, key in parameters
            ]
        },
    }


def _run(pods: Pods, part: str) -> dict[str, Any]:
    """Return a job that runs all streams once, in the order of the data."""
    containers = [pods.container(each.job, *each.options, "--once") for each in pods.described.processes]
    return job_spec(pods, part, containers, _PERMANENT, _ONCE_S)


def _scaled_job(pods: Pods, triggers: Sequence[Document]) -> Document:
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledJob",
        "metadata": pods.metadata("once"),
        "spec": {
            "jobTargetRef": _run(pods, "once"),
            "pollingInterval": _POLL_S,
            "minReplicaCount": 0,
            "maxReplicaCount": 1,
            "successfulJobsHistoryLimit": 3,
            "failedJobsHistoryLimit": 7,
            # Runs that are going on end before one of a new version starts.
            "rollout": {"strategy": "gradual"},
            "scalingStrategy": {"strategy": "default"},
            "triggers": [*triggers],
        },
    }


def _object(pods: Pods, workers: Workers, triggers: Sequence[Document]) -> Document:
    scale, cooldown_s = scale_of(workers), int(workers.cooldown / timedelta(seconds=1))
    down = {"scaleDown": {"stabilizationWindowSeconds": min(cooldown_s, 3_600)}}
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": pods.metadata("workers"),
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": workers.kind, "name": workers.name},
            "pollingInterval": _POLL_S,
            "cooldownPeriod": cooldown_s,
            "minReplicaCount": scale.least,
            "maxReplicaCount": scale.most,
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": down}},
            "triggers": [*triggers],
        },
    }
