"""A lake and checkpoints that the zip of an earlier release made go on: nothing stored names a module."""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.kafka import make_topic, ordered_producer
from tests.support.lakes import flight
from tests.support.processes import BRIEF_ENVIRONMENT, BRIEF_SETTINGS
from tests.support.readers import messages_of

pytestmark = [
    pytest.mark.packaging,
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.thorough,
    pytest.mark.timeout(1200),
]

ROOT = Path(__file__).resolve().parents[2]
EARLIER = "1bb3a11a7a337f473df9ea8758b7410d652193e1"
"""The last commit before modules moved into packages by responsibility."""
DAY, NOON = "2013-01-01", 1_357_050_000_000
BEFORE, AFTER, COPIES, POISON = 600, 200, 20, 3


class Release:
    """The jobs of a zip, as processes that see nothing of the checkout."""

    def __init__(self, packed: Path, folder: Path, *settings: str) -> None:
        self._packed, self._folder, self._settings = packed, folder, settings

    def run(self, *command: str) -> dict[str, Any]:
        """Runs a command to its end, which must be a good one, and returns its summary."""
        done = subprocess.run(
            [sys.executable, "-m", "pipelines.cli", *command, "--pipeline", "flights", "--log-format", "json"]
            + [f"--set={setting}" for setting in self._settings]
            + [*BRIEF_SETTINGS],
            cwd=self._folder,
            env={**os.environ, **BRIEF_ENVIRONMENT, "PYTHONPATH": str(self._packed)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-3000:]}"
        summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return summary


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """The checkout of the earlier release."""
    git = ["git", "-C", str(ROOT), "archive", EARLIER]
    found = subprocess.run(git, capture_output=True, check=False)
    # A clone that is not whole would leave the guarantee untested without a word.
    assert found.returncode == 0, f"{found.stderr.decode()}; fetch the whole history of the repository"
    with tarfile.open(fileobj=io.BytesIO(found.stdout)) as files:
        files.extractall(tmp_path / "earlier", filter="data")
    return tmp_path / "earlier"


def zip_of(checkout: Path, dist: Path) -> Path:
    script = [sys.executable, str(checkout / "scripts" / "package.py"), str(dist)]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    made = subprocess.run(
        script, check=True, stdout=subprocess.PIPE, text=True, env=environment, cwd=checkout
    )
    return Path(made.stdout.split()[1])


def produce(servers: str, topic: str, flights: range) -> None:
    producer = ordered_producer(servers)
    for number in (*flights, *range(1, COPIES + 1)):
        producer.produce(topic, flight(flight=number), str(number), timestamp=NOON)
    for number in range(POISON):
        producer.produce(topic, b"poison", str(number), timestamp=NOON)
    assert producer.flush(60) == 0


def test_a_lake_of_an_earlier_release_goes_on(
    earlier: Path, packed: Path, broker: str, admin: AdminClient, tmp_path: Path
) -> None:
    source, output = f"flights-{tmp_path.name}", f"events-{tmp_path.name}"
    for fresh in (NewTopic(source, 3, 1), NewTopic(output, 2, 1)):
        make_topic(admin, fresh)
    settings = (
        f"lake.root={tmp_path / 'lake'}",
        f"kafka.bootstrap_servers={broker}",
        f"kafka.topic={source}",
        f"publish.topic={output}",
    )
    streams = [(name, "--once") for name in ("ingest_stream", "speed_stream", "publish_stream")]

    old = Release(zip_of(earlier, tmp_path / "dist"), earlier, *settings)
    produce(broker, source, range(1, BEFORE + 1))
    for command in (*streams, ("nightly_batch", "--date", DAY)):
        found = old.run(*command)
    assert found["counts"]["rows"] == BEFORE

    project = tmp_path / "project"
    for part in ("conf", "data_contracts"):
        shutil.copytree(ROOT / part, project / part)
    new = Release(packed, project, *settings)
    produce(broker, source, range(BEFORE + 1, BEFORE + AFTER + 1))
    # Neither stream begins anew, and the state still knows the keys of before.
    assert new.run("ingest_stream", "--once")["counts"]["records"] == AFTER + COPIES + POISON
    assert new.run("speed_stream", "--once")["counts"]["duplicates"] == COPIES
    night = new.run("nightly_batch", "--date", DAY)["counts"]
    assert (night["rows"], night["quarantined"]) == (BEFORE + AFTER, 2 * POISON)
    for command in (("validate", "--date", DAY), ("reconcile",)):
        assert new.run(*command)["status"] == "done"
    # The day was certified, so what came late for it is published as the next verdict has it.
    assert new.run("publish_stream", "--once")["counts"]["rows"] == AFTER
    sent = [json.loads(each.value or b"")["flight"] for each in messages_of(broker, output)]
    assert sorted(sent) == list(range(1, BEFORE + AFTER + 1))
