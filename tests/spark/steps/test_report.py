"""A report tells what a rebuild changed, what became of a day, and of days that nobody has decided on."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.contracts.contract import DataContract
from pipelines.delta.io import read
from pipelines.delta.time_travel import read_kept
from pipelines.ledger.certifications import Verdict, history
from pipelines.report.model.history import ChangedRow
from pipelines.report.queries.row_changes import sampled_changes
from pipelines.steps.metrics import metrics
from pipelines.steps.report import report
from tests.support.lake_copies import continued, lake_in
from tests.support.lakes import EPOCH, Lake, compact_and_vacuum
from tests.support.nights import ONE, TWO, on, run, stream

HOUR = timedelta(hours=1)


def told(lake: Lake, out: Path, day: date | None = None) -> dict[str, Any]:
    done = report(lake.pipeline, day, out, "json")
    found: dict[str, Any] = json.loads(done.files["json"].read_text())
    return found


@dataclass(frozen=True)
class FirstNight:
    """A lake whose first day was certified.

    Attributes:
        lake: the lake, to be read or copied.
        verdict: the verdict on that day.
        undecided: what was told of the second day before the night, and after it.
    """

    lake: Lake
    verdict: Verdict
    undecided: list[dict[str, Any]]


@pytest.fixture(scope="module")
def first_night(
    spark: SparkSession, small: DataContract, tmp_path_factory: pytest.TempPathFactory
) -> FirstNight:
    out = tmp_path_factory.mktemp("first")
    personal: Any = {"dest": "drop", "tailnum": "hash"}
    lake = lake_in(out / "lake", spark, replace(small, personal=personal))
    lake.ingest([*(on(1, number) for number in (1, 2, 3, 1)), on(2, 7), b"?", on(3, 9)])
    before = told(lake, out, TWO)
    run(lake, ONE)
    undecided = [before, told(lake, out, TWO)]
    (verdict,) = history(lake.pipeline)
    return FirstNight(lake, verdict, undecided)


@pytest.mark.thorough
def test_a_repair_is_told_with_rows_history_and_trend_until_the_old_version_is_gone(
    first_night: FirstNight, make_lake: Callable[..., Lake], tmp_path: Path
) -> None:
    lake = continued(first_night.lake, make_lake("audit.examples=2", contract=first_night.lake.contract))
    lake.ingest([on(1, 2, sent=EPOCH - HOUR, tailnum=None, dest="MIA"), on(1, 4), on(1, 5), on(1, 6), b"?"])
    stream(lake)
    run(lake, ONE)
    first, second = history(lake.pipeline)
    assert second.previous_version == first.batch_version
    done = report(lake.pipeline, ONE, tmp_path)
    found = json.loads(done.files["json"].read_text())
    assert done.files["index"].read_text().count('href="flights-2013-01-01.html"') == 2
    told_of = found["comparison"]
    assert (told_of["added"], told_of["removed"], told_of["changed"]) == (3, 0, 1)
    assert [row["change"] for row in told_of["samples"]] == ["added", "added", "changed"]
    changed = ChangedRow.model_validate(told_of["samples"][-1])
    assert [(c.column, c.personal, c.after) for c in changed.columns] == [
        ("dest", "drop", None),
        ("tailnum", "hash", None),
    ]
    assert str(changed.columns[1].before).startswith("sha256:")
    assert "N14228" not in json.dumps(found)
    assert (changed.before, changed.after) != (None, None)
    assert changed.before != changed.after
    assert found["history"][0]["previous_version"] is None
    assert found["history"][-1]["previous_version"] == first.batch_version
    assert [repair["day"] for repair in found["repairs"]] == ["2013-01-01"]
    (day,) = found["trend"]
    assert (day["repairs"], day["quarantined"]) == (1, 2)

    prom = metrics(lake.pipeline, "local", tmp_path).path
    assert 'oncelake_last_run_repairs{pipeline="flights",env="local"} 1\n' in prom.read_text()

    compact_and_vacuum(lake.spark, lake.config.table("batch"))
    # Delta lets no version of bronze be read that is older than a week; what it held is told all the same.
    lake.ingest([on(1, 8), b"!"])
    bronze = lake.config.table("bronze")
    long_ago = time.time() - timedelta(days=40).total_seconds()
    for number, path in enumerate(sorted(Path(bronze, "_delta_log").glob("*.*"))):
        os.utime(path, (long_ago + number, long_ago + number))
    lake.ingest([on(4, 9)])
    assert read_kept(lake.spark, bronze, second.bronze_version) is None
    again = told(lake, tmp_path, ONE)
    told_of = again["comparison"]
    assert "is gone" in told_of["gone"]
    assert (told_of["added"], told_of["samples"]) == (3, [])
    assert read_kept(lake.spark, lake.config.table("batch"), 99) is None
    same = ("flow", "duplicates_by_hour", "lateness", "quarantine", "conflict_samples")
    assert {name: again[name] for name in same} == {name: found[name] for name in same}


@pytest.mark.thorough
def test_a_day_without_a_decision_is_reported_as_open_or_not_certified(
    first_night: FirstNight, tmp_path: Path
) -> None:
    before, over = first_night.undecided
    assert before["verdict"] == over["verdict"]
    assert (over["verdict"]["status"], over["verdict"]["run_id"]) == ("not_certified", None)
    flow = over["flow"]
    assert (flow["bronze"], flow["day_records"], flow["other_days"], flow["quarantined"]) == (7, 1, 5, 1)
    assert [(day["day"], day["status"]) for day in over["trend"]] == [
        ("2013-01-01", "certified"),
        ("2013-01-02", "not_certified"),
    ]
    lake = first_night.lake
    today = datetime.now(lake.contract.zone).date()
    assert told(lake, tmp_path, day=today)["verdict"]["status"] == "open"


def test_a_row_from_another_record_with_the_same_values_is_told_as_such(
    first_night: FirstNight, small: DataContract
) -> None:
    lake, first = first_night.lake, first_night.verdict
    batch = read(lake.spark, lake.config.table("batch"), first.batch_version)
    moved = batch.selectExpr("* EXCEPT (_offset)", "_offset + 7 AS _offset").where("flight > 1")
    found = sampled_changes(batch, moved, small, 1)
    assert (found.added, found.removed, found.changed) == (0, 1, 2)
    gone, other = found.samples
    assert (gone.change, gone.after) == ("removed", None)
    assert {column.column: column.before for column in gone.columns}["dest"] == "IAH"
    assert (other.change, other.columns) == ("changed", ())
    assert [origin.offset for origin in (other.before, other.after) if origin] == [1, 8]
    assert sampled_changes(batch, batch, small, 5).samples == ()
