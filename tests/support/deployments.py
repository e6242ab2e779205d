"""Pipelines whose deployment files are looked at: one as it comes, one that uses all that there is."""

import json
import shutil
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import yaml

from pipelines.deployment.databricks import Clusters, databricks_files
from pipelines.deployment.deployment_model import PipelineDeployment, load_deployment
from pipelines.deployment.files import DeploymentFile
from pipelines.deployment.keda import Workers, keda_files
from pipelines.deployment.kubernetes import kubernetes_files
from pipelines.deployment.pods import Place, Pods
from pipelines.deployment.schedulers import airflow_files, cron_files, systemd_files
from pipelines.deployment.spark_operator import Executors, spark_operator_files

WORKERS = Workers("StatefulSet", "spark-worker", 12, 1_000.0, 400.0, timedelta(hours=1))
CLUSTERS = Clusters("18.0.x-scala2.13", "i3.xlarge", "/Workspace/Shared/oncelake")
EVERYTHING = """
kafka:
  bootstrap_servers: ${SERVERS}
  rack: {mode: client, variable: MY_ZONE}
registry: {url: "https://registry.example.internal:8443", secrets: {basic.auth.user.info: "${REGISTRY}"}}
publish: {topic: clean, options: {security.protocol: SASL_SSL}, secrets: {sasl.password: "${PASSWORD}"}}
metrics: {port: 9464, host: 0.0.0.0}
notify: {webhook: "${HOOK}"}
spark:
  conf:
    spark.dynamicAllocation.enabled: "true"
    spark.dynamicAllocation.minExecutors: "1"
    spark.dynamicAllocation.maxExecutors: "40"
"""


def described(folder: Path | None = None, more: str = "", name: str = "flights") -> PipelineDeployment:
    """A pipeline of `conf/prod`, with more settings in a copy of it in a folder."""
    conf = Path("conf")
    if folder is not None:
        conf = Path(shutil.copytree("conf", folder / "conf", dirs_exist_ok=True))
        for place in ("base", "prod"):
            original = conf / place / "pipelines/flights.yml"
            if original.name != f"{name}.yml":
                original.rename(original.with_name(f"{name}.yml"))
        file = conf / "prod/pipelines" / f"{name}.yml"
        merged = yaml.safe_load(file.read_text()) | (yaml.safe_load(more) or {})
        file.write_text(yaml.safe_dump(merged))
    return load_deployment(name, env="prod", conf_dir=conf, contracts_dir=Path("data_contracts"))


def all_files(of: PipelineDeployment) -> Mapping[str, list[DeploymentFile]]:
    """The files of a pipeline for each target."""
    pods = Pods(of, Place())
    return {
        "kubernetes": kubernetes_files(pods),
        "keda": keda_files(pods, None),
        "keda --workers": keda_files(pods, WORKERS),
        "spark-operator": spark_operator_files(pods, Executors(partitions=6)),
        "airflow": airflow_files(of, "/opt/oncelake"),
        "systemd": systemd_files(of, "/opt/oncelake"),
        "systemd --one-service": systemd_files(of, "/opt/oncelake", []),
        "cron": cron_files(of, "/opt/oncelake"),
        "databricks-job": databricks_files(pods, CLUSTERS),
    }


# Dumping and loading YAML takes seconds.
_READ: Final[dict[int, tuple[PipelineDeployment, list[dict[str, Any]]]]] = {}


def documents(of: PipelineDeployment) -> list[dict[str, Any]]:
    """What the files of a pipeline in YAML and JSON say."""
    if id(of) not in _READ:
        _READ[id(of)] = of, [*_documents(of)]
    return _READ[id(of)][1]


def _documents(of: PipelineDeployment) -> Iterator[dict[str, Any]]:
    for files in all_files(of).values():
        for each in files:
            if each.name.endswith(".yaml"):
                yield from yaml.load_all(each.text, Loader=yaml.CSafeLoader)
            elif each.name.endswith(".json"):
                yield json.loads(each.text)
