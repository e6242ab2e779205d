"""Deployment files are taken by those who read them, hold no secrets, and say what the configuration says."""

import ast
import copy
import json
import re
import shlex
import shutil
import subprocess
from configparser import RawConfigParser
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pipelines.cli.app import oncelake
from pipelines.config.loader import load_config
from pipelines.deployment.deployment_model import PipelineDeployment, load_deployment
from pipelines.deployment.files import yaml_file
from pipelines.deployment.kubernetes import kubernetes_files
from pipelines.deployment.pods import Place, Pods
from pipelines.deployment.schedulers import cron_files, systemd_files
from pipelines.errors import ConfigError
from pipelines.yaml import parse_yaml
from tests.support.click_groups import commands_in
from tests.support.deployments import EVERYTHING, all_files, described, documents
from tests.support.published_schemas import FOLDER, kind_of, unchecked

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?")
VARIABLES = ("HOOK", "KAFKA_JAAS_CONFIG", "PASSWORD", "REGISTRY", "SERVERS")


@pytest.fixture(scope="module")
def plain() -> PipelineDeployment:
    """The pipeline of `conf/prod`."""
    return described()


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> PipelineDeployment:
    """A pipeline that uses all that there is."""
    return described(tmp_path_factory.mktemp("everything"), EVERYTHING)


def schema(kind: str) -> Any:
    return json.loads((FOLDER / f"{kind}.json").read_text())


def of_kind(of: PipelineDeployment, kind: str) -> list[dict[str, Any]]:
    return [each for each in documents(of) if kind_of(each) == kind]


def strings(value: Any) -> list[str]:
    """All texts of a document."""
    if isinstance(value, dict):
        return [each for pair in value.items() for part in pair for each in strings(part)]
    return [each for part in value for each in strings(part)] if isinstance(value, list) else [str(value)]


@pytest.mark.patient
@pytest.mark.parametrize("which", ["plain", "everything"])
def test_published_schemas_take_all_documents(which: str, request: pytest.FixtureRequest) -> None:
    found = list(documents(request.getfixturevalue(which)))
    assert {kind_of(each) for each in found} == {path.stem for path in FOLDER.glob("*.json")}
    for each in found:
        jsonschema.validate(each, schema(kind_of(each)))
        assert list(unchecked(schema(kind_of(each)), each)) == [], "run tests.support.published_schemas"


@pytest.mark.parametrize("kind", sorted(path.stem for path in FOLDER.glob("*.json")))
def test_published_schemas_refuse_a_name_that_is_mistaken(kind: str, everything: PipelineDeployment) -> None:
    document = of_kind(everything, kind)[0]
    mistaken = copy.deepcopy(document)
    place = mistaken.get("spec", mistaken)
    key = sorted(place)[0]
    place[f"{key}Mistaken"] = place.pop(key)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(mistaken, schema(kind))


def test_files_are_the_same_each_time_and_in_each_environment(
    everything: PipelineDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = all_files(everything)
    for name in (*VARIABLES, "KAFKA_BOOTSTRAP_SERVERS"):
        monkeypatch.setenv(name, f"hush-hush-{name}:1")
    assert all_files(everything) == before
    assert all_files(described()) == all_files(described())
    text = "".join(each.text for files in all_files(described()).values() for each in files)
    assert "hush-hush" not in text
    assert "localhost" not in text


def test_values_of_variables_are_never_in_the_files(everything: PipelineDeployment) -> None:
    assert everything.variables == VARIABLES
    for files in all_files(everything).values():
        for each in files:
            assert "variable.invalid" not in each.text, each.name


@pytest.mark.parametrize(
    "setting",
    [
        "kafka: {secrets: {sasl.jaas.config: hush-hush}}",
        "publish: {topic: clean, secrets: {sasl.password: hush-hush}}",
        "registry: {url: 'https://registry', secrets: {basic.auth.user.info: hush-hush}}",
        "notify: {webhook: 'https://hooks/hush-hush'}",
        "notify: {webhook: '${HOOK}', headers: {Authorization: hush-hush}}",
        "spark: {conf: {spark.hadoop.fs.s3a.secret.key: hush-hush}}",
        "spark: {conf: {spark.driver.extraJavaOptions: '-Xss4m -Djavax.net.ssl.keyStorePassword=hush-hush'}}",
        "notify: {webhook: 'https://hooks/${TEAM}/hush-hush'}",
        "notify: {webhook: '${HOOK}', headers: {Authorization: 'Bearer ${PART}hush-hush'}}",
        'kafka: {secrets: {sasl.jaas.config: \'x required username="${USER}" password="hush-hush";\'}}',
        "notify: {command: [curl, -H, 'Authorization: Bearer hush-hush', '${URL}']}",
        "notify: {command: [curl, -uhush-hush]}",
        "notify: {command: [curl, '--user=hush-hush']}",
        "notify: {command: [curl, 'https://hooks/${TEAM}/hush-hush']}",
    ],
)
def test_a_secret_in_a_file_is_refused_and_not_shown(setting: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"environment variables?, \$\{NAME\}") as refused:
        described(tmp_path, setting)
    assert "conf/prod/pipelines/flights.yml" in str(refused.value)
    assert "hush-hush" not in str(refused.value)


def test_pods_take_credentials_of_s3_from_the_secret_if_it_has_them(plain: PipelineDeployment) -> None:
    (stream, *_) = of_kind(plain, "StatefulSet")
    (container,) = stream["spec"]["template"]["spec"]["containers"]
    found = {each["name"]: each["valueFrom"]["secretKeyRef"].get("optional") for each in container["env"]}
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    assert {
        name: is_optional for name, is_optional in found.items() if name.startswith("AWS_")
    } == dict.fromkeys(names, True)


def test_secrets_in_variables_and_in_comments_are_in_no_file(tmp_path: Path) -> None:
    of = described(
        tmp_path,
        """notify:  # the token was hush-hush
          command: [curl, -H, "${HEADER}", --env, prod, --pipeline, flights, -d, "${BODY}"]  # hush-hush
          # webhook: https://hooks/hush-hush
          webhook: ${HOOK}
        """,
    )
    text = "".join(each.text for files in all_files(of).values() for each in files)
    assert "${HEADER}" in text
    assert "hush-hush" not in text


def test_files_say_what_they_said_with_their_comments(tmp_path: Path) -> None:
    written = """spark:
  conf: {spark.a: '010', spark.b: '1:30', spark.c: 'yes', spark.d: "a\\nb", spark.e: '# none', spark.f: 'é'}
decode: {max_future: 90 minutes}
"""
    of = described(tmp_path, written)
    (text,) = (text for path, text in of.files.items() if path.endswith("prod/pipelines/flights.yml"))
    assert parse_yaml(text, "file", ConfigError).items() >= parse_yaml(written, "file", ConfigError).items()


def test_a_variable_where_a_number_is_needed_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="variables are not read here"):
        described(tmp_path, "metrics: {port: '${PORT}'}")


def test_a_variable_as_a_part_of_an_address_is_refused_where_it_cannot_be_replaced(tmp_path: Path) -> None:
    of = described(tmp_path, "kafka: {bootstrap_servers: '${HOST}:9093'}")
    with pytest.raises(ConfigError, match="one variable as a whole"):
        all_files(of)


@pytest.mark.parametrize(
    "setting",
    [
        "ingest: {offsets_group: '${GROUP}'}",
        "kafka: {options: {security.protocol: '${PROTOCOL}'}}",
        "metrics: {port: 9464, host: '${HOST}'}",
        "spark: {conf: {spark.driver.memory: '${MEMORY}'}}",
        "spark: {conf: {spark.executor.instances: '${NUMBER}'}}",
    ],
)
def test_a_variable_that_decides_what_is_written_is_refused(setting: str, tmp_path: Path) -> None:
    of = described(tmp_path, setting)
    with pytest.raises(ConfigError, match="decides what is written"):
        all_files(of)


def test_a_number_of_executors_that_is_none_is_refused(tmp_path: Path) -> None:
    of = described(tmp_path, "spark: {conf: {spark.executor.instances: many}}")
    with pytest.raises(ConfigError, match="expected a number, got 'many'"):
        all_files(of)


def test_each_container_has_each_variable_by_its_secret(everything: PipelineDeployment) -> None:
    for document in documents(everything):
        for container in containers(document):
            named = {each["name"]: each for each in container["env"]}
            for name in VARIABLES:
                assert named[name]["valueFrom"]["secretKeyRef"] == {"name": "oncelake", "key": name}
            assert all(
                "value" not in each for name, each in named.items() if name.isupper() and "RACK" not in name
            )


def containers(value: Any) -> list[dict[str, Any]]:
    """The containers of a document that run a job."""
    if isinstance(value, dict):
        if value.get("command", [""])[0] == "oncelake":
            return [value]
        return [each for part in value.values() for each in containers(part)]
    return [each for part in value for each in containers(part)] if isinstance(value, list) else []


def require_taken(job: str, words: list[str]) -> None:
    with commands_in(oncelake)[job].make_context(job, list(words)) as context:
        assert context.params["pipeline"] == "flights"
        assert context.params["env"] == "prod"


def test_jobs_take_their_command_lines(everything: PipelineDeployment) -> None:
    started = [
        (each["command"][1], each["args"])
        for document in documents(everything)
        for each in containers(document)
    ]
    for document in documents(everything):
        if document.get("kind") == "SparkApplication":
            started.append(
                (Path(document["spec"]["mainApplicationFile"]).stem, document["spec"]["arguments"])
            )
        elif document.get("kind") == "ScheduledSparkApplication":
            spec = document["spec"]["template"]
            started.append((Path(spec["mainApplicationFile"]).stem, spec["arguments"]))
        elif "tasks" in document:
            task = document["tasks"][0]["spark_python_task"]
            started.append((Path(task["python_file"]).stem, task["parameters"]))
    assert {job for job, _ in started} == {
        *("ingest_stream", "speed_stream", "publish_stream", "nightly_batch", "maintain")
    }
    for job, words in started:
        require_taken(job, words)


def test_the_map_of_a_pod_is_the_configuration_that_was_read(
    everything: PipelineDeployment, tmp_path: Path
) -> None:
    (data,) = (each["data"] for each in of_kind(everything, "ConfigMap")[:1])
    pod = of_kind(everything, "StatefulSet")[0]["spec"]["template"]["spec"]
    for item in pod["volumes"][0]["configMap"]["items"]:
        path = tmp_path / item["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(data[item["key"]], encoding="utf-8")
    environ = dict.fromkeys(VARIABLES, "x:9092") | {"HOOK": "https://x"}
    mounted, original = (
        load_config("flights", env="prod", conf_dir=folder, environ=environ)
        for folder in (tmp_path / "conf", Path("conf"))
    )
    assert mounted.publish is not None
    assert original.publish is None
    again = load_deployment(
        "flights", env="prod", conf_dir=tmp_path / "conf", contracts_dir=tmp_path / "data_contracts"
    )
    assert (again.config, again.digest()) == (everything.config, everything.digest())


def test_no_stream_is_ever_started_twice(everything: PipelineDeployment) -> None:
    assert [each["spec"]["replicas"] for each in of_kind(everything, "StatefulSet")] == [1, 1, 1]
    (job,) = of_kind(everything, "ScaledJob")
    assert (job["spec"]["minReplicaCount"], job["spec"]["maxReplicaCount"]) == (0, 1)
    assert {each["spec"]["concurrencyPolicy"] for each in of_kind(everything, "CronJob")} == {"Forbid"}
    assert {each["max_concurrent_runs"] for each in of_kind(everything, "JobSettings")} == {1}


def test_a_pod_has_its_zone_where_the_configuration_wants_racks(
    plain: PipelineDeployment, everything: PipelineDeployment
) -> None:
    assert not any("topology" in text for each in documents(plain) for text in strings(each))
    environment = containers(of_kind(everything, "StatefulSet")[0])[0]["env"]
    zone, attribute = environment[-2:]
    assert zone["name"] == "MY_ZONE"
    assert zone["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.labels['topology.kubernetes.io/zone']"
    assert attribute == {"name": "SPARK_EXECUTOR_ATTRIBUTE_RACK", "value": "$(MY_ZONE)"}
    (spec, *_) = (each["spec"] for each in of_kind(everything, "SparkApplication"))
    assert spec["executor"]["env"] == environment[-2:]


def test_the_operator_starts_a_stream_again_whose_driver_was_evicted(everything: PipelineDeployment) -> None:
    streams = of_kind(everything, "SparkApplication")
    assert [each["spec"]["restartPolicy"] for each in streams] == [{"type": "Always"}] * 3


def test_streams_are_probed_where_they_answer(
    plain: PipelineDeployment, everything: PipelineDeployment
) -> None:
    probes = [containers(each)[0].get("livenessProbe") for each in of_kind(everything, "StatefulSet")]
    # Not at /healthz, which is bad during a long task: killed, the stream would begin it anew, for ever.
    asked = [(each["httpGet"]["path"], each["httpGet"]["port"]) for each in probes if each]
    assert asked == [("/livez", 9464), ("/livez", 9465), ("/livez", 9466)]
    assert all("livenessProbe" not in containers(each)[0] for each in of_kind(plain, "StatefulSet"))
    # A start may take an hour, and a stream that runs five minutes without an answer.
    both = [containers(each)[0] for each in of_kind(everything, "StatefulSet")]
    assert {
        each["startupProbe"]["failureThreshold"] * each["startupProbe"]["periodSeconds"] for each in both
    } == {3600}
    assert {each["livenessProbe"]["failureThreshold"] for each in both} == {5}


def test_the_network_is_open_where_the_configuration_connects_to(plain: PipelineDeployment) -> None:
    (policy,) = of_kind(plain, "NetworkPolicy")[:1]
    ports = {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"] if "to" not in rule}
    assert ports == {53, 443, 9093}
    assert policy["spec"]["ingress"] == [{"from": [{"podSelector": policy["spec"]["podSelector"]}]}]


@pytest.mark.parametrize(
    "notify",
    ['{webhook: "${HOOK}"}', '{webhook: "${file:/run/secrets/hook}"}', "{command: [/opt/notify]}"],
)
def test_the_network_is_open_to_what_the_configuration_does_not_tell(tmp_path: Path, notify: str) -> None:
    (policy,) = of_kind(described(tmp_path, f"notify: {notify}"), "NetworkPolicy")[:1]
    assert policy["spec"]["egress"] == [{}]


def test_the_night_begins_when_its_day_is_over_and_upkeep_at_another_time(tmp_path: Path) -> None:
    of = described(tmp_path, "batch: {seal_grace: 3 hours}")
    nightly, maintain = (each["spec"] for each in of_kind(of, "CronJob"))
    assert (nightly["schedule"], maintain["schedule"]) == ("0 4 * * *", "0 16 * * *")
    assert nightly["timeZone"] == "America/New_York"
    quartz = [each["schedule"] for each in of_kind(of, "JobSettings") if "schedule" in each]
    assert [each["quartz_cron_expression"] for each in quartz] == ["0 0 4 * * ?", "0 0 16 * * ?"]


def test_executors_of_ingest_are_not_more_than_partitions(everything: PipelineDeployment) -> None:
    most = [
        each["spec"]["dynamicAllocation"]["maxExecutors"] for each in of_kind(everything, "SparkApplication")
    ]
    assert most == [6, 40, 40]


def test_the_dag_compiles_and_names_the_pipeline(everything: PipelineDeployment) -> None:
    (file,) = all_files(everything)["airflow"]
    values = {
        node.targets[0].id: ast.unparse(node.value)
        for node in ast.parse(file.text).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    assert values["TIME_ZONE"] == "'America/New_York'"
    assert (values["ENV"], values["SCHEDULE"]) == ("'prod'", "'30 1 * * *'")
    assert values["PROJECT"] == "Path('/opt/oncelake')"
    assert "for name in ['flights']" in ast.unparse(ast.parse(file.text))
    assert "_pipelines" not in file.text


def test_units_name_the_environment_and_the_time(everything: PipelineDeployment) -> None:
    config = everything.config.model_copy(update={"env": "staging"})
    units = {each.name: each.text for each in all_files(replace(everything, config=config))["systemd"]}
    named = [word for text in units.values() for word in re.findall(r"--env (\S+)", text)]
    # The nightly run and its two reports, upkeep, and three streams.
    assert named == ["staging"] * 7
    assert {name for name in units if "stream" in name} == {
        f"oncelake-{name}_stream@.service" for name in ("ingest", "speed", "publish")
    }
    timer = RawConfigParser(strict=True)
    timer.read_string(units["oncelake-nightly@.timer"])
    assert timer["Timer"]["OnCalendar"] == "*-*-* 01:30:00 America/New_York"


def test_one_service_runs_the_streams_of_several_pipelines(
    everything: PipelineDeployment, tmp_path: Path
) -> None:
    other = described(tmp_path, name="orders")
    files = systemd_files(everything, "/srv/oncelake", [other, everything])
    units = {each.name: each.text for each in files}
    assert {name for name in units if "stream" in name} == set()
    assert {f"oncelake-{name}@.timer" for name in ("nightly", "maintain")} <= units.keys()
    service = RawConfigParser(strict=True)
    service.read_string(units["oncelake-run.service"])
    program, command, *words = shlex.split(service["Service"]["ExecStart"])
    assert (program, command) == ("/srv/oncelake/.venv/bin/oncelake", "run")
    with commands_in(oncelake)["run"].make_context("run", words) as context:
        assert context.params["named"] == ("flights", "orders")
        assert (context.params["everything"], context.params["env"]) == (False, "prod")
    assert service["Unit"]["Description"] == "Oncelake: streams of flights, orders"


def test_the_crontab_of_flights_is_the_one_of_deploy(plain: PipelineDeployment) -> None:
    (file,) = all_files(plain)["cron"]
    assert (file.name, file.text) == ("oncelake-flights", Path("deploy/cron/oncelake-pipeline").read_text())


def test_a_crontab_leaves_it_to_the_hooks_to_say_that_a_stream_is_behind(
    everything: PipelineDeployment,
) -> None:
    (file,) = all_files(everything)["cron"]
    *_, lag = (line for line in file.text.splitlines() if re.match(r"[*\d]", line))
    words = re.search(r"bin/oncelake (lag .*?) > ", lag)
    assert words is not None
    command, *options = shlex.split(words[1])
    with commands_in(oncelake)[command].make_context(command, options) as context:
        assert (context.params["is_alerting"], context.params["pipeline"]) == (True, "flights")
    assert "grep" not in lag
    subprocess.run(["/bin/sh", "-n", "-c", lag.split(None, 6)[-1]], check=True)


@pytest.mark.parametrize(
    ("zone", "nightly", "maintain"),
    [
        ("Europe/Berlin", "30 0", "30 12"),
        # Half an hour behind a whole one, and ahead of UTC for the whole year.
        ("Asia/Kolkata", "0 20", "0 8"),
    ],
)
def test_a_crontab_begins_its_nights_when_the_day_is_over_in_summer_and_in_winter(
    zone: str, nightly: str, maintain: str, tmp_path: Path
) -> None:
    of = described(tmp_path, name="a_Flight")
    there = PipelineDeployment(of.config, replace(of.contract, day_time_zone=zone), of.raw, of.files)
    (file,) = cron_files(there, "/srv/oncelake")
    assert file.name == f"oncelake-{of.slug}"
    assert f"/etc/cron.d/oncelake-{of.slug}" in file.text
    lines = [line for line in file.text.splitlines() if re.match(r"[*\d]", line)]
    assert [line.rpartition(" oncelake cd ")[0].split(" *")[0] for line in lines[:2]] == [nightly, maintain]
    assert all("flights" not in line and "cd /srv/oncelake " in line for line in lines)
    assert all(line.count("--pipeline a_Flight --env prod") == 1 for line in lines)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
@pytest.mark.parametrize("target", ["systemd", "systemd --one-service"])
def test_systemd_takes_the_units(target: str, everything: PipelineDeployment, tmp_path: Path) -> None:
    program = re.compile(r"^ExecStart=\S+", re.MULTILINE)
    for each in all_files(everything)[target]:
        (tmp_path / each.name).write_text(program.sub("ExecStart=/bin/true", each.text))
    command = ["systemd-analyze", "verify", *map(str, tmp_path.iterdir())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["Flights", "a_b", "x" * 90, "1"])
def test_names_are_those_that_kubernetes_allows(name: str, tmp_path: Path) -> None:
    of = described(tmp_path, name=name)
    for each in documents(of):
        if "metadata" in each:
            assert NAME.fullmatch(each["metadata"]["name"]), each["metadata"]["name"]
            assert all(len(value) <= 63 for value in each["metadata"]["labels"].values())


def test_two_pipelines_never_have_the_same_name_in_kubernetes(tmp_path: Path) -> None:
    names = ["a-b", "A-b", "a_b", "x" * 80, "x" * 81]
    slugs = [described(tmp_path / str(number), name=name).slug for number, name in enumerate(names)]
    assert len({*slugs}) == len(names)


@given(st.dictionaries(st.text(), st.text(), max_size=3))
def test_texts_are_read_as_they_were_written(data: dict[str, str]) -> None:
    text = yaml_file("x.yaml", ["a comment"], [{"data": data}]).text
    assert yaml.safe_load(text) == {"data": data}


def test_a_configuration_that_is_too_large_for_a_map_is_refused(tmp_path: Path) -> None:
    of = described(tmp_path)
    (tmp_path / "conf/base/gx/expectations/flights/more.json").write_text(json.dumps(["x" * (1 << 20)]))
    large = PipelineDeployment(of.config, of.contract, of.raw, {**of.files, "more": "x" * (1 << 20)})
    with pytest.raises(ConfigError, match="1 MiB"):
        kubernetes_files(Pods(large, Place()))
