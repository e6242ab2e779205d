"""A lake on S3 loses nothing, whichever JVMs write to it: S3 itself puts a commit only if it is absent."""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from demo.source import read_weather
from pipelines.runtime.jars import ensure_jars
from testbed.short_lived_settings import BRIEF_SPARK
from tests.support.command_process import CommandProcess, command_process
from tests.support.kafka import MakeTopic, ordered_producer
from tests.support.processes import Job, start_job, start_program
from tests.support.s3 import BUCKET, Store, s3_double
from tests.support.s3_app import ROWS

LOG_STORE = "spark.conf.spark.delta.logStore.s3a.impl=oncelake.store.S3ConditionalLogStore"
ROOT = Path(__file__).resolve().parents[2]
COMMITS = 8
DAYS = [date(2013, 1, 1), date(2013, 1, 2)]

Start = Callable[..., Job]


@pytest.fixture(scope="module", autouse=True)
def jars() -> None:
    """Fetched once; a job that waits for them is not what is tested."""
    ensure_jars("s3")


@pytest.fixture(scope="module")
def double() -> Iterator[Store]:
    with s3_double() as running:
        yield running


@pytest.fixture
def store(double: Store) -> Iterator[Store]:
    yield double
    double.heeds_conditions, double.lost_answers = True, 0


@pytest.fixture(scope="module")
def process() -> Iterator[CommandProcess]:
    """Runs one thing after the other, in a Java that has the jars for S3."""
    with command_process(environment={**os.environ, "PYTHONPATH": str(ROOT)}) as running:
        yield running


@pytest.fixture
def settings(store: Store) -> list[str]:
    return [
        *store.settings,
        *BRIEF_SPARK,
        f"lake.root=s3a://{BUCKET}/lake",
        "spark.master=local[2]",
        LOG_STORE,
    ]


@pytest.fixture
def start(settings: list[str], tmp_path: Path, jobs: list[Job]) -> Start:
    def start_one(name: str, *arguments: str) -> Job:
        given = [f"--set={setting}" for setting in settings]
        jobs.append(start_job(name, tmp_path, "--pipeline", "weather", *given, *arguments))
        return jobs[-1]

    return start_one


@pytest.fixture
def start_app(settings: list[str], tmp_path: Path, jobs: list[Job]) -> Start:
    def start_one(program: str, *arguments: str) -> Job:
        given = (program, " ".join(settings), *arguments)
        jobs.append(start_program("tests.support.s3_app", tmp_path, *given))
        return jobs[-1]

    return start_one


def ended_well(job: Job) -> Job:
    assert job.wait() == 0, job.log.read_text()[-3000:]
    return job


def commits_of(store: Store, table: str) -> dict[int, int]:
    """The rows that each version of a table has added, read without Delta."""
    found = {}
    for name in store.files(f"{table}/_delta_log/"):
        if name.endswith(".json"):
            actions = [json.loads(line) for line in store.read(f"{table}/_delta_log/{name}").splitlines()]
            added = [json.loads(action["add"]["stats"]) for action in actions if "add" in action]
            found[int(name.removesuffix(".json"))] = sum(stats["numRecords"] for stats in added)
    return found


@pytest.mark.slow
@pytest.mark.thorough
def test_two_writers_at_once_lose_no_commit_and_repeat_none(
    store: Store, settings: list[str], process: CommandProcess, start_app: Start, tmp_path: Path
) -> None:
    # One after the other: of two that make a table at once Delta lets one fail, on any store.
    first, second, both = (tmp_path / name for name in ("first", "second", "both"))
    arguments = ("write", " ".join(settings), str(COMMITS), str(first), str(both))
    program = f"from tests.support.s3_app import main; main(*{arguments!r})"
    writers = [
        process.start_program(tmp_path, program),
        start_app("write", str(COMMITS), str(second), str(both)),
    ]
    for writer, turn in zip(writers, (first, second), strict=True):
        turn.touch()
        assert writer.process.stdout is not None
        assert writer.process.stdout.readline() == "ready\n", writer.log.read_text()[-3000:]
    before = len(store.refused)
    # Some writes are carried out and answered by an error, so that they are sent again.
    store.lost_answers = 3
    both.touch()
    for writer in writers:
        ended_well(writer)

    assert store.lost_answers == 0
    assert len(store.refused) - before > 3, "the two have met"
    assert commits_of(store, "lake/table") == dict.fromkeys(range(2 * COMMITS + 2), ROWS)


@pytest.mark.slow
@pytest.mark.thorough
def test_days_on_s3_are_certified_and_read_with_every_event_once(
    store: Store, settings: list[str], start: Start, start_app: Start, broker: str, topic: MakeTopic
) -> None:
    name = topic()
    settings += [f"kafka.bootstrap_servers={broker}", f"kafka.topic={name}"]
    sent = send(broker, name)
    for job in ("ingest_stream", "speed_stream"):
        ended_well(start(job, "--once"))
    night = ended_well(start("nightly_batch", "--from", "2013-01-01", "--to", "2013-01-02"))
    assert night.summary()["days"] == {"2013-01-01": "certified", "2013-01-02": "certified"}
    out = night.log.parent / "reports"
    report, reader = start("report", "--date", "2013-01-01", "--out", str(out)), start_app("serve")
    ended_well(report)
    assert json.loads((out / "weather-2013-01-01.json").read_text())["verdict"]["status"] == "certified"

    ended_well(reader)
    assert reader.process.stdout is not None
    served = Counter((origin, hour) for origin, hour in json.loads(reader.process.stdout.read()))
    assert served == Counter(sent)
    assert store.files("lake/ops/_put_if_absent/_delta_log/") == ["00000000000000000000.json"]
    assert "put if absent was not tested" not in night.log.read_text()


def send(broker: str, topic: str) -> list[tuple[str, str]]:
    """Sends three days of weather, every third record twice; the keys of the events."""
    producer, sent = ordered_producer(broker), []
    for n, event in enumerate(read_weather([*DAYS, DAYS[-1] + timedelta(days=1)])):
        hour = datetime.fromisoformat(str(event["time_hour"])).astimezone(UTC)
        sent.append((str(event["origin"]), f"{hour:%Y-%m-%d %H:%M}"))
        for _ in range(2 if n % 3 == 0 else 1):
            at = int((hour + timedelta(minutes=5)).timestamp() * 1000)
            producer.produce(topic, json.dumps(event), timestamp=at)
    assert producer.flush(60) == 0
    return sent


@pytest.mark.slow
def test_a_store_that_does_not_heed_the_condition_is_refused(
    store: Store, settings: list[str], process: CommandProcess, tmp_path: Path
) -> None:
    store.heeds_conditions = False
    given = [f"--set={setting}" for setting in (*settings, f"lake.root=s3a://{BUCKET}/careless")]
    job = process.start(tmp_path, "report", "--pipeline", "weather", *given, "--date", "2013-01-01")
    assert job.wait() == 2, job.log.read_text()[-3000:]
    assert "an existing file was overwritten" in job.summary()["error"]
