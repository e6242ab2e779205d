"""A mistake of the user is one message and exit code 2, before Spark starts."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipelines.cli.jobs import JOBS
from pipelines.cli.terminal import harmless, harmless_lines
from pipelines.spark.state_store import PROVIDER
from tests.support.forked_commands import Done, commands

Run = Callable[..., Done]


@pytest.fixture(scope="module")
def oncelake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Run `oncelake WORDS` in a process of its own."""
    with commands(tmp_path_factory.mktemp("commands")) as given:
        yield given.run


def alone(*words: str) -> "subprocess.CompletedProcess[str]":
    """Run `python WORDS`."""
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.patient
def test_a_suite_that_a_night_would_refuse_is_refused_by_plan(oncelake: Run, tmp_path: Path) -> None:
    conf = Path(shutil.copytree("conf", tmp_path / "conf"))
    path = conf / "base/gx/expectations/flights/rows.json"
    suite = json.loads(path.read_text())
    suite["expectations"].append({"type": "expect_nothing", "kwargs": {}})
    path.write_text(json.dumps(suite))
    done = oncelake("plan", "--pipeline", "flights", "--conf-dir", str(conf))
    assert done.returncode == 2
    assert "type: expected an expectation of Great Expectations, got 'expect_nothing'" in done.stderr


LOSING = (
    *("--pipeline", "flights"),
    *("--set", "quarantine.dead_letter_topic=broken"),
    *("--set", "kafka.options.acks='1'"),
)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ingest_stream"], "Missing option '--pipeline'"),
        (["ingest_stream", "--pipeline", "flihgts"], "did you mean 'flights'?"),
        (["speed_stream", "--pipeline", "flights", "--set", "speed.delay=1"], "speed.delay: unknown key"),
        (["speed_stream", "--pipeline", "flights", "--set", "contract=none.yaml"], "none.yaml: the contract"),
        (["nightly_batch", "--pipeline", "flights", "--date", "2099-01-01"], "2099-01-01 is not over"),
        (["nightly_batch", "--pipeline", "flights", "--date", "2013-02-31"], "2013-02-31"),
        (
            ["nightly_batch", "--pipeline", "flights", "--from", "2013-01-02", "--to", "2013-01-01"],
            "the first day is after the last",
        ),
        (
            ["nightly_batch", "--pipeline", "flights", "--date", "2013-01-02", "--to", "2013-01-03"],
            "use one or the other",
        ),
        (["nightly_batch", "--pipeline", "flights", "--from", "2013-01-02"], "--from and --to go together"),
        (["nightly_batch"], "Missing option '--pipeline'. Name a pipeline, or use --all."),
        (["nightly_batch", "--all", "--pipeline", "flights"], "use one or the other"),
        (["nightly_batch", "--all", "--conf-dir", "none"], "none/base/pipelines: no pipeline (*.yml) here"),
        (["nightly_batch", "--all", "--date", "2099-01-01"], "2099-01-01 is not over"),
        (["validate", "--pipeline", "flights", "--date", "2099-01-01"], "2099-01-01 is not over"),
        (["speed_stream", *LOSING], "add acks_not_all to accept_risks"),
        (["plan", *LOSING], "add acks_not_all to accept_risks"),
        (["run"], "name pipelines with --pipeline, or take all with --all"),
        (["run", "--all", "--pipeline", "flights"], "or take all with --all: one of the two"),
        (["run", "--pipeline", "flihgts"], "did you mean 'flights'?"),
        (["run", "--all", "--streams", "speed,batch"], "expected some of ingest,speed,publish, got 'batch'"),
        (["run", "--all", "--streams", "publish"], "no pipeline has a section publish"),
        (["run", "--all", "--window", "soon"], "expected an interval such as '2 hours'"),
        (["run", "--all", "--window", "0 seconds"], "longer than zero"),
        (["run", "--all", "--conf-dir", "none"], "no pipeline (*.yml) here"),
        (["explain", "--pipeline", "flights"], "Missing option '--key'"),
        (["explain", "--pipeline", "flights", "--key", "flight=UA"], "expected a whole number of 64 bits"),
        (["forget", "--pipeline", "flights"], "expected a key (--key COLUMN=VALUE) or --again, not both"),
        (["forget", "--pipeline", "flights", "--key", "tailnum=N1"], "not a part of the dedup key"),
        (["console", "--conf-dir", "none"], "none/base/pipelines: no pipeline (*.yml) here"),
        (["console", "--set", "kafka.topik=x"], "weather: --set kafka.topik: kafka.topik: unknown key"),
        (["console", "--port", "65536"], "Invalid value for '--port'"),
        (["console", "--host", "192.0.2.1"], "--host, --port: cannot bind to 192.0.2.1:0"),
        (["report"], "Missing option '--pipeline' (only --index works without it)"),
        (["report", "--index", "--pipeline", "flights"], "leave out --pipeline, --date and --format"),
        (
            ["report", "--pipeline", "flights", "--format", "prometheus", "--date", "2013-01-01"],
            "is about the last nightly run: leave out --date",
        ),
        (["quarantine", "discard", "--pipeline", "flights"], "or --all to discard all unresolved records"),
        (
            ["quarantine", "discard", "--pipeline", "flights", "--all", "--partition", "0"],
            "expected either a filter, or --all",
        ),
        (["quarantine", "reopen", "--pipeline", "flights"], "or --all to reopen all discarded records"),
        (["plan", "--pipeline", "flights", "--pipeline", "weather"], "expected the option once, found it 2"),
        (
            ["validate", "--pipeline", "flights", "--date", "2013-01-01", "--date", "2013-01-02"],
            "Invalid value for '--date': expected the option once",
        ),
        (["quarantine", "replay", "--pipeline", "flights", "--reason", "odd"], "'odd' is not one of"),
        (["quarantine", "show", "--pipeline", "flights", "--partition", "9" * 30], "is not in the range"),
        (
            [
                "quarantine",
                "summary",
                "--pipeline",
                "flights",
                "--since",
                "2013-01-02",
                "--until",
                "2013-01-02",
            ],
            "expected --since to be before --until",
        ),
        (["lag", "--pipeline", "flights", "--alert"], "--alert: pipeline flights has no hook"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_refused_with_one_message(oncelake: Run, words: list[str], said: str) -> None:
    done = oncelake(*words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert "Spark" not in done.stderr


def test_what_a_terminal_would_obey_is_shown_as_an_escape() -> None:
    assert harmless("a\x1b[31mb\r\nü\u202e") == "a\\x1b[31mb\\r\\nü\\u202e"
    assert harmless_lines("a\x1b[31mb\r\nü") == "a\\x1b[31mb\\r\nü"


def test_with_json_the_last_line_tells_the_failure() -> None:
    words = ("--pipeline", "flights", "--set", "speed.state_partitions=0", "--log-format", "json")
    done = alone("-m", "pipelines.cli", "speed_stream", *words)
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["job"], summary["status"], summary["exit_code"]) == ("speed_stream", "failed", 2)
    assert "speed.state_partitions" in summary["error"]
    assert done.returncode == 2


def test_with_json_a_supervisor_tells_that_it_has_nothing_to_run(oncelake: Run) -> None:
    done = oncelake("run", "--pipeline", "flihgts", "--log-format", "json")
    summary = json.loads(done.stdout)
    assert (done.returncode, summary["job"], summary["exit_code"]) == (2, "run", 2)
    assert "did you mean 'flights'?" in summary["error"]


def test_under_spark_submit_all_pipelines_have_to_agree_on_spark(oncelake: Run, tmp_path: Path) -> None:
    conf = shutil.copytree("conf", tmp_path / "conf")
    with (conf / "base/pipelines/weather.yml").open("a") as weather:
        weather.write("spark: {conf: {spark.executor.memory: 2g}}\n")
    words = ("nightly_batch", "--all", "--conf-dir", str(conf), "--log-format", "json")
    done = oncelake(*words, PYSPARK_GATEWAY_PORT="1")
    summary = json.loads(done.stdout)
    assert (done.returncode, summary["exit_code"], summary["pipelines"]) == (2, 2, [])
    assert "the settings of flights and weather differ" in summary["error"]


def test_the_index_is_made_without_spark_or_a_pipeline(oncelake: Run, tmp_path: Path) -> None:
    done = oncelake("report", "--index", "--out", str(tmp_path), "--log-format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    assert Path(json.loads(done.stdout)["index"]).read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_plan_shows_everything_and_no_secret(oncelake: Run) -> None:
    hidden = "kafka.secrets.sasl.jaas.config=hush-hush"
    done = oncelake("plan", "--pipeline", "flights", "--set", hidden, "--log-format", "json")
    assert done.returncode == 0
    plan = json.loads(done.stdout)
    assert plan["ingest_stream: Kafka to bronze"]["kafka.sasl.jaas.config"] == "******"
    assert "hush-hush" not in done.stdout + done.stderr
    assert plan["ingest_stream: Kafka to bronze"]["failOnDataLoss"] == "true"
    assert plan["ingest_stream: Kafka to bronze"]["startingOffsets"] == "earliest"


def test_a_plan_shows_templates_with_their_reasons_and_risks_that_are_accepted(oncelake: Run) -> None:
    given = ("kafka.template=realtime", "kafka.options.fetch.min.bytes='2'", "accept_risks=[acks_not_all]")
    words = [word for setting in given for word in ("--set", setting)]
    plan = json.loads(oncelake("plan", "--pipeline", "flights", *words, "--log-format", "json").stdout)
    template = plan["kafka.template: realtime"]
    assert template["fetch.min.bytes"] == "2, which overrides 1"
    assert template["receive.buffer.bytes"].startswith("-1: Spark sets 64 KiB")
    assert plan["ingest_stream: Kafka to bronze"]["kafka.receive.buffer.bytes"] == "-1"
    assert "copies of broken records" in plan["accepted risks"]["acks_not_all"]
    assert "risks that are not accepted" not in plan


def test_a_plan_warns_of_a_login_that_others_can_read_until_it_is_accepted(oncelake: Run) -> None:
    given = ("registry.url=http://registry:8081", "registry.secrets.basic.auth.user.info=me:hush-hush")
    words = [word for setting in given for word in ("--set", setting)]

    def risks(*more: str) -> dict[str, str]:
        done = oncelake("plan", "--pipeline", "flights", *words, *more, "--log-format", "json")
        assert "hush-hush" not in done.stdout + done.stderr
        found: dict[str, str] = json.loads(done.stdout).get("risks that are not accepted", {})
        return found

    said = risks()["registry.url"]
    assert said.startswith(
        "found http://registry:8081, with a login (basic.auth.user.info), expected https://"
    )
    assert said.endswith("add login_in_plain_text to accept_risks")
    assert risks("--set", "accept_risks=[login_in_plain_text]") == {}


@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        (
            "speed.state_eviction_share=0.25",
            "once the watermark is 2 hours past the event time, 150 minutes at the latest",
        ),
        ("speed.state_eviction_share=0", "once the watermark is 2 hours past the event time"),
        (f"spark.conf.{PROVIDER}=org.example.Mine", "as org.example.Mine decides"),
    ],
)
def test_a_plan_shows_how_long_the_state_holds_a_key(oncelake: Run, setting: str, shown: str) -> None:
    words = ("--set", "speed.watermark_delay=2 hours", "--set", setting, "--log-format", "json")
    plan = json.loads(oncelake("plan", "--pipeline", "flights", *words).stdout)
    stream = plan["speed_stream: bronze to speed layer and quarantine"]
    assert stream["keys leave the state"] == shown


def test_a_command_imports_what_it_needs_when_it_is_asked_for() -> None:
    asked = (
        "import sys",
        "from pipelines.cli.app import oncelake",
        "oncelake.main(['plan', '--help'], standalone_mode=False)",
        "assert 'pipelines.cli.plan' in sys.modules and 'pipelines.cli.report' not in sys.modules",
    )
    subprocess.run([sys.executable, "-c", "; ".join(asked)], check=True, timeout=60)


def test_each_job_has_a_script_for_spark_submit() -> None:
    assert sorted(JOBS) == sorted(path.stem for path in Path("jobs").glob("*.py"))


@pytest.mark.parametrize("job", JOBS)
def test_a_script_for_spark_submit_is_the_same_entry_point(oncelake: Run, job: str) -> None:
    done = oncelake("--help", script=f"jobs/{job}.py")
    assert done.returncode == 0
    assert f"oncelake {job} " in done.stdout


def test_no_script_stands_in_the_way_of_what_another_one_imports() -> None:
    # Python looks for modules in the folder of the script first.
    done = alone("jobs/speed_stream.py", "--help")
    assert done.returncode == 0
    assert "oncelake speed_stream " in done.stdout


def test_an_unexpected_error_with_one_pipeline_leaves_the_others_their_turn() -> None:
    done = alone("-m", "tests.support.refused_jobs")
    summary = json.loads(done.stdout.splitlines()[-1])
    assert {one["pipeline"]: (one["error"], one["exit_code"]) for one in summary["pipelines"]} == {
        "flights": ("ZeroDivisionError: odd", 1),
        "weather": ("refused", 2),
    }
    assert done.returncode == 2
