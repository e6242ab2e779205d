"""What deploy/ says is taken by the job and by those who start it."""

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from configparser import RawConfigParser
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import pyspark
import pytest
import yaml

from pipelines.cli.app import oncelake
from pipelines.cli.lag import summary_of
from pipelines.cli.run_all import GRAVEST_FIRST
from pipelines.config.model import BatchConfig
from pipelines.config.streams import STREAMS
from pipelines.durations import parse_interval
from pipelines.errors import OncelakeError
from pipelines.lag.alerts import status_of
from pipelines.lag.diagnosis import Diagnosis, LagCause
from pipelines.lag.stage_facts import StageFacts
from pipelines.racks.resolver import ATTRIBUTE, VARIABLE
from pipelines.spark.log_store import local_log_store
from pipelines.spark.session import SETTINGS
from pipelines.spark.store_outages import LIMITS
from pipelines.steps.lag import StageLag
from pipelines.supervision.supervisor import Supervisor
from tests.support.click_groups import commands_in

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
RESOLVER = "pipelines/racks/resolver.py"
KUBERNETES = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
SERVICE = DEPLOY / "systemd/oncelake-nightly@.service"
UPKEEP, STREAM, FAILED = (
    DEPLOY / f"systemd/oncelake-{name}@.service" for name in ("maintain", "stream", "failed")
)
RUN = DEPLOY / "systemd/oncelake-run.service"
JOBS = tuple(stream.job for stream in STREAMS.values())
HOUR = timedelta(hours=1)
TIMER = DEPLOY / "systemd/oncelake-nightly@.timer"
STAND_IN = """#!/bin/sh
[ "$SECRET" = "of the test" ] || exit 9
echo "$PWD $*" >> {folder}/called
exit $(cat {folder}/code)
"""


def manifest(name: str) -> Any:
    return yaml.safe_load((DEPLOY / "kubernetes" / name).read_text())


def require_taken(words: list[str], job: str = "nightly_batch") -> None:
    """Fails where a job would refuse the words."""
    with commands_in(oncelake)[job].make_context(job, list(words)) as context:
        assert (context.params["pipeline"] is None) == context.params.get("everything", False)
        assert context.params["env"] == "prod"


def started_by(command: str) -> tuple[str, list[str]]:
    """The job that a unit's line starts, and its words."""
    program, job, *words = shlex.split(command.replace("%i", "flights"))
    assert Path(program).name == "oncelake"
    return job, words


def unit(path: Path) -> RawConfigParser:
    parser = RawConfigParser(strict=True)
    parser.read_string(path.read_text())
    return parser


def test_the_cron_job_starts_the_night_and_tries_again_only_what_may_come_right() -> None:
    spec = manifest("cronjob.yaml")["spec"]
    job = spec["jobTemplate"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    assert container["command"] == ["oncelake", "nightly_batch"]
    require_taken(container["args"])
    assert spec["concurrencyPolicy"] == "Forbid"
    assert job["template"]["spec"]["restartPolicy"] == "Never"
    fails = job["podFailurePolicy"]["rules"][0]
    assert fails["onExitCodes"] == {"containerName": container["name"], "operator": "In", "values": [2, 3]}
    assert fails["action"] == "FailJob"


def test_the_spark_application_starts_the_night_of_this_version() -> None:
    template = manifest("scheduled-spark-application.yaml")["spec"]["template"]
    require_taken(template["arguments"])
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert template["deps"]["pyFiles"] == [f"local:///opt/oncelake/oncelake-{version}.zip"]
    assert template["sparkVersion"] == pyspark.__version__
    assert (ROOT / "jobs" / Path(template["mainApplicationFile"]).name).exists()
    assert template["sparkConf"].items() <= spark_defaults().items()


def spark_defaults() -> dict[str, str]:
    """The settings that are there for `spark-submit` and for sessions of one's own."""
    lines = (ROOT / "conf/spark-defaults.conf").read_text().splitlines()
    pairs = (line.split(None, 1) for line in lines if line.strip() and not line.startswith("#"))
    return {name: value.strip() for name, value in pairs}


def test_whoever_starts_a_session_gets_the_settings_of_the_jobs() -> None:
    assert {**SETTINGS, **local_log_store({}), **LIMITS}.items() <= spark_defaults().items()


@pytest.mark.parametrize("path", KUBERNETES, ids=lambda path: path.name)
def test_a_manifest_names_the_secrets_of_the_environment(path: Path) -> None:
    named = set(re.findall(r"\$\{(\w+)\}", (ROOT / "conf/prod/oncelake.yml").read_text()))
    assert named
    assert all(name in path.read_text() for name in named)


def test_the_service_starts_the_night_and_tries_again_only_what_may_come_right() -> None:
    service = unit(SERVICE)["Service"]
    job, words = started_by(service["ExecStart"])
    assert job == "nightly_batch"
    require_taken(words)
    reports = re.search(r"0\|3\) (.*); exec (.*);; esac", service["ExecStopPost"])
    assert reports is not None
    for report in reports.groups():
        job, words = started_by(report)
        assert job == "report"
        require_taken(words, job)
    assert service["RestartPreventExitStatus"].split() == ["2", "3"]
    assert service["Restart"] == "on-failure"
    assert unit(TIMER)["Timer"]["Persistent"] == "true"


@pytest.mark.parametrize("job", ["maintain", *JOBS])
def test_streams_and_upkeep_are_started_again_only_where_that_may_help(job: str) -> None:
    path = UPKEEP if job == "maintain" else STREAM
    service = unit(path)["Service"]
    # %j is the last word of the name under which the unit is installed.
    started, words = started_by(service["ExecStart"].replace("%j", job))
    assert started == job
    require_taken(words, job)
    # Brokers that restart may not know the topic, which the stream takes for one that is gone.
    assert service.get("RestartPreventExitStatus") == ("2 4" if job == "maintain" else None)
    assert unit(path)["Unit"]["OnFailure"] == f"{FAILED.name.removesuffix('.service')}%n.service"


def test_one_service_runs_the_streams_of_all_pipelines_and_tells_them_to_stop_itself() -> None:
    service = unit(RUN)["Service"]
    started, words = started_by(service["ExecStart"])
    assert started == "run"
    with commands_in(oncelake)["run"].make_context("run", list(words)) as context:
        assert (context.params["everything"], context.params["env"]) == (True, "prod")
    assert service["RestartPreventExitStatus"].split() == ["2", "4"]
    assert unit(RUN)["Unit"]["OnFailure"] == f"{FAILED.name.removesuffix('.service')}%n.service"
    assert service["KillMode"] == "mixed"
    # It kills by itself what does not stop, and says so.
    assert parse_interval(service["TimeoutStopSec"].replace("min", " minutes")) > timedelta(
        seconds=Supervisor.stop_within_s
    )


def test_every_scheduler_ends_a_night_that_hangs_before_its_lease_would_lapse() -> None:
    cron = re.search(
        r" timeout --kill-after=\d+ (\d+h) \S+/oncelake ", (DEPLOY / "cron/oncelake").read_text()
    )
    dag = re.search(
        r'"execution_timeout": timedelta\(hours=(\d+)\)', (DEPLOY / "airflow/oncelake_nightly.py").read_text()
    )
    assert cron is not None
    assert dag is not None
    driver = manifest("scheduled-spark-application.yaml")["spec"]["template"]["driver"]
    deadlines = {
        "cron": parse_interval(cron[1].replace("h", " hours")),
        "airflow": timedelta(hours=int(dag[1])),
        "systemd": parse_interval(unit(SERVICE)["Service"]["TimeoutStartSec"].replace("h", " hours")),
        "cron job": timedelta(
            seconds=manifest("cronjob.yaml")["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"]
        ),
        "operator": timedelta(seconds=driver["template"]["spec"]["activeDeadlineSeconds"]),
    }
    most = BatchConfig().max_duration
    assert {name: deadline for name, deadline in deadlines.items() if not HOUR <= deadline <= most} == {}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    program = re.compile(r"^ExecStart=\S+", re.MULTILINE)
    installed = {path.name: path.read_text() for path in (DEPLOY / "systemd").iterdir()}
    template = installed.pop(STREAM.name)
    installed |= {STREAM.name.replace("stream", job): template for job in JOBS}
    for name, text in installed.items():
        (tmp_path / name).write_text(program.sub("ExecStart=/bin/true", text))
    done = subprocess.run(
        ["systemd-analyze", "verify", *(tmp_path / name for name in installed)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def entries(file: str) -> dict[str, str]:
    """The lines of a crontab that start something, by what they start."""
    lines = [
        line for line in (DEPLOY / "cron" / file).read_text().splitlines() if line[:1] in {*"*0123456789"}
    ]
    return {re.search(r"bin/oncelake (\w+)", line)[1]: line for line in lines}  # type: ignore[index]


def test_a_pipeline_s_crontab_has_its_night_its_upkeep_and_its_lag() -> None:
    assert [*entries("oncelake-pipeline")] == ["nightly_batch", "maintain", "lag"]


@pytest.mark.skipif(shutil.which("flock") is None, reason="there is no flock here")
@pytest.mark.parametrize("code", [0, 3])
@pytest.mark.parametrize(
    ("file", "starts", "lock"),
    [
        ("oncelake", "nightly_batch", "nightly.lock"),
        ("oncelake-pipeline", "nightly_batch", "flights-nightly.lock"),
        ("oncelake-pipeline", "maintain", "flights-maintain.lock"),
        ("oncelake-pipeline", "lag", "flights-lag.lock"),
    ],
)
def test_a_line_of_cron_runs_logs_and_speaks_of_failures_only(
    tmp_path: Path, code: int, file: str, starts: str, lock: str
) -> None:
    line = entries(file)[starts]
    *_, user, command = line.split(None, 6)
    assert user == "oncelake"
    assert "%" not in command, "cron makes a line's end of it"
    command = command.replace("/opt/oncelake", str(tmp_path)).replace("/var/log/oncelake", str(tmp_path))
    command = command.replace("/etc/oncelake", str(tmp_path))
    (tmp_path / "environment").write_text("SECRET='of the test'\n")
    stand_in = tmp_path / ".venv/bin/oncelake"
    stand_in.parent.mkdir(parents=True)
    stand_in.write_text(STAND_IN.format(folder=tmp_path))
    stand_in.chmod(0o755)
    (tmp_path / "code").write_text(str(code))

    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=True)
    place, job, *words = (tmp_path / "called").read_text().split()
    assert (place, job) == (str(tmp_path), starts)
    require_taken(words, job)
    assert f"exit code {code}" in done.stdout if code else done.stdout == ""

    held = ["flock", str(tmp_path / lock), "/bin/sh", "-c", command]
    busy = subprocess.run(held, capture_output=True, text=True, check=True)
    assert "exit code 75" in busy.stdout
    assert len((tmp_path / "called").read_text().splitlines()) == 1


@pytest.mark.skipif(shutil.which("flock") is None, reason="there is no flock here")
@pytest.mark.parametrize("cause", get_args(LagCause))
def test_cron_speaks_of_a_stream_that_does_not_catch_up_by_itself(tmp_path: Path, cause: LagCause) -> None:
    stage = StageLag(
        StageFacts("speed", datetime(2026, 1, 1, tzinfo=UTC), ()), Diagnosis(cause, (), 1.0, None), ""
    )
    told = json.dumps({"job": "lag", **summary_of([stage]), "exit_code": 0})
    *_, command = entries("oncelake-pipeline")["lag"].split(None, 6)
    for place in ("/opt/oncelake", "/var/log/oncelake", "/etc/oncelake"):
        command = command.replace(place, str(tmp_path))
    (tmp_path / "environment").touch()
    stand_in = tmp_path / ".venv/bin/oncelake"
    stand_in.parent.mkdir(parents=True)
    stand_in.write_text(f"#!/bin/sh\necho {shlex.quote(told)}\n")
    stand_in.chmod(0o755)
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    # What raises an alert where there are hooks.
    is_bad = status_of(cause) == "bad"
    assert (done.stdout.count(f'"cause": "{cause}"') == 1) == is_bad == (done.stdout != "")


def test_the_dag_needs_neither_oncelake_nor_spark() -> None:
    tree = ast.parse((DEPLOY / "airflow/oncelake_nightly.py").read_text())
    imported = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    assert {name.partition(".")[0] for name in imported} <= {
        "airflow",
        "datetime",
        "json",
        "os",
        "pathlib",
        "shlex",
        "typing",
        "zoneinfo",
    }


def test_the_order_of_gravity_names_every_exit_code() -> None:
    codes = {0, OncelakeError.exit_code, *(error.exit_code for error in OncelakeError.__subclasses__())}
    assert set(GRAVEST_FIRST) == codes
    assert GRAVEST_FIRST == (3, 2, 4, 1, 0)


def test_spark_s_environment_names_the_rack_that_the_resolver_finds(tmp_path: Path) -> None:
    shutil.copy(DEPLOY / "rack/spark-env.sh", tmp_path)
    shutil.copy(ROOT / "pipelines/racks/resolver.py", tmp_path / "oncelake-rack.py")
    script = f'. {tmp_path}/spark-env.sh; echo "$NODE_RACK $SPARK_EXECUTOR_ATTRIBUTE_RACK"'
    environment = {"PATH": os.environ["PATH"], "NODE_RACK": "eu-1"}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "eu-1 eu-1\n"


def test_pods_of_executors_tell_client_and_driver_the_same_rack() -> None:
    labelled, resolved = (
        yaml.safe_load((DEPLOY / f"rack/executor-pod{kind}.yaml").read_text()) for kind in ("", "-resolver")
    )
    (container,) = labelled["spec"]["containers"]
    rack, attribute = container["env"]
    assert (rack["name"], attribute) == (
        VARIABLE,
        {"name": ATTRIBUTE, "value": f"$({VARIABLE})"},
    )
    (container,) = resolved["spec"]["containers"]
    (volume,) = resolved["spec"]["volumes"]
    assert container["volumeMounts"][0]["name"] == volume["name"]
    # Spark appends the word "executor" to what the template runs.
    script = container["command"][2].replace("/oncelake/oncelake-rack.py", str(ROOT / RESOLVER))
    script = script.replace("exec /opt/entrypoint.sh", "printenv SPARK_EXECUTOR_ATTRIBUTE_RACK; echo")
    done = subprocess.run(
        ["/bin/sh", "-c", script, container["command"][3], "executor"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"], VARIABLE: "eu-1"},
    )
    assert done.stdout == "eu-1\nexecutor\n"


def test_the_bootstrap_of_emr_lets_containers_inherit_what_was_found() -> None:
    script = DEPLOY / "rack/emr-bootstrap.sh"
    subprocess.run(["bash", "-n", script], check=True)
    exported, site = json.loads((DEPLOY / "rack/emr-configurations.json").read_text())
    asked = exported["Configurations"][0]["Properties"]
    place = re.findall(r"/opt/\S+\.py", script.read_text())[-1]
    assert asked == dict.fromkeys((VARIABLE, ATTRIBUTE), f"$(python3 {place} --plain)")
    allowed = site["Properties"]["yarn.nodemanager.env-whitelist"].split(",")
    assert {VARIABLE, ATTRIBUTE, "JAVA_HOME", "PATH"} <= set(allowed)
