"""`oncelake run` tells of lag while its streams go on, also if nobody answers."""

import json
import shutil
import signal
from pathlib import Path

import pytest

from testbed.waiting import wait_until
from tests.support.processes import BRIEF_SETTINGS, Job, start_job

pytestmark = [pytest.mark.spark, pytest.mark.thorough]


def test_a_cluster_that_does_not_answer_is_told_of_once_and_stops_no_stream(
    tmp_path: Path, jobs: list[Job]
) -> None:
    conf, told = shutil.copytree("conf", tmp_path / "conf"), tmp_path / "told"
    with (conf / "base/pipelines/flights.yml").open("a") as flights:
        flights.write(
            f"notify:\n  command: [sh, -c, 'cat >> {told}; echo >> {told}']\n"
            "lag:\n  evaluate_every: 1 second\n  raise_after: 2\n"
        )
    # Nobody listens on this port; the speed stream reads bronze alone.
    settings = ("kafka.bootstrap_servers=127.0.0.1:1", "kafka.connect_timeout=2 seconds")
    words = ("--pipeline=flights", "--streams=speed", f"--conf-dir={conf}", *BRIEF_SETTINGS)
    places = (f"--set=lake.root={tmp_path}/lake", *(f"--set={each}" for each in settings))
    job = start_job("run", tmp_path, *words, *places)
    jobs.append(job)
    kept = tmp_path / "lake/ops/checkpoints/flights/lag.alerts.json"

    def evaluations_since_raised() -> bool:
        return job.runs() and told.exists() and kept.exists()

    wait_until(evaluations_since_raised, "the alert is raised", 240)
    wait_until(lambda: job.runs() and job.log.read_text().count("was not evaluated") > 3, "two more", 240)
    (raised,) = (json.loads(line) for line in told.read_text().splitlines())
    assert (raised["job"], raised["stage"], raised["alert"]) == ("lag", "evaluation", "raised")
    assert "127.0.0.1:1" in raised["error"]
    assert job.send(signal.SIGTERM) == 0
    summary = job.summary()
    assert [(each["status"], each["restarts"]) for each in summary["streams"]] == [("stopped", 0)]
    (evaluated,) = summary["lag"]
    assert evaluated["pipeline"] == "flights"
    assert evaluated["failed"] == evaluated["evaluations"] > 3
