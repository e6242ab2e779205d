"""What is ended by SIGTERM, SIGHUP or Ctrl-C leaves no process behind."""

import signal
from pathlib import Path

import pytest

from testbed.waiting import wait_until
from tests.support.signalled_programs import Program, program


def assert_nothing_is_left(running: Program, number: signal.Signals) -> None:
    code = running.process.wait(60)
    wait_until(running.is_gone, f"these have ended: {running.left()}", 20)
    assert code == 128 + number, running.log.read_text()[-3000:]


@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGTERM, "deploy.worker.Worker"),
        pytest.param(signal.SIGHUP, "deploy.master.Master", marks=pytest.mark.thorough),
        (signal.SIGINT, "kafka.Kafka"),
    ],
)
def test_a_benchmark(number: signal.Signals, moment: str, tmp_path: Path) -> None:
    with program(tmp_path, "-m", "benchmarks.racks", "--out", f"{tmp_path}/out.json") as running:
        running.wait_for(moment)
        running.process.send_signal(number)
        assert_nothing_is_left(running, number)


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.thorough)])
def test_the_start_of_a_broker(number: signal.Signals, tmp_path: Path) -> None:
    with program(tmp_path, "-m", "pipelines.cli", "broker", "start", f"--folder={tmp_path}/b") as running:
        running.wait_for("kafka.Kafka")
        running.process.send_signal(number)
        assert_nothing_is_left(running, number)


def test_the_demo_whose_terminal_is_closed(tmp_path: Path) -> None:
    with program(tmp_path, "-m", "demo", "--days=2", f"--folder={tmp_path}/demo") as running:
        running.wait_for("SparkSubmit")
        running.process.send_signal(signal.SIGHUP)
        assert_nothing_is_left(running, signal.SIGHUP)
