"""What all pods of a pipeline have in common: names, configuration, account, network, containers."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Any, Final
from urllib.parse import urlsplit

from pipelines import __version__
from pipelines.config.references import variables_in
from pipelines.deployment.deployment_model import PipelineDeployment, StreamProcess
from pipelines.deployment.files import Document
from pipelines.errors import ConfigError

_KEYS_OF_S3: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_ATTRIBUTE: Final = "SPARK_EXECUTOR_ATTRIBUTE_RACK"
_ZONE_LABEL: Final = "metadata.labels['topology.kubernetes.io/zone']"
# Of objects in Kubernetes, which keeps them in etcd.
_MOST_BYTES: Final = 1 << 20
_MEMORY_UNITS: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_ENDPOINT: Final = "spark.hadoop.fs.s3a.endpoint"
_GIB: Final = 1 << 30
# Kubernetes allows 63 characters, and adds up to eleven to the names of what it makes for an object.
_LONGEST_NAME: Final = 52
_LEFT_OF_LONG: Final = 36
_HTTP: Final = 80
_HTTPS: Final = 443
_DNS: Final = 53
STOP_WITHIN_S: Final = 120
"""Seconds that a stream has to end after SIGTERM."""


@dataclass(frozen=True)
class Place:
    """Where the jobs of a pipeline run.

    Attributes:
        image: The image with Oncelake.
        home: The project's folder in it.
        secret: The Kubernetes secret that has each environment variable under its name.
    """

    image: str = f"registry.example.internal/oncelake:{__version__}"
    home: str = "/opt/oncelake"
    secret: str = "oncelake"  # noqa: S105 - the name of a secret


@dataclass(frozen=True)
class Pods:
    """Makes the parts of the pods of a pipeline.

    Attributes:
        described: The pipeline.
        place: Where they run.
    """

    described: PipelineDeployment
    place: Place

    def name(self, part: str) -> str:
        """Return the name of an object: `oncelake-PART-PIPELINE`."""
        return f"oncelake-{part}-{self.described.slug}"

    def labels(self, component: str | None = None) -> dict[str, str]:
        """Return the labels of all objects of the pipeline, or of those of one component."""
        labels = {
            "app.kubernetes.io/name": "oncelake",
            "app.kubernetes.io/instance": self.described.slug,
        }
        return {**labels, "app.kubernetes.io/component": component} if component else labels

    def metadata(self, part: str) -> dict[str, Any]:
        """Return the metadata of an object."""
        return {"name": self.name(part), "labels": self.labels(part)}

    def name_for(self, part: str, cluster: str | None) -> str:
        """Return the name of what is there for a cluster; no pipeline has two hyphens in a row in its own."""
        name = self.name(part)
        if cluster is None:
            return name
        whole = f"{name}--{cluster}"
        if len(whole) <= _LONGEST_NAME:
            return whole
        return f"{name[:_LEFT_OF_LONG].rstrip('-')}--{sha256(whole.encode()).hexdigest()[:8]}"

    def of_process(self, process: StreamProcess) -> dict[str, Any]:
        """Return the metadata of what runs a stream."""
        name = self.name_for(process.job.removesuffix("_stream"), process.cluster)
        return {"name": name, "labels": self.labels(process.part)}

    def options(self, *more: str, home: str | None = None) -> list[str]:
        """Return the options of a job.

        Args:
            more: Options of its own.
            home: The folder with `conf` and `data_contracts`; None for that of the image.
        """
        config, home = self.described.config, self.place.home if home is None else home
        folders = ["--conf-dir", f"{home}/conf", "--contracts-dir", f"{home}/data_contracts"]
        return ["--pipeline", config.name, "--env", config.env, *folders, *more, "--log-format", "json"]

    def environment(self) -> list[dict[str, Any]]:
        """Return the environment variables of a container: of secrets only where they are found."""
        names = self.described.variables
        needed = [{"name": name, "valueFrom": {"secretKeyRef": self._key(name)}} for name in names]
        # Not needed where the service account has a role.
        keys = _KEYS_OF_S3 if self.described.may_be_on_s3 else ()
        optional = [
            {"name": name, "valueFrom": {"secretKeyRef": {**self._key(name), "optional": True}}}
            for name in keys
            if name not in names
        ]
        return [*needed, *optional, *self.rack_environment()]

    def rack_environment(self) -> list[dict[str, Any]]:
        """Return the variables that tell a container its zone, by the downward API; none without racks."""
        named = dict.fromkeys(each.kafka.rack.executor_variable for each in self.described.asked)
        variables = [name for name in named if name]
        zones: list[dict[str, Any]] = [
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": _ZONE_LABEL}}} for name in variables
        ]
        return [*zones, *({"name": _ATTRIBUTE, "value": f"$({name})"} for name in variables[:1])]

    def container(self, job: str, *more: str) -> dict[str, Any]:
        """Return the container that runs a job."""
        home = self.place.home
        memory = f"{math.ceil(self.driver_bytes() / _GIB) + 1}Gi"
        return {
            "name": job.replace("_", "-"),
            "image": self.place.image,
            "workingDir": home,
            "command": ["oncelake", job],
            "args": self.options(*more),
            "env": self.environment(),
            "resources": {"requests": {"cpu": "2", "memory": memory}, "limits": {"memory": memory}},
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            "volumeMounts": [
                {"name": "project", "mountPath": f"{home}/{folder}", "subPath": folder, "readOnly": True}
                for folder in ("conf", "data_contracts")
            ],
        }

    def driver_bytes(self) -> int:
        """Return the memory of the driver, which has Spark's default where the configuration says nothing."""
        text = self.described.spark_setting("spark.driver.memory") or "1g"
        match = re.fullmatch(r"([0-9]{1,15})([kmgt]?)b?", text.lower())
        if match is None:
            raise ConfigError(f"spark.conf.spark.driver.memory: expected a size such as 3g, got {text!r}")
        return int(match[1]) << (_MEMORY_UNITS[match[2]] or _MEMORY_UNITS["m"])

    def template(self, component: str, spec: Document) -> dict[str, Any]:
        """Return the template of pods; they are replaced when the configuration changes.

        Args:
            component: What they are.
            spec: Containers, and how pods are restarted.
        """
        return {
            "metadata": {
                "labels": self.labels(component),
                "annotations": {"oncelake/configuration": self.described.digest()},
            },
            "spec": {
                "serviceAccountName": self.name("account"),
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": STOP_WITHIN_S,
                "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
                **spec,
                "volumes": [{"name": "project", "configMap": self._project()}],
            },
        }

    def base(self) -> list[Document]:
        """Return what must be there before any pod: configuration, account, network.

        Raises:
            ConfigError: The files of the pipeline do not fit into a ConfigMap.
        """
        files = self.described.files
        if sum(len(text.encode()) for text in files.values()) > _MOST_BYTES - 4096:
            raise ConfigError(
                f"{', '.join(files)}: together larger than 1 MiB, which is what a ConfigMap holds; make the"
                " suites of expectations smaller"
            )
        data = {_key_of(path): text for path, text in files.items()}
        return [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": self.metadata("project"), "data": data},
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": self.metadata("account"),
                "automountServiceAccountToken": False,
            },
            {
                "apiVersion": "networking.k8s.io/v1",
                "kind": "NetworkPolicy",
                "metadata": self.metadata("network"),
                "spec": {
                    "podSelector": {"matchLabels": self.labels()},
                    "policyTypes": ["Ingress", "Egress"],
                    "ingress": self._ingress(),
                    "egress": self._egress(),
                },
            },
        ]

    def metrics_port(self, process: StreamProcess) -> int | None:
        """Return the port at which a stream can be asked from outside its pod; None if it cannot."""
        self.described.require_known("metrics.host")
        metrics = self.described.config.metrics
        is_local = metrics.host in ("localhost", "::1") or metrics.host.startswith("127.")
        return None if metrics.port is None or is_local else metrics.port + process.port

    def _key(self, name: str) -> dict[str, Any]:
        return {"name": self.place.secret, "key": name}

    def _project(self) -> dict[str, Any]:
        items = [{"key": _key_of(path), "path": path} for path in self.described.files]
        return {"name": self.name("project"), "items": items}

    def _ingress(self) -> list[Document]:
        ports = [port for each in self.described.processes if (port := self.metrics_port(each))]
        within = [{"from": [{"podSelector": {} if self._has_cluster() else {"matchLabels": self.labels()}}]}]
        return [*within, *([{"ports": [_tcp(port) for port in ports]}] if ports else [])]

    def _egress(self) -> list[Document]:
        if self._has_cluster():
            # Executors are elsewhere, on ports that they choose.
            return [{}]
        ports = sorted({*self._ports()})
        if not ports:
            return [{}]
        dns = [{"protocol": protocol, "port": _DNS} for protocol in ("UDP", "TCP")]
        # Where a node tells its pods their role.
        of_node = {"to": [{"ipBlock": {"cidr": "169.254.0.0/16"}}], "ports": [_tcp(_HTTP)]}
        return [
            {"ports": dns},
            {"ports": [_tcp(port) for port in ports]},
            *([of_node] if self.described.may_be_on_s3 else []),
        ]

    def _has_cluster(self) -> bool:
        return not (self.described.config.spark.master or "local").startswith("local")

    def _ports(self) -> Iterator[int]:
        """Yield the ports of others that jobs connect to; none if one of them is not known here."""
        config = self.described.config
        kafkas = [each.kafka for each in self.described.asked]
        named = (
            *(kafka.setting("bootstrap_servers") for kafka in kafkas),
            "publish.bootstrap_servers",
            "registry.url",
            f"spark.conf.{_ENDPOINT}",
        )
        if any(variables_in(self.described.raw.get(key, "")) for key in named):
            return
        # A webhook is a secret, which is read where the job runs; a program may connect to anything.
        if config.notify.webhook or config.notify.command:
            return
        yield _HTTPS
        addresses = [
            *(kafka.bootstrap_servers for kafka in kafkas),
            (config.publish and config.publish.bootstrap_servers) or "",
        ]
        for server in filter(None, ",".join(addresses).split(",")):
            yield int(server.rpartition(":")[2])
        urls = [config.registry.url if config.registry else "", config.spark.conf.get(_ENDPOINT, "")]
        for url in filter(None, urls):
            parts = urlsplit(url if "://" in url else f"https://{url}")
            yield parts.port or (_HTTP if parts.scheme == "http" else _HTTPS)


def _key_of(path: str) -> str:
    return path.replace("/", "__")


def _tcp(port: int) -> dict[str, Any]:
    return {"protocol": "TCP", "port": port}


def cron(at: timedelta) -> str:
    """Return a time of the day as cron writes it."""
    minutes = int(at / timedelta(minutes=1)) % (24 * 60)
    return f"{minutes % 60} {minutes // 60} * * *"


def failing_for_good(containers: Sequence[str], codes: Sequence[int]) -> dict[str, Any]:
    """Return the policy of a Job that does not try again what gives the same result.

    Args:
        containers: The names of the containers that may end so.
        codes: The exit codes of a failure that another try does not change.
    """
    rules: list[dict[str, Any]] = [
        {
            "action": "FailJob",
            "onExitCodes": {"containerName": name, "operator": "In", "values": list(codes)},
        }
        for name in containers
    ]
    # A pod that the cluster evicts does not count as a failure.
    evicted = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    return {"rules": [*rules, evicted]}
