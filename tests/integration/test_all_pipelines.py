"""`nightly_batch --all`: one process for all pipelines, of which none stops the others."""

import json
import shutil
from datetime import UTC, date, datetime
from pathlib import Path

from pipelines.ops.certification import certified
from tests.support.lakes import Lake, Record, flight
from tests.support.processes import BRIEF_SETTINGS, Job, start_job

ROWS = 1_200
FLIGHTS = "contract: flights.odcs.yaml\nkafka: {topic: flights}\nspeed: {watermark_delay: 6 hours"


def day(number: int, rows: int) -> list[Record]:
    sent = datetime(2013, 1, number, 12, tzinfo=UTC)
    departure = f"2013-01-{number:02}T05:15:00-05:00"
    return [Record(flight(flight=n + 1, scheduled_departure=departure), sent=sent) for n in range(rows)]


def test_every_pipeline_has_its_night_whatever_becomes_of_the_others(
    lake: Lake, tmp_path: Path, jobs: list[Job]
) -> None:
    lake.ingest([*day(1, ROWS), *day(2, 1)])
    # By name: one without a master that exists, one that is refused, one that passes, one whose audit fails.
    conf = shutil.copytree("conf", tmp_path / "conf")
    pipelines = conf / "base/pipelines"
    (pipelines / "weather.yml").unlink()
    (pipelines / "astray.yml").write_text(FLIGHTS + "}\nspark: {master: nowhere}\n")
    (pipelines / "broken.yml").write_text(FLIGHTS + ", oops: 1}\n")
    told = tmp_path / "told.json"
    (pipelines / "sparse.yml").write_text(
        FLIGHTS.replace("flights.odcs", "strict.odcs")
        + f", state_partitions: 3}}\nnotify: {{command: [tee, {told}]}}\n"
    )
    bronze = Path(lake.config.root, "bronze")
    shutil.copytree(bronze / "flights", bronze / "sparse")
    contracts = shutil.copytree("data_contracts", tmp_path / "contracts")
    strict = (contracts / "flights.odcs.yaml").read_text().replace("[500, 1500]", "[5000, 6000]")
    (contracts / "strict.odcs.yaml").write_text(strict)

    job = start_job(
        "nightly_batch",
        tmp_path,
        "--all",
        "--date=2013-01-01",
        f"--conf-dir={conf}",
        f"--contracts-dir={contracts}",
        f"--set=lake.root={lake.config.root}",
        *BRIEF_SETTINGS,
    )
    jobs.append(job)
    assert job.wait() == 3, job.log.read_text()[-3000:]
    summary = job.summary()
    ended = {one["pipeline"]: (one["status"], one["exit_code"]) for one in summary["pipelines"]}
    assert ended == {
        "broken": ("failed", 2),
        "astray": ("failed", 1),
        "flights": ("done", 0),
        "sparse": ("failed", 3),
    }
    assert next(iter(ended)) == "broken", "a mistake is told before anything starts"
    state = certified(lake.spark, lake.config)
    assert state is not None
    assert state.days == (date(2013, 1, 1),)
    assert json.loads(told.read_text()) == summary["pipelines"][-1]
