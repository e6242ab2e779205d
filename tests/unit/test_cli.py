"""A mistake of the user is one message and exit code 2, before Spark starts."""

import json
import subprocess
import sys

import pytest

from pipelines.cli.quarantine import _harmless

JOBS = ("ingest_stream", "speed_stream", "nightly_batch", "validate", "report", "maintain")


def oncelake(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "pipelines.cli", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
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
            "the first day lies after the last",
        ),
        (
            ["nightly_batch", "--pipeline", "flights", "--date", "2013-01-02", "--to", "2013-01-03"],
            "use one or the other",
        ),
        (["validate", "--pipeline", "flights", "--date", "2099-01-01"], "2099-01-01 is not over"),
        (["quarantine", "discard", "--pipeline", "flights"], "all open records are meant: say --all"),
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
            "no moment is between them",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_refused_with_one_message(words: list[str], said: str) -> None:
    done = oncelake(*words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert "Spark" not in done.stderr


def test_what_a_terminal_would_obey_is_shown_as_an_escape() -> None:
    assert _harmless("a\x1b[31mb\r\nü\u202e") == "a\\x1b[31mb\\r\\nü\\u202e"


def test_with_json_the_last_line_tells_the_failure() -> None:
    words = ("--pipeline", "flights", "--set", "speed.state_partitions=0", "--log-format", "json")
    done = oncelake("speed_stream", *words)
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["job"], summary["status"], summary["exit_code"]) == ("speed_stream", "failed", 2)
    assert "speed.state_partitions" in summary["error"]
    assert done.returncode == 2


def test_a_plan_shows_everything_and_no_secret() -> None:
    hidden = "kafka.secrets.sasl.jaas.config=hush-hush"
    done = oncelake("plan", "--pipeline", "flights", "--set", hidden, "--log-format", "json")
    assert done.returncode == 0
    plan = json.loads(done.stdout)
    assert plan["ingest_stream: Kafka to bronze"]["kafka.sasl.jaas.config"] == "******"
    assert "hush-hush" not in done.stdout + done.stderr
    assert plan["ingest_stream: Kafka to bronze"]["failOnDataLoss"] == "true"
    assert plan["ingest_stream: Kafka to bronze"]["startingOffsets"] == "earliest"


@pytest.mark.parametrize("job", JOBS)
def test_a_script_for_spark_submit_is_the_same_entry_point(job: str) -> None:
    done = subprocess.run(
        [sys.executable, f"jobs/{job}.py", "--help"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0
    assert f"oncelake {job} " in done.stdout
