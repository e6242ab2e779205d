"""`oncelake run` says which stream is down, to people and by its exit code."""

import json
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from pipelines.cli.supervisor import Alarms, summary_of
from pipelines.config.loader import load_config
from pipelines.config.model import NotifyConfig
from pipelines.runtime.life_signs import SIGNS_VARIABLE
from pipelines.supervision.output import ProgramName
from pipelines.supervision.supervisor import StreamOutcome
from testbed.waiting import wait_until
from tests.support.processes import Job, start_job

pytestmark = pytest.mark.patient


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    """What became of `oncelake run`, with a log in JSON."""
    command = (sys.executable, "-m", "pipelines.cli", "run", *words, "--log-format", "json")
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_hooks_learn_at_once_of_a_stream_that_is_given_up(tmp_path: Path) -> None:
    conf = shutil.copytree("conf", tmp_path / "conf")
    told = tmp_path / "told"
    with (conf / "base/pipelines/flights.yml").open("a") as flights:
        flights.write(f"notify:\n  command: [sh, -c, 'cat >> {told}']\n")
    # That its log store would lose commits is found when a stream starts.
    words = ["--pipeline", "flights", "--streams", "speed", "--set", "lake.root=s3a://no-log-store/lake"]
    done = run(*words, "--conf-dir", str(conf))
    *lines, summary = (json.loads(line) for line in done.stdout.splitlines())
    assert (done.returncode, summary["status"], summary["exit_code"]) == (2, "failed", 2)
    (stream,) = summary["streams"]
    assert (stream["pipeline"], stream["stream"], stream["restarts"]) == ("flights", "speed", 0)
    assert [(line["job"], line["pipeline"], line["stream"]) for line in lines] == [
        ("speed_stream", "flights", "speed")
    ]
    hook = json.loads(told.read_text())
    assert (hook["job"], hook["pipeline"], hook["stream"]) == ("run", "flights", "speed")
    assert "logStore" in hook["error"]


def test_a_hook_that_fails_is_called_again_until_it_is_reached(tmp_path: Path) -> None:
    told, tries = tmp_path / "told", tmp_path / "tries"
    hook = f"echo >> {tries}; [ $(wc -l < {tries}) -ge 3 ] || exit 1; cat > {told}.new; mv {told}.new {told}"
    config = load_config("flights", environ={}, settings=[])
    config = config.model_copy(update={"notify": NotifyConfig(command=("sh", "-c", hook))})
    alarms = Alarms({"flights": config}, "local", again_s=0.01)
    alarms.tell(StreamOutcome(ProgramName("flights", "ingest"), "failed", 1, 15, "no broker"))
    wait_until(told.exists, "the hook is reached")
    alarms.wait()
    assert (json.loads(told.read_text())["error"], tries.read_text().count("\n")) == ("no broker", 3)


@pytest.mark.parametrize("answers", [False, True])
def test_a_pipeline_whose_configuration_gives_no_answer_is_asked_again_and_never_run_in_part(
    tmp_path: Path, *, answers: bool
) -> None:
    conf, asked = shutil.copytree("conf", tmp_path / "conf"), tmp_path / "asked"
    secret = tmp_path / "secret.sh"
    # The other pipeline is refused when its stream starts: its log store would lose commits.
    secret.write_text(f"mkdir {asked} 2>/dev/null && exit 1\n{'echo told' if answers else 'exit 1'}\n")
    with (conf / "base/pipelines/weather.yml").open("a") as weather:
        weather.write(f"notify:\n  command: [sh, '${{command:sh {secret}}}']\n")
    words = ["--all", "--streams", "speed", "--set", "lake.root=s3a://no-log-store/lake"]
    done = run(*words, "--conf-dir", str(conf))
    *lines, summary = (json.loads(line) for line in done.stdout.splitlines())
    errors = {stream["pipeline"]: stream["error"] for stream in summary["streams"]}
    assert done.returncode == 2
    assert ("logStore" in errors["flights"], "logStore" in errors["weather"]) == (True, answers)
    assert {line["pipeline"] for line in lines if "job" in line} == {"flights", *(["weather"] * answers)}
    assert ("weather: its streams are not started" in done.stderr) is not answers


def test_each_cluster_has_an_ingest_of_its_own_but_a_retired_one() -> None:
    # That its log store would lose commits is found when a stream starts.
    words = ["--pipeline", "flights", "--streams", "ingest", "--set", "lake.root=s3a://no-log-store/lake"]
    words += ["--set", "kafka.clusters.eu.bootstrap_servers=eu:1"]
    words += ["--set", "kafka.clusters.us.bootstrap_servers=us:1", "--set", "kafka.clusters.us.retired=true"]
    done = run(*words)
    *lines, summary = (json.loads(line) for line in done.stdout.splitlines())
    assert {stream["stream"] for stream in summary["streams"]} == {"ingest", "ingest@eu"}
    assert {line["stream"] for line in lines if "job" in line} == {"ingest", "ingest@eu"}


@pytest.mark.parametrize(("stuck_after", "gives_signs"), [("5 minutes", True), ("null", False)])
def test_streams_give_signs_of_life_unless_the_configuration_says_no(
    tmp_path: Path, jobs: list[Job], stuck_after: str, *, gives_signs: bool
) -> None:
    words = ("--pipeline=flights", "--streams=speed", f"--set=run.stuck_after={stuck_after}")
    job = start_job("run", tmp_path, *words, f"--set=lake.root={tmp_path}/lake")
    jobs.append(job)

    def streams() -> list[psutil.Process]:
        return [each for each in psutil.Process(job.process.pid).children() if words_of(each)]

    wait_until(lambda: job.runs() and bool(streams()), "the stream has started")
    (stream,) = streams()
    assert (SIGNS_VARIABLE in stream.environ()) is gives_signs


def words_of(process: psutil.Process) -> list[str]:
    """The command line of a process that runs a stream; empty of others, such as one that has just begun."""
    with suppress(psutil.Error):
        return [word for word in process.cmdline() if word == "speed_stream"]
    return []


def test_the_exit_code_is_the_gravest() -> None:
    def outcome(code: int) -> StreamOutcome:
        return StreamOutcome(ProgramName("flights", "speed"), "failed" if code else "stopped", code, 0)

    assert summary_of([outcome(0), outcome(4), outcome(1)])["exit_code"] == 4
    assert summary_of([outcome(0)])["status"] == "stopped"
