"""The embedded broker: it comes up, it keeps what it is told, and nothing of it stays behind."""

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from pipelines.cli.broker import broker as broker_command
from pipelines.errors import InfrastructureError
from pipelines.runtime import local_broker as broker_module
from pipelines.runtime.local_broker import (
    EmbeddedBroker,
    broker,
    running_broker,
    server_properties,
    start_broker,
)
from tests.support.kafka import ordered_producer
from tests.support.processes import BRIEF_ENVIRONMENT

pytestmark = pytest.mark.integration
WITHIN_S = 60


@pytest.fixture(autouse=True)
def no_cluster_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers are started here, which live so briefly that compiling does not pay."""
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    for name, value in BRIEF_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def _command(*arguments: str) -> Result:
    return CliRunner().invoke(broker_command, arguments, catch_exceptions=False)


def test_records_and_their_old_timestamps_come_back_as_sent(broker: str, topic: Callable[..., str]) -> None:
    name = topic(partitions=1)
    producer = ordered_producer(broker)
    producer.produce(name, b"value", b"key", timestamp=1_356_998_400_000, headers=[("h", b"1")])
    assert producer.flush(WITHIN_S) == 0
    consumer = Consumer({"bootstrap.servers": broker, "group.id": name, "auto.offset.reset": "earliest"})
    consumer.subscribe([name])
    record = consumer.poll(WITHIN_S)
    consumer.close()
    assert record is not None
    assert (record.key(), record.value(), record.timestamp()[1]) == (b"key", b"value", 1_356_998_400_000)
    assert record.headers() == [("h", b"1")]


def test_a_misspelt_topic_is_refused_instead_of_made(broker: str) -> None:
    refused: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker, "topic.metadata.propagation.max.ms": 1000})
    producer.produce("misspelt", b"value", on_delivery=lambda error, record: refused.append(error))
    assert producer.flush(WITHIN_S) == 0
    assert [error and error.code() for error in refused] == [KafkaError.UNKNOWN_TOPIC_OR_PART]


def test_the_command_starts_one_that_outlives_it_and_stops_it(tmp_path: Path) -> None:
    folder = ["--folder", str(tmp_path / "broker")]
    assert _command("status", *folder).exit_code == 1
    started = _command("start", *folder)
    assert started.exit_code == 0
    running = running_broker(tmp_path / "broker")
    assert running is not None
    try:
        assert f"export KAFKA_BOOTSTRAP_SERVERS={running.bootstrap_servers}" in started.output
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        admin.create_topics([NewTopic("kept", 2, 1)])["kept"].result(WITHIN_S)
        assert _command("status", *folder).exit_code == 0
        assert _command("start", *folder).output == started.output, "a second start shows the first broker"
        assert _command("stop", *folder).exit_code == 0
        assert not running.is_running()
        assert _command("status", *folder).exit_code == 1

        again = start_broker(tmp_path / "broker")
        assert again.bootstrap_servers == running.bootstrap_servers, "exported addresses stay right"
        topics = (
            AdminClient({"bootstrap.servers": again.bootstrap_servers}).list_topics(timeout=WITHIN_S).topics
        )
        assert len(topics["kept"].partitions) == 2
    finally:
        if left := running_broker(tmp_path / "broker"):
            left.stop()


def test_stopping_where_nothing_runs_is_no_error(tmp_path: Path) -> None:
    result = _command("stop", "--folder", str(tmp_path))
    assert (result.exit_code, result.output) == (0, f"no broker runs in {tmp_path}\n")


def test_a_recycled_pid_is_never_killed(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as innocent:
        state = {"bootstrap_servers": "x:1", "pid": innocent.pid, "started": 1.0, "folder": str(tmp_path)}
        (tmp_path / "broker.json").write_text(json.dumps(state))
        assert running_broker(tmp_path) is None
        EmbeddedBroker("x:1", innocent.pid, 1.0, tmp_path).stop()
        assert innocent.poll() is None
        innocent.kill()


def test_a_cluster_of_ones_own_is_used_and_nothing_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "kafka.example:9092")
    monkeypatch.setattr(broker_module, "start_broker", None)
    with broker() as given:
        assert given == EmbeddedBroker("kafka.example:9092")


def test_the_broker_ends_with_the_program_that_uses_it(tmp_path: Path) -> None:
    program = textwrap.dedent("""
        import signal
        from pipelines.runtime.local_broker import broker
        with broker() as running:
            print(running.pid, running.folder, flush=True)
            signal.pause()
    """)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as user:
        assert user.stdout is not None
        pid, folder = user.stdout.readline().split()
        process = psutil.Process(int(pid))
        user.send_signal(signal.SIGTERM)
        assert user.wait(WITHIN_S) != 0
    assert not process.is_running()
    assert not Path(folder).exists()


def test_a_port_taken_after_it_was_chosen_is_answered_by_another_try_and_an_exception_ends_it_but_for_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = broker_module.free_ports, []

    def use() -> None:
        with broker(tmp_path) as running:
            seen.append(running)
            assert not running.bootstrap_servers.endswith(f":{thief.getsockname()[1]}")
            assert running.folder == tmp_path
            assert os.getpgid(running.pid or 0) != os.getpgid(0), "Ctrl-C in the terminal must not reach it"
            raise ZeroDivisionError

    seen: list[EmbeddedBroker] = []
    with socket.socket() as thief:
        thief.bind(("127.0.0.1", 0))
        thief.listen()

        def ports(folder: Path, wanted: int) -> tuple[int, int]:
            calls.append(wanted)
            return (thief.getsockname()[1], real(folder, 0)[1]) if len(calls) == 1 else real(folder, 0)

        monkeypatch.setattr(broker_module, "free_ports", ports)
        with pytest.raises(ZeroDivisionError):
            use()
    assert len(calls) == 2
    assert not seen[0].is_running()
    assert "Kafka Server started" in (tmp_path / "broker.log").read_text()


def test_a_broker_that_dies_while_starting_shows_the_end_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        broker_module,
        "server_properties",
        lambda *given: server_properties(*given) + "num.io.threads=0\n",
    )
    with pytest.raises(InfrastructureError, match=r"(?s)broker\.log:.*num\.io\.threads"):
        start_broker(tmp_path)
    assert running_broker(tmp_path) is None


def test_a_broker_that_ignores_a_polite_end_is_killed() -> None:
    program = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as stubborn:
        assert stubborn.stdout is not None
        stubborn.stdout.readline()
        process = psutil.Process(stubborn.pid)
        EmbeddedBroker("x:1", stubborn.pid, process.create_time()).stop(within_s=0.5)
        assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_a_folder_that_cannot_be_made_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InfrastructureError, match=r"cannot be used.*Name another one"):
        start_broker(tmp_path / "file" / "broker")
