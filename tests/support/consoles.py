"""Lakes as the console knows them, made up: small ones with everything, and large ones."""

import random
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import cache

from pipelines.config.streams import Query
from pipelines.console.view import (
    ClusterFigures,
    DiagnosedStage,
    DiagnosisTexts,
    LakeFigures,
    LakeView,
    PipelineView,
    RackFigures,
    Reading,
)
from pipelines.lag.diagnosis import LagCause
from pipelines.lag.stage_facts import PartitionLag, StageFacts
from pipelines.ledger.certifications import Verdict
from pipelines.ledger.overview import LeaseState, PipelineLedger, RunStep, SettledDays
from pipelines.spark.stream_progress import BatchFigures, StateFigures, StreamProgress, TaskFigures
from tests.support.reports import POISON, quarantine_of

NOW = datetime(2026, 3, 14, 9, 26, 53, tzinfo=UTC)
TODAY = NOW.date()
OLD_AFTER_S = 300.0


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def verdict(name: str, day: date, number: int, status: str = "certified") -> Verdict:
    rows = 120_000 + 311 * number
    decided = datetime(day.year, day.month, day.day, 2, 10, tzinfo=UTC) + timedelta(days=1)
    return Verdict(
        *(name, day, status, f"run-{number}", 40 + number, 900 + number),  # type: ignore[arg-type]
        records=rows + 4_012,
        rows=rows,
        duplicates=4_012,
        conflicts=number % 3,
        late=7 * number,
        quarantined=12,
        other_days=0,
        bronze=rows * 30,
        decided_at=decided,
        previous_version=39 if status == "failed" else None,
    )


def stream(stage: Query, rng: random.Random, **changes: object) -> StreamProgress:
    batches = []
    for number in range(60):
        write = rng.uniform(0.8, 2.4)
        phases = {"source": rng.uniform(0.05, 0.3), "planning": 0.3, "write": write, "log": 0.2}
        seconds = sum(phases.values()) + 0.1
        batch = BatchFigures(number, ago(10.0 * (60 - number)), seconds, 4_000, phases)
        if stage == "speed":
            # Of what tasks do, half is decoding and a tenth is state.
            tasks = TaskFigures(8, run_s=2 * write, handing_on_s=write)
            parts = {"commit": 0.2, "quarantine": 0.1}
            batch = replace(batch, tasks=tasks, state=StateFigures(update_s=0.2 * write), parts=parts)
        batches.append(batch)
    made = StreamProgress(
        stage, "worker-3", 4711, ago(90_000), ago(12), ago(3), 10.0, executors=4, batches=tuple(batches)
    )
    return replace(made, **changes)  # type: ignore[arg-type]


@cache
def _running(name: Query) -> StreamProgress:
    return stream(name, random.Random(7))  # noqa: S311 - nothing secret


def stage(name: Query, cause: LagCause = "none", behind: float = 6.0, words: str = "") -> DiagnosedStage:
    lags = tuple(PartitionLag(n, 40 + 200 * n, behind, 390.0, 402.5, 600_000.0) for n in range(3))
    told = words or f"the oldest unprocessed record is {behind:.0f} s old"
    advice = "" if cause in ("none", "source_quiet") else f"start it: oncelake {name}_stream --pipeline x"
    run = stream(name, random.Random(7))  # noqa: S311 - nothing secret
    return DiagnosedStage(
        StageFacts(name, NOW, lags, run), DiagnosisTexts(cause, (told,), 0.8 if advice else 1.0, advice)
    )


def steps(status: str = "done", detail: str = "") -> tuple[RunStep, ...]:
    day = TODAY - timedelta(days=1)
    took = (("seal", 4.0), ("build", 71.0), ("audit", 33.0), ("certify", 2.5))
    return tuple(
        RunStep("run-30", name, status if name == "audit" else "done", day, day, detail, ago(26_000), seconds)
        for name, seconds in took
    )


def ledger(name: str, *, failed: int | None = None, days: int = 20) -> PipelineLedger:
    verdicts = []
    for number in range(days, 0, -1):
        day = TODAY - timedelta(days=number)
        verdicts.append(verdict(name, day, days - number, "failed" if number == failed else "certified"))
    checks = {TODAY - timedelta(days=failed): ("no_duplicate_key", "counts_add_up")} if failed else {}
    free = LeaseState("run-30", "nightly_batch", "worker-1", 812, ago(26_000), ago(25_000), is_gone=False)
    settled = {"q-1": SettledDays(18, TODAY - timedelta(days=3), 57)}
    return PipelineLedger(tuple(verdicts), 0, checks, steps(), free, settled)


def at_work(known: PipelineLedger, job: str, number: int = 0) -> PipelineLedger:
    """The same with a run that holds the lease of the pipeline."""
    since, until = ago(60.0 * (number + 1)), NOW + timedelta(minutes=50)
    held = LeaseState(f"run-{number}", job, "worker-2", 900 + number, since, until, is_gone=False)
    return replace(known, lease=held)


def pipeline(name: str = "flights", seed: int = 1) -> PipelineView:
    """A pipeline of which all is known, and all is well."""
    rng = random.Random(seed)  # noqa: S311 - nothing secret
    streams = tuple(
        StageFacts(each, NOW, (), stream(each, rng), is_alive=True) for each in ("ingest", "speed", "publish")
    )
    stages = tuple(stage(each, behind=rng.uniform(1, 9)) for each in ("ingest", "speed", "publish"))
    shares = {"off": 0.34, "client": 0.67, "placement": 1.0}
    racks = RackFigures("client", shares, ("no executor runs in zone-c",))  # type: ignore[arg-type]
    return PipelineView(
        name,
        zone="America/New_York",
        publishes_to=f"{name}-events",
        ledger=Reading(ledger(name), ago(9)),
        lake=Reading(LakeFigures(streams, publish_query="q-1"), ago(21)),
        cluster=Reading(ClusterFigures(stages, (racks,)), ago(34)),
        reports=frozenset({TODAY - timedelta(days=1), TODAY - timedelta(days=4)}),
    )


def troubled(name: str = "orders") -> PipelineView:
    """A pipeline with everything that can be wrong, and poison wherever a text comes from elsewhere."""
    fine = pipeline(name, 2)
    rng = random.Random(3)  # noqa: S311 - nothing secret
    lake = LakeFigures(
        (
            StageFacts("ingest", NOW, (), stream("ingest", rng, ended_at=ago(4_000), failure=POISON)),
            StageFacts("speed", NOW, (), stream("speed", rng, host=POISON), is_alive=False),
            StageFacts("publish", NOW, ()),
        ),
        quarantine_of(),
        "t 7",
        publish_query="q-1",
    )
    stages = (
        stage("ingest", "stopped", 4_100.0, f"it failed: {POISON}"),
        stage("speed", "catching_up", 95.0),
        stage("publish"),
    )
    held = LeaseState(POISON, POISON, POISON, 99, ago(1_200), NOW + timedelta(minutes=4), is_gone=True)
    bad = replace(ledger(name, failed=2), steps=steps("failed", POISON), older_failed=3)
    bad = replace(bad, lease=held, backfill_lease=replace(held, job=None, is_gone=False))
    checks = {TODAY - timedelta(days=2): ("no_duplicate_key", POISON)}
    return replace(
        fine,
        publishes_to=POISON,
        ledger=Reading(replace(bad, failed_checks=checks), ago(9)),
        lake=Reading(lake, ago(21)),
        cluster=Reading(
            ClusterFigures(stages, (RackFigures("off", failure=POISON),)),
            ago(2_000),
            failure=f"no answer of {POISON}",
        ),
    )


def lake_view(*pipelines: PipelineView) -> LakeView:
    return LakeView("prod", "0.1.0", ago(4), OLD_AFTER_S, pipelines)


def many(count: int = 200) -> LakeView:
    """A lake with many pipelines, some of them in trouble."""
    rng = random.Random(5)  # noqa: S311 - nothing secret
    causes: tuple[LagCause, ...] = ("slow", "stopped", "small_files", "catching_up", "retention")
    found = []
    for number in range(count):
        one = pipeline(f"pipeline-{number:03}", number)
        if rng.random() < 0.08:
            cluster = one.cluster.value or ClusterFigures()
            worse = stage("speed", rng.choice(causes), rng.uniform(100, 9_000))
            one = replace(
                one,
                cluster=Reading(
                    replace(cluster, stages=(cluster.stages[0], worse, *cluster.stages[2:])), ago(50)
                ),
            )
        if rng.random() < 0.04:
            one = replace(one, ledger=Reading(ledger(one.name, failed=rng.randint(1, 9)), ago(9)))
        if rng.random() < 0.05 and one.lake.value:
            lake = replace(one.lake.value, quarantine=quarantine_of()[1:], quarantine_state="t 1")
            one = replace(one, lake=Reading(lake, ago(20)))
        if rng.random() < 0.02:
            one = replace(one, cluster=Reading(one.cluster.value, ago(900), asked_at=ago(120)))
        if rng.random() < 0.03:
            one = replace(one, publishes_to=None)
        if rng.random() < 0.05 and one.ledger.value:
            one = replace(one, ledger=Reading(at_work(one.ledger.value, "nightly_batch", number), ago(9)))
        found.append(one)
    found.append(
        PipelineView(
            "broken", "conf/base/pipelines/broken.yml: kafka.topik: unknown key; did you mean 'topic'?"
        )
    )
    return lake_view(*found)
