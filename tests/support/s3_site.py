"""Jobs of the pipeline `weather` whose lake is on the double of S3, one after the other in one process."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from confluent_kafka import Producer

from testbed.short_lived_settings import BRIEF_SPARK
from tests.support.command_process import CommandProcess
from tests.support.log_capture import with_traces
from tests.support.s3 import Store

HOURS: Final = 40
"""How many events are sent, one for each hour."""
HOURS_OF_DAY: Final = 17
"""How many of them are of the first day, 2013-01-01."""
NIGHT: Final = ("nightly_batch", "--date=2013-01-01")

_NOON: Final = datetime(2013, 1, 1, 12, tzinfo=UTC)
_LOG_STORE: Final = "spark.conf.spark.delta.logStore.s3a.impl=oncelake.store.S3ConditionalLogStore"


def settings_of(store: Store, bucket: str, broker: str = "broker:1", topic: str = "topic") -> list[str]:
    """What a job is started with, as `--set` takes it."""
    return [
        *(*store.settings, *BRIEF_SPARK, _LOG_STORE),
        *(f"lake.root=s3a://{bucket}/lake", "spark.master=local[2]"),
        *(f"kafka.bootstrap_servers={broker}", f"kafka.topic={topic}"),
    ]


@dataclass
class Site:
    """A lake in a bucket of its own.

    Attributes:
        store: Where the lake is.
        process: What runs the jobs.
        folder: Where their logs are.
        bucket: The name of the bucket.
        settings: What each job is started with.
    """

    store: Store
    process: CommandProcess
    folder: Path
    bucket: str
    settings: list[str]

    def run(self, job: str, *arguments: str) -> tuple[int, dict[str, Any]]:
        """Runs a job; its exit code and its summary."""
        given = (f"--set={setting}" for setting in self.settings)
        done = self.process.start(self.folder, job, "--pipeline=weather", *given, *arguments)
        return done.wait(), done.summary()

    def well(self, job: str, *arguments: str) -> dict[str, Any]:
        """Runs a job that ends well; its summary."""
        code, summary = self.run(job, *arguments)
        assert code == 0, summary
        return summary

    def rows(self, layer: str) -> int:
        """The rows of a layer, as the commits of its table say."""
        return self.store.rows(f"{layer}/weather", self.bucket)

    def traces(self) -> list[Path]:
        """The logs of jobs, and of their Java, with a stack trace."""
        return with_traces([*self.folder.glob("*.log"), self.process.path.with_name("log")])


def new_site(store: Store, process: CommandProcess, folder: Path, broker: str, topic: str) -> Site:
    """Makes a bucket, and fills a topic for it."""
    # Hadoop keeps a client for each bucket, with the settings that it had first.
    bucket = f"lake-{uuid4().hex[:12]}"
    store.client("s3").create_bucket(Bucket=bucket)
    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True})
    for hour in range(HOURS):
        at = _NOON + timedelta(hours=hour)
        event = {"origin": "EWR", "time_hour": at.isoformat()}
        producer.produce(topic, json.dumps(event), timestamp=int(at.timestamp() * 1000))
    assert producer.flush(60) == 0
    return Site(store, process, folder, bucket, settings_of(store, bucket, broker, topic))
