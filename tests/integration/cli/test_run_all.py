"""`nightly_batch --all`: one process for all pipelines, of which none stops the others."""

import json
import shutil
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from pipelines.ledger.certifications import certified
from tests.support.lakes import Lake, Record, flight
from tests.support.processes import BRIEF_SETTINGS, Job, start_job

ROWS = 1_200
FLIGHTS = "contract: flights.odcs.yaml\nkafka: {topic: flights}\nspeed: {watermark_delay: 6 hours"


def day(number: int, rows: int) -> list[Record]:
    sent = datetime(2013, 1, number, 12, tzinfo=UTC)
    departure = f"2013-01-{number:02}T05:15:00-05:00"
    return [Record(flight(flight=n + 1, scheduled_departure=departure), sent=sent) for n in range(rows)]


@pytest.mark.slow
def test_every_pipeline_has_its_night_whatever_becomes_of_the_others(
    lake: Lake, tmp_path: Path, jobs: list[Job]
) -> None:
    lake.ingest([*day(1, ROWS), *day(2, 1)])
    # By name: one whose Spark does not start, one that is refused, one that passes, one without records.
    conf = shutil.copytree("conf", tmp_path / "conf")
    (conf / "local/pipelines").mkdir()
    (conf / "local/pipelines/astray.yml").write_text("spark: {master: nowhere}\n")
    pipelines = conf / "base/pipelines"
    (pipelines / "weather.yml").unlink()
    (pipelines / "astray.yml").write_text(FLIGHTS + "}\n")
    (pipelines / "broken.yml").write_text(FLIGHTS + ", oops: 1}\n")
    told = tmp_path / "told.json"
    hook = f"notify: {{when: [source_error], command: [tee, {told}]}}\n"
    (pipelines / "silent.yml").write_text(FLIGHTS + "}\n" + hook)

    job = start_job(
        "nightly_batch",
        tmp_path,
        "--all",
        "--date=2013-01-01",
        f"--conf-dir={conf}",
        f"--set=lake.root={lake.config.root}",
        # Not by Kafka, where another test's broker may answer at the usual port.
        "--set=batch.seal_by=bronze",
        *BRIEF_SETTINGS,
    )
    jobs.append(job)
    assert job.wait() == 2, job.log.read_text()[-3000:]
    summary = job.summary()
    ended = {one["pipeline"]: (one["status"], one["exit_code"]) for one in summary["pipelines"]}
    assert ended == {
        "broken": ("failed", 2),
        "astray": ("failed", 1),
        "flights": ("done", 0),
        "silent": ("failed", 4),
    }, summary
    assert next(iter(ended)) == "broken", "a mistake is told before anything starts"
    state = certified(lake.pipeline)
    assert state is not None
    assert state.days == (date(2013, 1, 1),)
    assert json.loads(told.read_text()) == summary["pipelines"][-1]
