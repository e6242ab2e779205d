"""What the console collects of a real lake and a real cluster, and that it changes nothing of either."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pipelines.console.batch_chart import phase_bar
from pipelines.console.concerns import concerns
from pipelines.console.view import LakeView, PipelineView
from pipelines.contracts.contract import DataContract
from pipelines.steps.console import CollectionLimits, Collector, ConfiguredPipeline
from pipelines.steps.ingest import ingest
from pipelines.steps.speed import speed
from tests.support.certified_days import rebuild
from tests.support.cli_calls import outcome
from tests.support.kafka import MakeTopic, ordered_producer
from tests.support.lakes import Lake, flight
from tests.support.nights import ONE
from tests.support.pages import Page

LIMITS = CollectionLimits(old_after_s=3_600.0, answer_s=120.0)


def collected(collector: Collector) -> LakeView:
    collector.gather()
    while not collector.is_done():
        collector.wait_for_news(1.0)
    return collector.view()


def files_of(root: str) -> dict[Path, tuple[int, int]]:
    stats = ((path, path.stat()) for path in Path(root).rglob("*") if path.is_file())
    return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in stats}


@pytest.fixture
def filled(
    broker: str, topic: MakeTopic, make_lake: Callable[..., Lake], small: DataContract
) -> tuple[Lake, str]:
    """A lake with a certified day and a record in quarantine, whose contract has personal data."""
    name = topic(partitions=2)
    personal: Any = {"tailnum": "hash"}
    settings = (f"kafka.bootstrap_servers={broker}", f"kafka.topic={name}")
    lake = make_lake(*settings, contract=replace(small, personal=personal))
    producer = ordered_producer(broker)
    for value in (*(flight(flight=number) for number in range(1, 6)), b'{"tailnum": "N14228"'):
        producer.produce(name, value, partition=0)
    assert producer.flush(60) == 0
    ingest(lake.pipeline, once=True)
    speed(lake.pipeline, once=True)
    rebuild(lake, [ONE])
    return lake, name


def told_of_flights(flights: PipelineView) -> None:
    ledger, figures, cluster = flights.ledger.value, flights.lake.value, flights.cluster.value
    assert ledger
    assert [step.step for step in ledger.steps] == ["seal", "build", "audit", "certify"]
    assert {step.status for step in ledger.steps} == {"done"}
    assert ledger.lease
    assert (ledger.lease.run_id, ledger.lease.until <= datetime.now(UTC)) == ("rebuild", True)
    assert (ledger.lease.job, ledger.backfill_lease) == ("nightly_batch", None)

    assert figures
    assert [each.stage for each in figures.streams] == ["ingest", "speed"]
    assert [sum(batch.records for batch in each.busy) for each in figures.streams] == [6, 6]
    found = [phase_bar(each.busy, each.stage) for each in figures.streams]
    of_ingest, of_speed = ({part.phase for part in each.sums} if each else set() for each in found)
    assert {"planning", "write", "commit", "log"} <= of_ingest
    assert of_ingest | {"decode", "quarantine"} <= of_speed
    (reason,) = figures.quarantine
    assert (reason.reason, reason.records, figures.withholds) == ("malformed_json", 1, True)
    assert reason.examples[0].offset == 5
    assert "N14228" not in reason.model_dump_json()

    assert cluster
    causes = {each.facts.stage: each.diagnosis.cause for each in cluster.stages}
    assert causes.keys() == {"ingest", "speed"}
    assert {each.facts.records for each in cluster.stages} == {0}
    assert cluster.racks


def test_all_is_collected_and_nothing_is_changed_and_old_figures_outlive_a_failure(
    filled: tuple[Lake, str], tmp_path: Path
) -> None:
    lake, name = filled
    reports = tmp_path / "reports"
    reports.mkdir()
    (reports / f"flights-{ONE}.html").write_text("", encoding="utf-8")
    gone = lake.config.model_copy(
        update={
            "name": "gone",
            "kafka": lake.config.kafka.model_copy(update={"topic": "there-is-no-such-topic"}),
        }
    )
    described = [
        ConfiguredPipeline("flights", (lake.config, lake.contract)),
        ConfiguredPipeline("gone", (gone, lake.contract)),
        ConfiguredPipeline("refused", refusal="conf/base/pipelines/refused.yml: no topic"),
    ]
    before = files_of(lake.config.root)
    collector = Collector(lake.spark, described, reports, LIMITS)
    view = collected(collector)
    assert files_of(lake.config.root) == before

    flights, lost, refused = view.pipelines
    assert (view.failure, refused.refusal) == (None, "conf/base/pipelines/refused.yml: no topic")
    assert [(each.day, each.status, each.has_report) for each in flights.days] == [(ONE, "certified", True)]
    told_of_flights(flights)

    # One topic that is not there holds up nobody.
    assert lost.cluster.failure is not None
    assert "there-is-no-such-topic" in lost.cluster.failure
    assert lost.lake.value
    assert {each.severity for each in concerns(lost, datetime.now(UTC), 3_600.0)} == {"failed"}

    settings = (
        f"lake.root={lake.config.root}",
        f"kafka.bootstrap_servers={lake.config.kafka.bootstrap_servers}",
    )
    out = tmp_path / "out"
    words = ("--out", str(out), "--reports", str(reports), *(f"--set={each}" for each in settings))
    code, summary = outcome("console", *words, f"--set=kafka.topic={name}")
    assert (code, summary["status"], summary["counts"]) == (0, "done", {"pipelines": 2})
    assert Path(summary["index"]) == out / "index.html"
    page = (out / "pipelines" / "flights.html").read_text(encoding="utf-8")
    told = " ".join(Page(page).text.split())
    assert "Time of speed by phase" in told
    assert "The last to hold the lease of the pipeline: nightly_batch, run rebuild" in told
    assert '<small class="longest">' in (out / "index.html").read_text(encoding="utf-8")
    assert f'href="../../reports/flights-{ONE}.html"' in page
    assert "malformed_json" in page

    leases = Path(lake.config.ops_table("leases"), "_delta_log")
    for commit in leases.glob("*.json"):
        commit.write_text(json.dumps({"no": "commit"}) + "\n{", encoding="utf-8")
    lake.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
    after = collected(collector)
    assert after.failure is not None
    assert after.pipelines[0].ledger.value == flights.ledger.value
    assert after.pipelines[0].ledger.is_old(datetime.now(UTC), 3_600.0)
    assert after.pipelines[0].lake.failure is None
