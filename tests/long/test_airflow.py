"""The DAG as Airflow itself runs it, with a stand-in for the command and with the command."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from pipelines.ledger.certifications import certified
from tests.support.lakes import Lake, Record, flight
from tests.support.processes import BRIEF_ENVIRONMENT, BRIEF_SETTINGS

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
DAG = ROOT / "deploy/airflow/oncelake_nightly.py"
ROWS = 1_200
# Ends with the next of the codes that stand beside it, and keeps how it was called.
STAND_IN = """\
import json, sys
from pathlib import Path
here = Path(__file__).parent
with (here / "calls").open("a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\\n")
code, *rest = (here / "codes").read_text().split()
(here / "codes").write_text(" ".join(rest))
print(json.dumps({"error": "as it was told", "exit_code": int(code)}))
sys.exit(int(code))
"""
Airflow = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory, schedulers: Path) -> Path:
    """Airflow's home, with its database made and the DAG in place; it waits a second between tries."""
    folder = tmp_path_factory.mktemp("airflow")
    (folder / "dags").mkdir()
    text = DAG.read_text().replace("timedelta(minutes=15)", "timedelta(seconds=1)")
    (folder / "dags" / DAG.name).write_text(text)
    subprocess.run([schedulers / "airflow", "db", "migrate"], env=environment(folder, schedulers), check=True)
    return folder


@pytest.fixture
def airflow(home: Path, schedulers: Path) -> Airflow:
    def run(*words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [schedulers / "airflow", *words],
            env=environment(home, schedulers) | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=500,
        )

    return run


def environment(home: Path, schedulers: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "AIRFLOW"))}
    return {
        **kept,
        "PATH": f"{schedulers}:{kept['PATH']}",
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "ONCELAKE_PROJECT": str(ROOT),
    }


@pytest.fixture
def night(airflow: Airflow, tmp_path: Path) -> Callable[..., tuple[list[list[str]], bool, str]]:
    """Runs the night of 1 January 2013 with given exit codes: calls, whether all is well, what was said."""
    (tmp_path / "command.py").write_text(STAND_IN)

    def run(codes: str, pipelines: str = "flights") -> tuple[list[list[str]], bool, str]:
        (tmp_path / "codes").write_text(codes)
        done = airflow(
            *("dags", "test", "oncelake_nightly", "2013-01-02T12:00:00+00:00"),
            ONCELAKE_COMMAND=f"{sys.executable} {tmp_path}/command.py nightly_batch",
            ONCELAKE_PIPELINES=pipelines,
        )
        assert (tmp_path / "calls").exists(), done.stdout[-5000:]
        calls = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
        return calls, done.returncode == 0, done.stdout

    return run


def test_a_source_that_is_not_ready_is_tried_again_until_it_is(
    night: Callable[..., tuple[list[list[str]], bool, str]],
) -> None:
    calls, well, said = night("4 1 0")
    assert well, said[-3000:]
    words = ["--pipeline", "flights", "--env", "prod", "--log-format", "json", "--date", "2013-01-01"]
    assert calls == [["nightly_batch", *words]] * 3


@pytest.mark.parametrize(("code", "why"), [("3", "the audit failed"), ("2", "refused")])
def test_what_would_fail_again_is_not_tried_again_and_stops_no_other_pipeline(
    night: Callable[..., tuple[list[list[str]], bool, str]], code: str, why: str
) -> None:
    calls, well, said = night(f"{code} 0", "flights, weather")
    assert not well
    # Which of the two is first, and so fails, is Airflow's choice.
    assert sorted(words[2] for words in calls) == ["flights", "weather"]
    assert why in said
    assert "as it was told" in said


def test_the_dag_has_a_task_for_each_pipeline_of_the_project(airflow: Airflow) -> None:
    done = airflow("tasks", "list", "oncelake_nightly")
    assert {"flights", "weather"} <= set(done.stdout.split()), done.stdout[-3000:]


@pytest.mark.spark
def test_a_real_night_is_certified_by_airflow(airflow: Airflow, lake: Lake) -> None:
    def day(number: int, rows: int) -> list[Record]:
        sent = datetime(2013, 1, number, 12, tzinfo=UTC)
        departure = f"2013-01-{number:02}T05:15:00-05:00"
        return [
            Record(flight(flight=n, scheduled_departure=departure), sent=sent) for n in range(1, rows + 1)
        ]

    lake.ingest([*day(1, ROWS), *day(2, 1)])
    job = [sys.executable, "-m", "pipelines.cli", "nightly_batch", f"--set=lake.root={lake.config.root}"]
    done = airflow(
        *("dags", "test", "oncelake_nightly", "2013-01-02T12:00:00+00:00"),
        ONCELAKE_COMMAND=" ".join([*job, *BRIEF_SETTINGS]),
        ONCELAKE_PIPELINES="flights",
        ONCELAKE_ENV="local",
        **BRIEF_ENVIRONMENT,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    state = certified(lake.pipeline)
    assert state is not None
    assert state.days == (date(2013, 1, 1),)
