"""An object store that does not answer: a short outage costs nothing, a long one ends a job."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from pipelines.runtime.jars import ensure_jars
from tests.support.command_process import CommandProcess, command_process
from tests.support.kafka import MakeTopic
from tests.support.s3 import Store, s3_double
from tests.support.s3_outage import Outage, first_of_each, from_one_on
from tests.support.s3_site import HOURS, HOURS_OF_DAY, NIGHT, Site, new_site, settings_of

pytestmark = [pytest.mark.slow, pytest.mark.thorough, pytest.mark.integration, pytest.mark.timeout(300)]

ROOT: Final = Path(__file__).resolve().parents[2]
S3A: Final = "spark.conf.spark.hadoop.fs.s3a"
# Each request is sent three times, within seconds. The last test looks at the settings that jobs have.
TRIES: Final = 3
# Of a run that has lost its store: each costs the time of all tries.
MOST_REQUESTS: Final = 8
BRIEF_TRIES: Final = (
    f"{S3A}.connection.timeout=1s",
    f"{S3A}.connection.request.timeout=1s",
    f"{S3A}.retry.limit={TRIES - 1}",
    f"{S3A}.retry.interval=50ms",
    f"{S3A}.retry.throttle.limit={TRIES - 1}",
    f"{S3A}.retry.throttle.interval=50ms",
)
OPEN: Final = """
from pipelines.steps.loading import open_pipeline
context = open_pipeline("weather", settings={settings!r}).spark.sparkContext
jvm, hadoop = context._jvm, context._jsc.hadoopConfiguration()
s3a = jvm.org.apache.hadoop.fs.s3a
"""
# Hadoop takes no timeouts below 15 s.
ALLOW_SHORT_TIMEOUTS: Final = """
s3a.impl.AWSClientConfig.setMinimumOperationDuration(jvm.java.time.Duration.ofMillis(100))
"""
# What the client would wait after each try of a request, by what was said to it.
TELL_WAITS: Final = """
import json
from py4j.java_gateway import get_field
policy, sdk = s3a.S3ARetryPolicy(hadoop), jvm.software.amazon.awssdk
answer = sdk.services.s3.model.S3Exception.builder().message("Slow Down").statusCode(503).build()
failures = {
    "silent": jvm.java.net.SocketTimeoutException("Read timed out"),
    "broken": s3a.AWSClientIOException("open", sdk.core.exception.SdkClientException.create("reset")),
    "busy": s3a.AWSServiceThrottledException("open", answer),
    "failing": s3a.AWSStatus500Exception("open", answer),
}
waits = {}
for name, failure in failures.items():
    waits[name] = []
    while True:
        action = policy.shouldRetry(failure, len(waits[name]), 0, True)
        if get_field(action, "action").toString() != "RETRY":
            break
        waits[name].append(get_field(action, "delayMillis"))
settings = {name: hadoop.get(f"fs.s3a.{name}") for name in ("connection.timeout", "attempts.maximum")}
print(json.dumps({"waits": waits, "settings": settings}))
"""


@pytest.fixture(scope="module", autouse=True)
def jars() -> None:
    """Fetched once; a job that waits for them is not what is tested."""
    ensure_jars("s3")


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Store, Outage]]:
    outage = Outage()
    with s3_double(outage=outage) as store:
        yield store, outage


@pytest.fixture(scope="module")
def process(
    running: tuple[Store, Outage], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CommandProcess]:
    with command_process(environment={**os.environ, "PYTHONPATH": str(ROOT)}) as found:
        settings = settings_of(running[0], "lake")
        job = found.start_program(
            tmp_path_factory.mktemp("prepared"), OPEN.format(settings=settings) + ALLOW_SHORT_TIMEOUTS
        )
        assert job.wait() == 0, job.log.read_text()[-3000:]
        yield found


@pytest.fixture
def outage(running: tuple[Store, Outage]) -> Iterator[Outage]:
    yield running[1]
    running[1].end()


@pytest.fixture
def site(
    running: tuple[Store, Outage], process: CommandProcess, tmp_path: Path, broker: str, topic: MakeTopic
) -> Site:
    made = new_site(running[0], process, tmp_path, broker, topic())
    made.settings += BRIEF_TRIES
    return made


def given_up(site: Site, *job: str) -> str:
    """Runs a job of which some requests get no answer, for good; its message."""
    code, summary = site.run(*job)
    assert code == 1, summary
    assert "the object store does not answer, also after retries: " in summary["error"]
    assert "docs/runbook.md, 'The object store does not answer'" in summary["error"]
    assert "\n" not in summary["error"]
    return str(summary["error"])


def those(pattern: str) -> Callable[[str], bool]:
    """Says of requests whether a pattern is found in them."""
    return lambda request: re.search(pattern, request) is not None


def test_streams_survive_a_short_outage_and_go_on_exactly_after_a_long_one(
    site: Site, outage: Outage
) -> None:
    # Each request is refused once: reads and writes, of data, logs and checkpoints.
    outage.begin("busy", first_of_each())
    site.well("ingest_stream", "--once")
    assert {request.split()[0] for request in outage.kept} >= {"GET", "HEAD", "PUT", "DELETE"}
    assert site.rows("bronze") == HOURS

    # The micro-batch is in the table, and not yet noted as done.
    outage.begin("silent", those(r"^PUT .*/speed/commits/[^/]+$"))
    assert "it was silent" in given_up(site, "speed_stream", "--once")
    assert len(outage.kept) == TRIES
    outage.end()
    assert site.rows("speed") == HOURS
    site.well("speed_stream", "--once")
    assert site.rows("speed") == HOURS
    assert site.traces() == []


def test_a_night_decides_nothing_in_an_outage_and_certifies_after_it(site: Site, outage: Outage) -> None:
    site.well("ingest_stream", "--once")
    # Neither can it record how it ended, nor return its lease.
    outage.begin("busy", from_one_on(r"^PUT .*/lake/batch/weather/.*\.parquet$"))
    assert "fewer requests" in given_up(site, *NIGHT)
    assert len(outage.kept) <= MOST_REQUESTS * TRIES
    outage.end()
    assert site.rows("batch") == 0
    night = site.well(*NIGHT)
    assert night["days"] == {"2013-01-01": "certified"}
    assert night["counts"]["rows"] == HOURS_OF_DAY
    assert site.traces() == []


def test_a_job_that_starts_in_an_outage_asks_once_and_doctor_names_it(site: Site, outage: Outage) -> None:
    for job in (("ingest_stream", "--once"), NIGHT):
        outage.begin("silent")
        said = given_up(site, *job)
        assert said.startswith(f"lake.root: s3a://{site.bucket}/lake: the object store does not answer")
        assert "No table was changed. Start the job again once the store answers" in said
        assert len(outage.kept) == TRIES
        outage.end()
    outage.begin("silent")
    code, summary = site.run("doctor")
    assert code == 3
    found = {finding["check"]: finding["found"] for finding in summary["findings"]}
    for check in ("store_takes_commits", "tables_can_be_read"):
        assert "the object store does not answer, also after retries" in found[check]
    assert site.traces() == []


def test_a_request_is_given_up_after_minutes_by_the_settings_of_jobs(
    running: tuple[Store, Outage], process: CommandProcess, tmp_path: Path
) -> None:
    opened = OPEN.format(settings=settings_of(running[0], "lake"))
    job = process.start_program(tmp_path, opened + TELL_WAITS)
    assert job.wait() == 0, job.log.read_text()[-3000:]
    told = job.summary()
    assert told["settings"] == {"connection.timeout": "30s", "attempts.maximum": "0"}
    for name, waits in told["waits"].items():
        # A store that is started again is back within that time.
        assert 30 < sum(waits) / 1000 < 100, name
        # Each try of a store that is silent takes 30 s.
        assert sum(waits) / 1000 + 30 * (len(waits) + 1) < 320, name
