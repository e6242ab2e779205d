"""An object store that demands signed requests: what it refuses is told, keys are rotated, none is found."""

import json
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from pipelines.runtime.jars import ensure_jars
from testbed.waiting import wait_until
from tests.support.command_process import CommandProcess, command_process
from tests.support.kafka import MakeTopic
from tests.support.log_capture import with_traces
from tests.support.processes import BRIEF_SETTINGS, Job, start_job
from tests.support.s3 import Store, s3_double
from tests.support.s3_login import Door, Keys
from tests.support.secured_site import MARK, files_with, secret, watched

pytestmark = [pytest.mark.slow, pytest.mark.thorough, pytest.mark.integration, pytest.mark.timeout(300)]

S3A: Final = "spark.conf.spark.hadoop.fs.s3a"
PROVIDER: Final = "org.apache.hadoop.fs.s3a.auth.ProfileAWSCredentialsProvider"
CONFIGURATION: Final = """
lake: {{root: s3a://{site.bucket}/lake}}
kafka: {{bootstrap_servers: "{broker}", topic: {site.topic}}}
ingest: {{trigger_interval: 1 second}}
spark:
  master: local[2]
  conf:
    spark.delta.logStore.s3a.impl: oncelake.store.S3ConditionalLogStore
    spark.eventLog.enabled: "true"
    spark.eventLog.compress: "false"
    spark.eventLog.dir: file:{site.folder}/events
"""
KEYS: Final = """
    spark.hadoop.fs.s3a.access.key: ${{file:{site.secrets}/access}}
    spark.hadoop.fs.s3a.secret.key: ${{file:{site.secrets}/secret}}
    spark.hadoop.fs.s3a.session.token: ${{file:{site.secrets}/token}}
"""
PROFILE: Final = f"""
    spark.hadoop.fs.s3a.aws.credentials.provider: {PROVIDER}
    spark.hadoop.fs.s3a.auth.profile.file: {{site.folder}}/profile
"""


def keys(name: str) -> Keys:
    """Keys of their own, whose secret and whose token must be found nowhere."""
    name = f"{name}-{uuid4().hex[:6]}"
    return Keys(f"key-{name}", secret(f"{name}-secret"), secret(f"{name}-token"))


@pytest.fixture(scope="module", autouse=True)
def jars() -> None:
    """Fetched once; a job that waits for them is not what is tested."""
    ensure_jars("s3")


@dataclass
class Site:
    """Jobs of the pipeline `weather` whose lake is in a bucket of its own.

    Attributes:
        store: Where the lake is.
        door: Who may come in.
        folder: All that the jobs leave outside of the bucket.
        secrets: Files that hold what the jobs sign with.
        bucket: Its name.
        topic: What the jobs read.
    """

    store: Store
    door: Door
    folder: Path
    secrets: Path
    bucket: str
    topic: str

    def give(self, given: Keys) -> None:
        """Puts keys where the configuration names them."""
        for name in ("access", "secret", "token"):
            (self.secrets / name).write_text(f"{getattr(given, name)}\n")

    def give_until(self, given: Keys, end: datetime) -> None:
        """Puts keys that last for a while into a file of the form that AWS has for it."""
        document = {
            "Version": 1,
            "AccessKeyId": given.access,
            "SecretAccessKey": given.secret,
            "SessionToken": given.token,
            "Expiration": f"{end:%Y-%m-%dT%H:%M:%SZ}",
        }
        # Whoever reads the file finds it whole.
        (self.secrets / "new").write_text(json.dumps(document))
        (self.secrets / "new").replace(self.secrets / "keys.json")

    def arguments(self, *further: str) -> tuple[str, ...]:
        """What each job is started with."""
        address = (f"--set={setting}" for setting in self.store.address)
        folder = f"--conf-dir={self.folder}/conf"
        return ("--pipeline=weather", "--env=signed", folder, *address, *BRIEF_SETTINGS, *further)

    def start(self, job: str, *further: str) -> Job:
        """Starts a job in a process of its own."""
        return start_job(job, self.folder, *self.arguments(*further))

    def run(self, process: CommandProcess, job: str, *further: str) -> tuple[int, dict[str, Any]]:
        """Runs a job in a process that others run in, too."""
        return ended(process.start(self.folder, job, *self.arguments(*further)))

    def records(self) -> int:
        """The records in bronze."""
        return self.store.rows("bronze/weather", self.bucket)

    def leaks(self) -> list[str]:
        """The files that have a secret, a token or a signature, here and in the bucket."""
        copy = self.folder / "bucket"
        for number, name in enumerate(self.store.files("", self.bucket)):
            (copy / str(number)).mkdir(parents=True)
            (copy / str(number) / Path(name).name).write_bytes(self.store.read(name, self.bucket))
        return files_with(self.folder, [MARK, *self.door.signatures], least=10)


def ended(job: Job) -> tuple[int, dict[str, Any]]:
    """The exit code and the summary of a job, whose whole output is kept."""
    code, summary = job.wait(), job.summary()
    job.log.with_suffix(".summary").write_text(repr(summary))
    return code, summary


def lives(job: Job) -> bool:
    """True; fails with the summary of a job that has ended."""
    assert job.process.poll() is None, job.summary()["error"]
    return True


def send(broker: str, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(60) == 0


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Store, Door]]:
    door = Door()
    with s3_double(door) as store:
        yield store, door


@pytest.fixture(scope="module")
def process() -> Iterator[CommandProcess]:
    with command_process() as running:
        yield running


@pytest.fixture
def make_site(
    running: tuple[Store, Door], tmp_path: Path, broker: str, topic: MakeTopic
) -> Callable[[str], Site]:
    """Makes a site, by what its configuration says of keys."""

    def make(login: str) -> Site:
        store, door = running
        # Hadoop keeps a client for each bucket, with the keys that it had first.
        folder, secrets, bucket = tmp_path / "site", tmp_path / "secrets", f"lake-{uuid4().hex[:12]}"
        store.client("s3").create_bucket(Bucket=bucket)
        shutil.copytree("conf", folder / "conf")
        for made in (secrets, folder / "events", folder / "conf/signed"):
            made.mkdir()
        site = Site(store, door, folder, secrets, bucket, topic())
        text = f"{CONFIGURATION.rstrip()}{login}".format(site=site, broker=broker)
        (folder / "conf/signed/oncelake.yml").write_text(text)
        return site

    return make


# A job that asked again and again would be refused some hundred times.
MOST_REQUESTS: Final = 10
REFUSED: Final = {
    "secret": ("SignatureDoesNotMatch", "the secret key is not the one of the access key"),
    "access": ("InvalidAccessKeyId", "it does not know the access key"),
    "token": ("InvalidToken", "the session token is not the one of the access key"),
    "expired": ("ExpiredToken", "the session token has expired"),
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_keys_that_are_refused_at_the_start_are_told_in_one_message(
    wrong: str, make_site: Callable[[str], Site], process: CommandProcess, broker: str
) -> None:
    site, good = make_site(KEYS), keys(wrong)
    code, words = REFUSED[wrong]
    if wrong == "expired":
        site.door.expired.add(good)
        site.give(good)
    else:
        site.door.valid.add(good)
        # What names a key is no secret.
        site.give(replace(good, **{wrong: "other" if wrong == "access" else secret("other")}))
    send(broker, site.topic, b"{}")
    with watched() as shown:
        for job, *arguments in (("ingest_stream", "--once"), ("nightly_batch", "--date=2013-01-01")):
            begin = len(site.door.refused)
            code_of_job, summary = site.run(process, job, *arguments)
            assert code_of_job == 2, summary["error"]
            assert summary["error"].startswith(f"lake.root: s3a://{site.bucket}/lake: ")
            assert words in summary["error"]
            assert "docs/runbook.md, 'The object store refuses the job'" in summary["error"]
            assert code in site.door.refused[begin:]
            # It is not asked again and again.
            assert len(site.door.refused) - begin < MOST_REQUESTS
    assert shown == set()
    assert with_traces(site.folder.glob("*.log")) == []
    assert site.leaks() == []
    site.door.expired.clear()


def test_a_stream_ends_when_its_keys_expire_and_goes_on_with_new_ones_when_started_again(
    make_site: Callable[[str], Site], jobs: list[Job], broker: str
) -> None:
    site, old, new = make_site(KEYS), keys("old"), keys("new")
    site.door.valid.update({old, new})
    site.give(old)
    with watched() as shown:
        send(broker, site.topic, b"1")
        jobs.append(site.start("ingest_stream"))
        wait_until(lambda: lives(jobs[-1]) and site.records() == 1, "the first record is in bronze")
        site.door.expire(old)
        send(broker, site.topic, b"2", b"3")
        code, summary = ended(jobs[-1])
        assert code == 1, summary
        assert "the stream stopped: the object store refuses the request" in summary["error"]
        assert "Then start the job again: it continues where it stopped" in summary["error"]
        jobs.append(site.start("ingest_stream", "--once"))
        assert ended(jobs[-1])[0] == 2

        site.give(new)
        jobs.append(site.start("ingest_stream", "--once"))
        assert ended(jobs[-1])[0] == 0
    # Also if the last micro-batch was in bronze, and not yet noted as done.
    assert site.records() == 3
    assert with_traces(site.folder.glob("*.log")) == []
    assert shown == set()
    assert site.leaks() == []


def test_a_stream_goes_on_with_keys_that_are_rotated_in_time(
    make_site: Callable[[str], Site], jobs: list[Job], broker: str
) -> None:
    site, old, new = make_site(PROFILE), keys("old"), keys("new")
    site.door.valid.update({old, new})
    (site.folder / "profile").write_text(f"[default]\ncredential_process = cat {site.secrets}/keys.json\n")
    end = datetime.now(UTC) + timedelta(minutes=1)
    site.give_until(old, end)
    with watched() as shown:
        send(broker, site.topic, b"1")
        jobs.append(site.start("ingest_stream"))
        wait_until(lambda: lives(jobs[-1]) and site.records() == 1, "the first record is in bronze")
        site.give_until(new, end + timedelta(hours=1))
        # Each of Hadoop's clients in the job asks for others by itself, until then.
        wait_until(lambda: lives(jobs[-1]) and datetime.now(UTC) > end, "the old keys have expired", 90)
        site.door.expire(old)
        begin = len(site.door.refused)
        send(broker, site.topic, b"2", b"3")
        wait_until(lambda: lives(jobs[-1]) and site.records() == 3, "all records are in bronze")
        assert jobs[-1].send(signal.SIGTERM) == 0
    assert new.access in site.door.entered
    assert site.door.refused[begin:] == []
    assert shown == set()
    assert site.leaks() == []
