"""`oncelake quarantine` as an operator runs it: certified days are rebuilt, each for itself."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pipelines.contract import DataContract
from pipelines.contract_rules import RowRule
from pipelines.layers.batch import nightly
from pipelines.layers.quarantine import summarise
from pipelines.layers.serving import read_serving
from pipelines.ops.quarantined import Selection
from tests.support.lakes import Lake
from tests.support.nights import ONE, on, stream
from tests.support.processes import BRIEF_SETTINGS, Job, start_job

ROWS = 520


def test_a_replay_rebuilds_certified_days_and_one_that_fails_does_not_hold_up_the_others(
    make_lake: Callable[..., Lake], small: DataContract, tmp_path: Path, jobs: list[Job]
) -> None:
    short = RowRule("distance", "maximum", 3000)
    lake = make_lake(contract=replace(small, day_rules=(), row_rules=(*small.row_rules, short)))
    # The contract on file wants 500 rows of a day at least, which the third day lacks.
    lake.ingest([on(1, n + 1) for n in range(ROWS)])
    lake.ingest([on(day, 1001) for day in (1, 3)])
    lake.ingest([on(day, 1002, distance=4963.0) for day in (1, 3)])
    lake.ingest([on(4, 1)])
    stream(lake)
    nightly(lake.spark, lake.config, lake.contract, "run", ONE, ONE.replace(day=3))

    job = start_job(
        "quarantine replay",
        tmp_path,
        *("--pipeline", "flights", "--reason", "rule_failed"),
        *(f"--set=lake.root={lake.config.root}", *BRIEF_SETTINGS),
    )
    jobs.append(job)
    assert job.wait() == 3, job.log.read_text()[-3000:]
    summary = job.summary()
    assert summary["days"] == {"2013-01-01": "certified", "2013-01-03": "failed"}
    assert summary["counts"]["closed"] == 2
    serving = read_serving(lake.spark, lake.config).where("flight = 1002")
    assert [str(row["_event_date"]) for row in serving.toLocalIterator()] == ["2013-01-01"]
    statuses = summarise(lake.spark, lake.config, Selection(status=None))
    assert sorted((g["status"], g["records"]) for g in statuses) == [("open", 1), ("replayed", 1)]
