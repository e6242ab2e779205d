"""Deployment files of a pipeline with several clusters: an ingest and a trigger for each, no name twice."""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from pipelines.cli.app import oncelake
from pipelines.deployment.databricks import databricks_files
from pipelines.deployment.deployment_model import PipelineDeployment
from pipelines.deployment.files import DeploymentFile
from pipelines.deployment.keda import keda_files, scale_of
from pipelines.deployment.kubernetes import kubernetes_files
from pipelines.deployment.pods import Place, Pods
from pipelines.deployment.schedulers import airflow_files, cron_files, systemd_files
from pipelines.deployment.spark_operator import Executors, spark_operator_files
from pipelines.errors import ConfigError
from tests.support.click_groups import commands_in
from tests.support.deployments import CLUSTERS, WORKERS, described
from tests.support.published_schemas import FOLDER, kind_of, unchecked

SEVERAL = """
kafka:
  clusters:
    eu:
      bootstrap_servers: eu-1.example.internal:9095
      options: {security.protocol: SASL_SSL, sasl.mechanism: SCRAM-SHA-256}
      secrets: {sasl.jaas.config: "${EU_JAAS}"}
      rack: {mode: client, variable: EU_ZONE}
    lost: {bootstrap_servers: "lost.example.internal:9099", retired: true}
metrics: {port: 9464, host: 0.0.0.0}
"""
INGESTS = [[], ["--cluster", "eu"]]


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> PipelineDeployment:
    """A pipeline with two clusters, and a third one that is lost."""
    return described(tmp_path_factory.mktemp("several"), SEVERAL)


def files_of(of: PipelineDeployment) -> dict[str, list[DeploymentFile]]:
    pods = Pods(of, Place())
    return {
        "kubernetes": kubernetes_files(pods),
        "keda": keda_files(pods, WORKERS),
        "spark-operator": spark_operator_files(pods, Executors(partitions=6)),
        "databricks": databricks_files(pods, CLUSTERS),
        "systemd": systemd_files(of, "/opt/oncelake"),
    }


def parsed(files: Sequence[DeploymentFile]) -> list[dict[str, Any]]:
    documents: list[dict[str, Any]] = []
    for each in files:
        documents += [json.loads(each.text)] if each.name.endswith("json") else yaml.safe_load_all(each.text)
    return documents


def cluster_in(words: Sequence[str]) -> list[str]:
    """The options of a job that name a cluster, after the job has taken all of its options."""
    commands_in(oncelake)["ingest_stream"].make_context("ingest_stream", list(words)).close()
    return [*words[words.index("--cluster") :][:2]] if "--cluster" in words else []


def test_published_schemas_take_the_files(several: PipelineDeployment) -> None:
    files = files_of(several)
    del files["systemd"]
    for each in (document for of_target in files.values() for document in parsed(of_target)):
        schema = json.loads((FOLDER / f"{kind_of(each)}.json").read_text())
        jsonschema.validate(each, schema)
        assert list(unchecked(schema, each)) == []


def test_there_is_an_ingest_for_each_cluster_that_is_not_retired(several: PipelineDeployment) -> None:
    files = files_of(several)
    sets = [each for each in parsed(files["kubernetes"]) if each["kind"] == "StatefulSet"]
    assert [each["metadata"]["name"] for each in sets] == [
        *("oncelake-ingest-flights", "oncelake-ingest-flights--eu", "oncelake-speed-flights")
    ]
    assert len({json.dumps(each["spec"]["selector"]) for each in sets}) == 3
    pods = [each["spec"]["template"]["spec"]["containers"][0] for each in sets]
    assert [cluster_in(pod["args"]) for pod in pods[:2]] == INGESTS
    assert [pod["ports"][0]["containerPort"] for pod in pods] == [9464, 9467, 9465]
    assert all({"EU_ZONE", "EU_JAAS"} <= {each["name"] for each in pod["env"]} for pod in pods)

    applications = parsed(files["spark-operator"])[:2]
    assert [each["metadata"]["name"] for each in applications] == [each["metadata"]["name"] for each in sets][
        :2
    ]
    assert [cluster_in(each["spec"]["arguments"]) for each in applications] == INGESTS

    jobs = files["databricks"][:2]
    assert [each.name for each in jobs] == ["ingest_stream.json", "ingest_stream-eu.json"]
    tasks = [each["tasks"][0]["spark_python_task"] for each in parsed(jobs)]
    assert [cluster_in(each["parameters"]) for each in tasks] == INGESTS
    assert [each["name"] for each in parsed(jobs)] == [
        *("oncelake-ingest-stream-flights", "oncelake-ingest-stream-flights@eu")
    ]

    units = {each.name: each.text for each in files["systemd"]}
    assert (
        "oncelake ingest_stream --cluster eu --pipeline %i --env prod"
        in (units["oncelake-ingest_stream-eu@.service"])
    )
    assert "%j" not in units["oncelake-ingest_stream-eu@.service"]
    assert "oncelake %j --pipeline %i" in units["oncelake-ingest_stream@.service"]
    assert not any("lost" in each.name or "9099" in each.text for each in files["systemd"])


def test_what_runs_for_all_clusters_is_as_with_one(several: PipelineDeployment) -> None:
    one = described()
    assert airflow_files(several, "/opt/oncelake") == airflow_files(one, "/opt/oncelake")
    assert cron_files(several, "/opt/oncelake") == cron_files(one, "/opt/oncelake")
    together = [systemd_files(of, "/opt/oncelake", []) for of in (several, one)]
    assert together[0] == together[1]


def test_the_network_is_open_to_each_cluster_that_is_asked(several: PipelineDeployment) -> None:
    (policy,) = (each for each in parsed(files_of(several)["kubernetes"]) if each["kind"] == "NetworkPolicy")
    egress = {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"] if "to" not in rule}
    assert egress == {53, 443, 9093, 9095}
    ingress = {port["port"] for rule in policy["spec"]["ingress"] for port in rule.get("ports", ())}
    assert ingress == {9464, 9465, 9467}


def test_keda_has_a_trigger_for_each_cluster(several: PipelineDeployment) -> None:
    (file,) = files_of(several)["keda"]
    *auths, scaled = parsed([file])
    first, eu = scaled["spec"]["triggers"]
    assert first["metadata"]["lagThreshold"] == eu["metadata"]["lagThreshold"] == "120000"
    assert eu["metadata"]["bootstrapServers"] == "eu-1.example.internal:9095"
    assert (eu["metadata"]["topic"], eu["metadata"]["sasl"]) == ("flights", "scram_sha256")
    assert [each["metadata"]["consumerGroup"] for each in (first, eu)] == [
        *("oncelake.prod.flights.ingest", "oncelake.prod.flights.ingest.eu")
    ]
    named = [each["authenticationRef"]["name"] for each in (first, eu)]
    assert named == [each["metadata"]["name"] for each in auths]
    keys = [target["key"] for each in auths for target in each["spec"]["secretTargetRef"]]
    assert keys == ["kafka-username", "kafka-password", "kafka-username.eu", "kafka-password.eu"]
    assert "each of the 2 clusters" in re.sub(r"\s*\n#\s*", " ", file.text)


def test_runs_of_one_stream_after_the_other_are_refused(several: PipelineDeployment) -> None:
    with pytest.raises(ConfigError, match="a cluster that is down would stop those of the others"):
        keda_files(Pods(several, Place()), None)


@given(
    st.integers(1, 5_000),
    st.integers(1, 5_000),
    st.integers(60, 86_400),
    st.lists(st.integers(0, 10_000_000), min_size=1, max_size=4),
)
def test_backlogs_of_several_clusters_are_worked_off_in_the_wanted_time(
    rate_in: int, rate_out: int, catch_up_s: int, backlogs: list[int]
) -> None:
    workers = replace(
        WORKERS,
        partitions=10_000,
        rate_in=float(rate_in),
        rate_out=float(rate_out),
        catch_up=timedelta(seconds=catch_up_s),
        clusters=len(backlogs),
    )
    least = math.floor(rate_in / rate_out) + 1
    assume(catch_up_s * (rate_out - rate_in / least) >= len(backlogs))
    scale = scale_of(workers)
    wanted = max(scale.least, *(math.ceil(backlog / scale.threshold) for backlog in backlogs))
    assume(wanted <= scale.most)
    assert sum(backlogs) / (wanted * rate_out - rate_in) <= catch_up_s * (1 + 1e-9)


def test_two_variables_are_two_clusters(tmp_path: Path) -> None:
    more = """
    kafka:
      bootstrap_servers: ${US}
      topic: ${TOPIC}
      clusters: {eu: {bootstrap_servers: "${EU}"}}
    """
    (file,) = files_of(described(tmp_path, more))["keda"]
    *_, scaled = parsed([file])
    first, eu = (each["metadata"] for each in scaled["spec"]["triggers"])
    assert (first["bootstrapServersFromEnv"], eu["bootstrapServersFromEnv"]) == ("US", "EU")
    assert (first["topicFromEnv"], eu["topicFromEnv"]) == ("TOPIC", "TOPIC")
    assert file.text.count("# KEDA takes TOPIC from") == 1
    with pytest.raises(ConfigError, match="each record would be read twice"):
        described(tmp_path, more.replace("${US}", "${EU}"))


def test_a_secret_of_a_cluster_is_refused_and_not_shown(tmp_path: Path) -> None:
    cluster = "{bootstrap_servers: 'eu:1', secrets: {sasl.jaas.config: hush-hush}}"
    with pytest.raises(ConfigError, match=r"kafka\.clusters\.eu\.secrets") as refused:
        described(tmp_path, f"kafka: {{clusters: {{eu: {cluster}}}}}")
    assert "hush-hush" not in str(refused.value)


def test_no_cluster_of_a_pipeline_has_a_name_that_another_has(tmp_path: Path) -> None:
    pipelines = ["flights", "flights-eu", "flights_eu", "x" * 30, "x" * 40]
    clusters = ["eu", "e-u", "flights--eu", "y" * 39, "y" * 40, "eu--y"]
    pods = [Pods(described(tmp_path / str(n), name=name), Place()) for n, name in enumerate(pipelines)]
    names = [each.name_for("ingest", cluster) for each in pods for cluster in (None, *clusters)]
    assert len({*names}) == len(names)
    assert all(re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?", name) for name in names)
