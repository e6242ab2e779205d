"""Why a stage is behind: one cause, with the figures that point to it and what helps.

The rules are tried in the order of `_RULES`, and the first that matches names the cause. A rule for a reason
comes before the rules for what it leads to: a stream that collects garbage half of its time is slow, too.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import mean, median
from typing import Final, Literal

from pipelines.durations import about
from pipelines.lag.evidence import Evidence, PartitionLag
from pipelines.spark.stream_progress import MicroBatch, TaskFigures

Cause = Literal[
    "none",
    "source_quiet",
    "retention",
    "stopped",
    "stuck",
    "kafka",
    "executors",
    "gc",
    "spill",
    "skew",
    "state",
    "small_files",
    "burst",
    "slow",
    "catching_up",
    "unknown",
]

# A stage works in steps of one micro-batch: what came since the last two is not behind.
_STEPS: Final = 2
_SLACK_S: Final = 10.0
# A run that is idle says so every ten seconds.
_SILENT_S: Final = 60.0
_STUCK_TIMES: Final = 10
_STUCK_S: Final = 300.0
_DANGER_S: Final = 3600.0
_DAY_S: Final = 86_400.0
_GC_SHARE: Final = 0.2
_SOURCE_SHARE: Final = 0.5
_SOURCE_S: Final = 1.0
_STATE_SHARE: Final = 0.5
_FAIR_TIMES: Final = 2
_HOT_SHARE: Final = 0.5
_LONG_TASK_TIMES: Final = 4
_LONG_TASK_SHARE: Final = 0.6
_MANY_FILES: Final = 100
_SMALL_BYTES: Final = 1 << 20
_BURST_TIMES: Final = 3
_ROOM: Final = 1.1
_RECENT: Final = 10


@dataclass(frozen=True)
class Diagnosis:
    """Why a stage is behind.

    Attributes:
        cause: The cause; `none` if it is not behind.
        evidence: The figures that point to it.
        confidence: From 0 to 1: how rarely the same figures have another cause.
        advice: What helps; empty if nothing has to be done.
    """

    cause: Cause
    evidence: tuple[str, ...]
    confidence: float
    advice: str = ""


def diagnose(evidence: Evidence, start: str) -> Diagnosis:
    """Name the cause of a stage's lag.

    Args:
        evidence: What is known of the stage.
        start: The command that starts its stream.
    """
    found = next((found for rule in _RULES if (found := rule(evidence, start))), None)
    danger = _retention(evidence, start)
    if found and danger and found.cause not in ("none", "retention"):
        return replace(found, evidence=(*found.evidence, *danger.evidence))
    if found:
        return found
    return Diagnosis(
        "unknown",
        (f"{evidence.records:,} records are not processed, the oldest is {about(evidence.behind_s)} old",),
        0.0,
        "look at the log of the stream; run this command again in a minute, rates need a few micro-batches",
    )


def _lost(evidence: Evidence, start: str) -> Diagnosis | None:
    lost = [each for each in evidence.partitions if each.lost]
    if not lost:
        return None
    return Diagnosis(
        "retention",
        tuple(f"partition {each.partition}: Kafka has deleted {each.lost:,} unread offsets" for each in lost),
        1.0,
        "these records are lost; see docs/runbook.md, 'Is everything in bronze?'",
    )


def _never_ran(evidence: Evidence, start: str) -> Diagnosis | None:
    if not evidence.records or evidence.stream or evidence.in_flight_s is not None:
        return None
    return Diagnosis("stopped", ("no run has left figures",), 0.7, f"start it: {start}")


def _ended(evidence: Evidence, start: str) -> Diagnosis | None:
    stream = evidence.stream
    if not evidence.records or stream is None or stream.ended_at is None:
        return None
    ago = about((evidence.at - stream.ended_at).total_seconds())
    how = f"it failed: {stream.failure}" if stream.failure else "it ended without a failure"
    return Diagnosis("stopped", (f"the last run ended {ago} ago", how), 1.0, f"start it: {start}")


def _died(evidence: Evidence, start: str) -> Diagnosis | None:
    stream = evidence.stream
    if not evidence.records or stream is None or stream.ended_at is not None:
        return None
    silent = (evidence.at - stream.written_at).total_seconds()
    where, last_sign = (
        f"process {stream.pid} on {stream.host}",
        f"its last sign was {about(silent)} ago",
    )
    if evidence.is_alive is False:
        words = (f"{where} has ended without a word", last_sign)
        return Diagnosis("stopped", words, 1.0, f"start it: {start}")
    is_idle = evidence.in_flight_s is None
    if evidence.is_alive is None and is_idle and silent > max(_SILENT_S, _STEPS * stream.trigger_s):
        return Diagnosis(
            "stopped", (where, last_sign), 0.8, f"see whether it runs; if it does not, start it: {start}"
        )
    return None


def _stuck(evidence: Evidence, start: str) -> Diagnosis | None:
    since = evidence.in_flight_s
    limit = max(_STUCK_S, _STUCK_TIMES * max(evidence.usual_s, evidence.trigger_s))
    if since is None or since <= limit:
        return None
    words = (
        f"a micro-batch has been in progress for {about(since)}",
        f"one usually takes {about(evidence.usual_s)}" if evidence.busy else "none has been finished before",
    )
    return Diagnosis(
        "stuck",
        words,
        0.9,
        "look at the log of the stream and the tasks that run; if nothing moves, stop it and start it again:"
        f" {start}",
    )


def _not_behind(evidence: Evidence, start: str) -> Diagnosis | None:
    tolerance = _STEPS * (evidence.trigger_s + evidence.usual_s) + _SLACK_S
    if evidence.records and evidence.behind_s > tolerance:
        return None
    if not evidence.records and not evidence.rate_in:
        return Diagnosis("source_quiet", ("nothing comes in, and all is processed",), 1.0)
    words = (
        f"the oldest unprocessed record is {about(evidence.behind_s)} old, up to {about(tolerance)} is usual"
    )
    return Diagnosis("none", (words if evidence.records else "all is processed",), 1.0)


def _retention(evidence: Evidence, start: str) -> Diagnosis | None:
    known = [each for each in evidence.partitions if each.retention_s is not None and each.records]
    endangered = [each for each in known if _is_endangered(each)]
    if not endangered:
        return None
    worst = min(endangered, key=lambda each: each.retention_s or 0.0)
    catch_up = worst.catch_up_s
    words = (
        f"Kafka deletes unread records of partition {worst.partition} in {about(worst.retention_s or 0.0)}",
        f"at present rates all is read in {about(catch_up)}"
        if catch_up
        else "it does not catch up at present",
    )
    advice = "raise retention.ms of the topic now, then add cores or start the stream"
    return Diagnosis("retention", words, 0.9, f"{advice}: {start}")


def _is_endangered(lag: PartitionLag) -> bool:
    left, catch_up = lag.retention_s or 0.0, lag.catch_up_s
    return left < _DANGER_S or (left < _DAY_S if catch_up is None else left < _STEPS * catch_up)


def _kafka(evidence: Evidence, start: str) -> Diagnosis | None:
    health = evidence.health
    if health and health.offline:
        words = f"partitions without a leader: {_numbers(health.offline)}"
        return Diagnosis("kafka", (words,), 1.0, "bring their brokers back; the stream waits for them")
    asking = _share_of_phase(evidence, "source")
    slow_to_ask = asking > _SOURCE_SHARE and _phase_s(evidence, "source") > _SOURCE_S
    words_of_asking = f"asking Kafka for offsets takes {asking:.0%} of a micro-batch"
    if health and health.under_replicated:
        words = f"partitions with replicas that are not in sync: {_numbers(health.under_replicated)}"
        told = (words, words_of_asking) if slow_to_ask else (words,)
        return Diagnosis(
            "kafka", told, 0.9 if slow_to_ask else 0.6, "see the logs and disks of these brokers"
        )
    if slow_to_ask:
        return Diagnosis("kafka", (words_of_asking,), 0.7, "see latency and request queues of the brokers")
    return None


def _executors(evidence: Evidence, start: str) -> Diagnosis | None:
    wanted, stream = evidence.wanted_executors, evidence.stream
    if not wanted or not stream or stream.executors >= wanted:
        return None
    words = f"{stream.executors} of {wanted} executors are there"
    return Diagnosis("executors", (words,), 0.9, "see the cluster manager: quota, nodes, failing executors")


def _gc(evidence: Evidence, start: str) -> Diagnosis | None:
    tasks = _tasks(evidence)
    run, gc = sum(each.run_s for each in tasks), sum(each.gc_s for each in tasks)
    if not run or gc / run <= _GC_SHARE:
        return None
    words = f"{gc / run:.0%} of the time of tasks is garbage collection"
    return Diagnosis("gc", (words,), 0.9, "give executors more memory, or fewer cores each")


def _spill(evidence: Evidence, start: str) -> Diagnosis | None:
    tasks = _tasks(evidence)
    spilling = [each for each in tasks if each.spilled_bytes]
    if not spilling or len(spilling) * 2 < len(tasks):
        return None
    most = max(each.spilled_bytes for each in spilling)
    words = f"tasks spill to disk, up to {most / (1 << 20):,.0f} MiB in a micro-batch"
    return Diagnosis("spill", (words,), 0.8, "give executors more memory, or limit what a micro-batch reads")


def _skew(evidence: Evidence, start: str) -> Diagnosis | None:
    lags, total = evidence.partitions, evidence.records
    if len(lags) > 1 and total:
        hot = max(lags, key=lambda each: each.records)
        share, fair = hot.records / total, 1 / len(lags)
        if share >= max(_HOT_SHARE, min(_FAIR_TIMES * fair, 0.9)):
            words = f"partition {hot.partition} has {share:.0%} of the lag; its fair share is {fair:.0%}"
            return Diagnosis("skew", (words,), 0.8, "see which keys producers send there; add partitions")
    long = [each for each in evidence.busy[-_RECENT:] if each.tasks and _is_uneven(each, each.tasks)]
    if not long or len(long) * 2 < len(_tasks(evidence)):
        return None
    last = long[-1]
    words = f"one task runs for {last.tasks.longest_s if last.tasks else 0:.1f} s of {last.seconds:.1f} s"
    return Diagnosis("skew", (words,), 0.7, "see which keys are so frequent; raise speed.state_partitions")


def _is_uneven(batch: MicroBatch, tasks: TaskFigures) -> bool:
    usual = tasks.run_s / max(tasks.tasks, 1)
    return tasks.longest_s > _LONG_TASK_TIMES * usual and tasks.longest_s > _LONG_TASK_SHARE * batch.seconds


def _state(evidence: Evidence, start: str) -> Diagnosis | None:
    recent = [batch for batch in evidence.busy[-_RECENT:] if batch.state and batch.tasks]
    run = sum(batch.tasks.run_s for batch in recent if batch.tasks)
    state = sum(batch.state.seconds for batch in recent if batch.state)
    if not run or state / run <= _STATE_SHARE:
        return None
    newest = recent[-1].state
    words = (
        f"{state / run:.0%} of the time of tasks is spent on the state",
        f"it takes {(newest.memory_bytes if newest else 0) / (1 << 20):,.0f} MiB of memory",
    )
    advice = "shorten speed.watermark_delay, or give executors faster local disks and more memory"
    return Diagnosis("state", words, 0.8, advice)


def _small_files(evidence: Evidence, start: str) -> Diagnosis | None:
    newest = next((batch for batch in reversed(evidence.busy) if batch.files_left is not None), None)
    if newest is None or not newest.files_left or newest.files_left < _MANY_FILES:
        return None
    size = (newest.bytes_left or 0) / newest.files_left
    if size >= _SMALL_BYTES:
        return None
    words = f"{newest.files_left:,} files are to be read, of {size / 1024:,.0f} KiB on average"
    advice = "raise ingest.trigger_interval; compact bronze: run maintain"
    return Diagnosis("small_files", (words,), 0.8, advice)


def _burst(evidence: Evidence, start: str) -> Diagnosis | None:
    now, usual, capacity = evidence.rate_in, evidence.usual_rate_in, evidence.capacity
    if not now or not usual or now < _BURST_TIMES * usual or (capacity and capacity < usual):
        return None
    words = f"{now:,.0f} records/s come in, {usual:,.0f} in the last hour"
    can = (f"the stage processes {capacity:,.0f} each second",) if capacity else ()
    return Diagnosis("burst", (words, *can), 0.8, "it ends with the burst; add cores if it lasts")


def _slow(evidence: Evidence, start: str) -> Diagnosis | None:
    capacity, rate_in = evidence.capacity, evidence.rate_in
    if not capacity or not rate_in or capacity > _ROOM * rate_in:
        return None
    phase = max(("source", "planning", "write", "log"), key=lambda name: _phase_s(evidence, name))
    words = (
        f"{rate_in:,.0f} records/s come in, and the stage processes {capacity:,.0f} while it works",
        f"most of a micro-batch, {_share_of_phase(evidence, phase):.0%}, is the phase {phase}",
    )
    advice = {
        "write": "add cores, up to one for each partition",
        "source": "see latency of the brokers, or of the object store",
        "planning": "raise the trigger interval, so that micro-batches are fewer and larger",
        "log": "see latency of the file system of checkpoints; raise the trigger interval",
    }[phase]
    return Diagnosis("slow", words, 0.8, advice)


def _catching_up(evidence: Evidence, start: str) -> Diagnosis | None:
    left = evidence.catch_up_s
    if left is None:
        return None
    words = f"{evidence.records:,} records are left, and fewer come than are processed"
    return Diagnosis("catching_up", (words, f"all is processed in {about(left)}"), 0.8)


_RULES: Final[tuple[Callable[[Evidence, str], Diagnosis | None], ...]] = (
    _lost,
    _never_ran,
    _ended,
    _died,
    _stuck,
    _not_behind,
    _retention,
    _kafka,
    _executors,
    _gc,
    _spill,
    _skew,
    _state,
    _small_files,
    _burst,
    _slow,
    _catching_up,
)


def _tasks(evidence: Evidence) -> list[TaskFigures]:
    return [batch.tasks for batch in evidence.busy[-_RECENT:] if batch.tasks]


def _phase_s(evidence: Evidence, phase: str) -> float:
    recent = evidence.busy[-_RECENT:]
    return median(batch.phases.get(phase, 0.0) for batch in recent) if recent else 0.0


def _share_of_phase(evidence: Evidence, phase: str) -> float:
    recent = [batch for batch in evidence.busy[-_RECENT:] if batch.seconds]
    return mean(batch.phases.get(phase, 0.0) / batch.seconds for batch in recent) if recent else 0.0


def _numbers(partitions: tuple[int, ...]) -> str:
    return ", ".join(map(str, partitions[:10])) + (" and more" if len(partitions) > 10 else "")
