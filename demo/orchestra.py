"""The course of a demo: broker, jobs, replay, nightly run, report, comparison with the truth."""

import os
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Event

from demo.cast import BRIEF_JAVA, PIPELINE, ROOT, Cast
from demo.compare import Findings, compare
from demo.folder import DemoFolder
from demo.health import Health, examine, live_console
from demo.lake import (
    PUT_BACK,
    added_by_repairs,
    brought_in_at_night,
    count_rows,
    quarantined,
    rows_read,
    served_rows,
)
from demo.narration import Narrator
from demo.nights import first_night, second_night
from demo.processes import StreamingJobs
from demo.producer import Producers
from demo.replay import Plan, plan_replay
from demo.sends import split_waves
from demo.source import demo_days, read_flights
from demo.strict_contract import TOO_SHORT_MILES, write_strict_contract
from demo.topic import create_topic, delete_topic
from demo.verdict import Counts, Nights, show_health, show_verdict
from pipelines.runtime.local_broker import BOOTSTRAP_VARIABLE, broker
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.loading import open_pipeline
from pipelines.steps.speed import speed as read_on
from testbed.waiting import wait_until

PARTITIONS = 3

_WAVES = 5
_RESTARTS = 3
_FEW_DAYS = 60


def run_demo(days: int, seed: int, folder: Path, narrator: Narrator, *, keep: bool = False) -> bool:
    """Run the demo from an empty folder to the verdict.

    Args:
        days: Number of event days.
        seed: Of the replay.
        folder: Emptied, then filled.
        narrator: Tells it.
        keep: Whether broker and console stay at the end, until Ctrl-C.

    Returns:
        Whether the lake is what the truth says.

    Raises:
        OncelakeError: Something needed failed; the message says what, and which log to read.
    """
    place = DemoFolder(folder)
    event_days = demo_days(days)
    place.claim()
    brief = days <= _FEW_DAYS
    if brief:
        os.environ.setdefault("JDK_JAVA_OPTIONS", BRIEF_JAVA)
    with ExitStack() as stack:
        with narrator.step("Start a Kafka broker, and plan the replay", _PLANNING.format(days=days)):
            planning = stack.enter_context(ThreadPoolExecutor(1))
            planned: Future[Plan] = planning.submit(
                lambda: plan_replay(read_flights(event_days), seed, PARTITIONS)
            )
            servers = stack.enter_context(broker(place.broker)).bootstrap_servers
            topic = stack.enter_context(_topic(servers))
            cast = Cast(planned.result(), place, servers, topic, narrator, brief)
        _introduce(cast)
        write_strict_contract(ROOT / "data_contracts" / "flights.odcs.yaml", place.contracts)
        speed = cast.job("speed_stream", "--contracts-dir", str(place.contracts))
        streams = StreamingJobs([cast.job("ingest_stream"), speed], _RESTARTS, narrator.say)
        stack.callback(streams.end)
        _stream(cast, streams)
        _fix(cast, stack)
        first_night(cast, stack)
        second_night(cast, stack)
        judged = _judge(cast, stack)
        show_verdict(narrator, cast.plan, judged.findings, judged.counts)
        if streams.restarted:
            narrator.say(f"Streaming jobs started again after they died: {streams.restarted}")
        narrator.say(f"Lake: {place.lake}")
        narrator.say(f"Report: {place.report}")
        show_health(narrator, judged.health)
        if keep:
            _keep(narrator, judged.console)
    return judged.findings.sound


def _introduce(cast: Cast) -> None:
    plan, truth = cast.plan, cast.plan.truth
    cast.narrator.say(
        f"{len(truth.events):,} flights of {len(plan.days)} days ({plan.days[0]} to {plan.days[-2]}, and "
        f"{plan.days[-1]}, which stays uncertified) become {truth.sent:,} records: {truth.duplicates:,} are "
        f"sent again, {truth.late} come days late, {truth.conflicts} are told in two ways, "
        f"{sum(truth.quarantined.values())} are broken."
    )
    cast.narrator.say(f"Broker {cast.servers}, topic {cast.topic}, lake {cast.folder.lake}")


def _stream(cast: Cast, streams: StreamingJobs) -> None:
    narrator, sends = cast.narrator, cast.plan.before_first_night
    streams.start()
    narrator.say("")
    narrator.say("ingest_stream and speed_stream start, each a process of its own.")
    narrator.say("Kill one with `kill -9`, if you like: it is started again, and the result is the same.")
    sent = [0]
    with (
        narrator.progress("Replay in waves, while the streaming jobs run", len(sends)) as bar,
        Producers(cast.servers, cast.topic) as producers,
    ):
        for index, wave in enumerate(split_waves(sends, _WAVES)):
            # The first wave is there before the jobs are, as after an outage. Later ones stay close to the
            # speed layer, whose watermark has to move on for anything to be late.
            _await_speed(sent[max(min(1, index), index - 1)], cast, streams)
            for count in producers.send(wave):
                streams.check()
                bar.advance(count)
            sent.append(sent[-1] + len(wave))
    with narrator.step("Wait until the lake has caught up", _CATCHING_UP):
        _await_speed(sent[-1], cast, streams)
    with narrator.step("Stop the streaming jobs", "By SIGTERM, as any operator would; both must end with 0."):
        streams.stop()


def _await_speed(rows: int, cast: Cast, streams: StreamingJobs) -> None:
    config = cast.config()
    bronze = Path(config.table("bronze"))
    checkpoint = Path(config.checkpoint("speed"))
    wait_until(
        lambda: rows_read(checkpoint, bronze) >= rows,
        f"the speed layer had read {rows:,} rows of bronze; see {cast.folder.logs}",
        cast.patience,
        streams.check,
    )


def _fix(cast: Cast, stack: ExitStack) -> None:
    replay = cast.job("quarantine replay", "--reason", "rule_failed")
    with cast.narrator.step("Fix the contract, and replay what it had refused", _FIXING):
        cast.run(replay, stack)


@dataclass(frozen=True)
class _Judged:
    """What came of a demo: differences from the truth, counts, lag and doctor; and where the console is."""

    findings: Findings
    counts: Counts
    health: Health
    console: str


def _judge(cast: Cast, stack: ExitStack) -> _Judged:
    """Look at the lake in a session of this process, which lives as long as the console in it."""
    report = cast.job("report", "--date", str(cast.plan.first_night[-1]), "--out", str(cast.folder.report))
    stack.callback(report.end)
    with cast.narrator.step("Write the report, and hold the lake against the truth", _JUDGING):
        report.start()
        stack.enter_context(_standard_error_into(cast.folder.logs / "comparison.log"))
        pipeline = open_pipeline(
            PIPELINE, conf_dir=ROOT / "conf", contracts_dir=ROOT / "data_contracts", settings=cast.settings
        )
        stack.callback(pipeline.spark.stop)
        console = stack.enter_context(live_console(pipeline, cast.folder.report))
        cast.narrator.say(f"Until the demo ends, the console shows all of this: {console}")
        findings, counts = _compare(cast, pipeline)
        health = examine(pipeline)
        report.wait(cast.patience)
    return _Judged(findings, counts, health, console)


def _compare(cast: Cast, pipeline: Pipeline) -> tuple[Findings, Counts]:
    # The speed layer has not read yet what came between the nights.
    read_on(pipeline, once=True)
    served, broken = served_rows(pipeline), quarantined(pipeline)
    put_back = broken.pop(PUT_BACK, 0)
    nights = Nights(brought_in_at_night(pipeline), added_by_repairs(pipeline))
    bronze = count_rows(cast.folder.lake / "bronze" / PIPELINE)
    return compare(served, broken, cast.plan.truth), Counts(bronze, put_back, nights)


def _keep(narrator: Narrator, address: str) -> None:
    """Wait until the user has seen enough."""
    narrator.say(f"Console: {address} (Ctrl-C ends it, and the demo)")
    with suppress(KeyboardInterrupt):
        Event().wait()


@contextmanager
def _topic(servers: str) -> Iterator[str]:
    # The embedded broker goes with all its topics; a cluster of the user's gets one that cannot be in use.
    foreign = BOOTSTRAP_VARIABLE in os.environ
    topic = f"{PIPELINE}-demo-{datetime.now(UTC):%Y%m%d-%H%M%S}" if foreign else PIPELINE
    create_topic(servers, topic, PARTITIONS)
    try:
        yield topic
    finally:
        if foreign:
            delete_topic(servers, topic)


@contextmanager
def _standard_error_into(file: Path) -> Iterator[None]:
    """Let a JVM that starts meanwhile write its warnings to a file, for as long as it lives."""
    sys.stderr.flush()
    kept = os.dup(2)
    with file.open("ab") as target:
        os.dup2(target.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


_PLANNING = (
    "A real broker, on this machine alone, for as long as the demo runs. Meanwhile {days} days of real "
    "flights are read, and it is drawn by lot what unreliable producers would do to them."
)
_CATCHING_UP = "Every record must be in bronze, and read from there by the speed layer."
_FIXING = (
    f"speed_stream ran with a contract that takes no flight of over {TOO_SHORT_MILES:,} miles, so those to "
    "Honolulu are in quarantine. From here on the contract is right."
)
_JUDGING = (
    "The report, of a repaired day, is a job like the others. Independently of it, every row that a reader "
    "of the lake gets is compared with what was sent. Lag and doctor, at the end, must find nothing."
)
