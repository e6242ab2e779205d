"""Why a stage is behind: one cause, with the figures that point to it and what helps.

The rules are tried in the order of `_RULES`, reasons before what they lead to; the first that matches names
the cause. A stage that keeps up does not come near their limits.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import mean, median
from typing import Final, Literal

from pipelines.durations import about
from pipelines.lag.evidence import Evidence, PartitionLag
from pipelines.spark.stream_progress import BatchFigures, TaskFigures

Cause = Literal[
    "none",
    "source_quiet",
    "other_topic",
    "retention",
    "stopped",
    "stuck",
    "kafka",
    "open_transaction",
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

# What came since the last two steps of a stage is not behind.
_STEPS: Final = 2
_SLACK_S: Final = 10.0
# A process that lives writes its file twice a minute.
_WRITTEN_S: Final = 120.0
# Of the time for which Kafka keeps a record.
_LEFT_SHARE: Final = 0.25
_GC_SHARE: Final = 0.2
_SOURCE_SHARE: Final = 0.5
_SOURCE_S: Final = 1.0
_STATE_SHARE: Final = 0.5
_SPILLED_BYTES: Final = 64 << 20
_HOT_SHARE: Final = 0.5
_LONG_TASK_TIMES: Final = 4
_LONG_TASK_SHARE: Final = 0.6
_MANY_FILES: Final = 100
_SMALL_BYTES: Final = 1 << 20
_BURST_TIMES: Final = 3
_ROOM: Final = 1.1
_RECENT_BATCHES: Final = 10


@dataclass(frozen=True)
class Diagnosis:
    """Why a stage is behind.

    Attributes:
        cause: The cause; `none` if it is not behind.
        evidence: The figures that point to it.
        confidence: From 0 to 1, an estimate: how rarely the same figures have another cause.
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
    if evidence.is_once:
        start = f"{start} --once"
    found = next((found for rule in _RULES if (found := rule(evidence, start))), None)
    if found is None:
        found = Diagnosis("unknown", _how_far(evidence), 0.0, "look at the log of the stream, and ask again")
    danger = _retention(evidence, start)
    if danger and found.cause != "retention":
        return replace(found, evidence=(*found.evidence, *danger.evidence))
    return found


def _how_far(evidence: Evidence) -> tuple[str, ...]:
    age = "unknown" if evidence.behind_s is None else about(evidence.behind_s)
    return (f"{evidence.records:,} records are not processed; the age of the oldest: {age}",)


def _other_topic(evidence: Evidence, start: str) -> Diagnosis | None:
    if evidence.health and evidence.health.is_other:
        words = ("the topic is not the one that bronze was filled from",)
        return Diagnosis("other_topic", words, 1.0, "see docs/runbook.md, 'The topic was recreated'")
    ahead = tuple(
        f"partition {each.partition}: {each.ahead:,} offsets were read that Kafka does not have"
        for each in evidence.partitions
        if each.ahead
    )
    if not ahead:
        return None
    return Diagnosis("other_topic", ahead, 1.0, "see docs/runbook.md, 'Kafka has lost what bronze has'")


def _lost(evidence: Evidence, start: str) -> Diagnosis | None:
    lost = [each for each in evidence.partitions if each.lost]
    if not lost:
        return None
    return Diagnosis(
        "retention",
        tuple(f"partition {each.partition}: Kafka has deleted {each.lost:,} unread offsets" for each in lost),
        1.0,
        "what was a record among them is lost; see docs/runbook.md, 'Is everything in bronze?'",
    )


def _lacking(evidence: Evidence, start: str) -> Diagnosis | None:
    if evidence.lacks is None:
        return None
    return Diagnosis("stopped", (f"there is no {evidence.lacks} yet: no stream has made it",), 1.0)


def _refused(evidence: Evidence, start: str) -> Diagnosis | None:
    if evidence.refusal is None:
        return None
    ago = about((evidence.at - evidence.refusal.at).total_seconds())
    words = (f"the last start was refused {ago} ago: {evidence.refusal.failure}",)
    return Diagnosis("stopped", words, 1.0, f"fix that, then start it: {start}")


def _failed(evidence: Evidence, start: str) -> Diagnosis | None:
    stream = evidence.stream
    if stream is None or stream.failure is None:
        return None
    ago = about((evidence.at - (stream.ended_at or stream.written_at)).total_seconds())
    words = (f"the last run ended {ago} ago", f"it failed: {stream.failure}")
    return Diagnosis("stopped", words, 1.0, f"fix that, then start it: {start}")


def _died(evidence: Evidence, start: str) -> Diagnosis | None:
    stream = evidence.stream
    if stream is None or stream.ended_at is not None:
        return None
    silent = (evidence.at - stream.written_at).total_seconds()
    if silent <= _WRITTEN_S or evidence.is_alive:
        return None
    words = (f"process {stream.pid} on {stream.host} wrote its last figures {about(silent)} ago",)
    gone = ("there is no such process any more",) if evidence.is_alive is False else ()
    return Diagnosis("stopped", (*words, *gone), 1.0 if gone else 0.8, f"if it is gone, start it: {start}")


def _stuck(evidence: Evidence, start: str) -> Diagnosis | None:
    stream = evidence.stream
    silent = stream.silent_s(evidence.at) if stream and stream.ended_at is None else None
    if silent is None:
        return None
    words = (f"no task and no micro-batch has ended for {about(silent)}",)
    return Diagnosis(
        "stuck",
        words,
        0.9,
        f"look at the log of the stream; if nothing moves, stop it and start it again: {start}",
    )


def _not_behind(evidence: Evidence, start: str) -> Diagnosis | None:
    behind = evidence.behind_s
    # A micro-batch that takes longer than the trigger interval is itself a reason to be behind.
    tolerance = _STEPS * (evidence.step_s + min(evidence.usual_s, evidence.step_s)) + _SLACK_S
    if behind is None or behind > tolerance or any(each.hidden for each in evidence.partitions):
        return None
    if evidence.health and evidence.health.offline:
        return None
    if not evidence.records:
        if evidence.rate_in == 0:
            return Diagnosis("source_quiet", ("nothing comes in, and all is processed",), 1.0)
        return Diagnosis("none", ("all is processed",), 1.0)
    words = f"the oldest unprocessed record is {about(behind)} old, up to {about(tolerance)} is usual"
    return Diagnosis("none", (words,), 1.0)


def _ended(evidence: Evidence, start: str) -> Diagnosis | None:
    stream = evidence.stream
    if stream is None or stream.ended_at is None:
        return None
    ago = about((evidence.at - stream.ended_at).total_seconds())
    return Diagnosis("stopped", (f"the last run ended {ago} ago",), 1.0, f"start it: {start}")


def _never_ran(evidence: Evidence, start: str) -> Diagnosis | None:
    if evidence.stream is not None:
        return None
    if evidence.planned_at is None:
        return Diagnosis("stopped", ("it has never run",), 1.0, f"start it: {start}")
    since = (evidence.at - evidence.planned_at).total_seconds()
    if since <= _WRITTEN_S or not evidence.records:
        return None
    words = ("no run has left figures", f"its last micro-batch was planned {about(since)} ago")
    return Diagnosis("stopped", words, 0.5, f"see whether it runs; if it does not, start it: {start}")


def _open_transaction(evidence: Evidence, start: str) -> Diagnosis | None:
    hidden = [each for each in evidence.partitions if each.hidden]
    if not hidden:
        return None
    return Diagnosis(
        "open_transaction",
        tuple(
            f"partition {each.partition}: a transaction that is open for more than five minutes hides"
            f" {each.hidden:,} offsets"
            for each in hidden
        ),
        0.9,
        "find its producer: kafka-transactions.sh find-hanging",
    )


def _retention(evidence: Evidence, start: str) -> Diagnosis | None:
    keeps = evidence.health.retention_s if evidence.health else None
    endangered = [each for each in evidence.partitions if keeps is not None and _is_endangered(each, keeps)]
    if not endangered:
        return None
    worst = min(endangered, key=lambda each: each.retention_s or 0.0)
    catch_up = worst.catch_up_s
    words = (
        f"Kafka deletes unread records of partition {worst.partition} in {about(worst.retention_s or 0.0)}",
        f"at present rates all is read in {about(catch_up)}" if catch_up else "it does not catch up now",
    )
    advice = "raise retention.ms of the topic now, then add cores or start the stream"
    return Diagnosis("retention", words, 0.9, f"{advice}: {start}")


def _is_endangered(lag: PartitionLag, keeps_s: float) -> bool:
    left, catch_up = lag.retention_s, lag.catch_up_s
    if left is None or not lag.records or left >= _LEFT_SHARE * keeps_s:
        return False
    return catch_up is None or _STEPS * catch_up > left


def _kafka(evidence: Evidence, start: str) -> Diagnosis | None:
    health = evidence.health
    if health is None:
        return None
    if health.offline:
        words = f"partitions without a leader: {_numbers(health.offline)}"
        return Diagnosis("kafka", (words,), 1.0, "bring their brokers back; the stream waits for them")
    asking = _share_of_phase(evidence, "source")
    if asking <= _SOURCE_SHARE or _phase_s(evidence, "source") <= _SOURCE_S:
        return None
    words = f"asking Kafka for offsets takes {asking:.0%} of a micro-batch"
    if not health.under_replicated:
        return Diagnosis("kafka", (words,), 0.7, "see latency and request queues of the brokers")
    under = f"partitions with replicas that are not in sync: {_numbers(health.under_replicated)}"
    return Diagnosis("kafka", (words, under), 0.9, "see the logs and disks of these brokers")


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
    spilling = [each for each in tasks if each.spilled_bytes > _SPILLED_BYTES]
    if not spilling or len(spilling) * 2 < len(tasks):
        return None
    most = max(each.spilled_bytes for each in spilling)
    words = f"tasks spill to disk, up to {most / (1 << 20):,.0f} MiB in a micro-batch"
    return Diagnosis("spill", (words,), 0.8, "give executors more memory, or limit what a micro-batch reads")


def _hot_partition(evidence: Evidence, start: str) -> Diagnosis | None:
    lags, total = evidence.partitions, evidence.records
    # Of the others, only partitions that lack something are known.
    if evidence.stage != "ingest" or len(lags) < 2 or not total:
        return None
    hot = max(lags, key=lambda each: each.records)
    share, fair = hot.records / total, 1 / len(lags)
    if share < max(_HOT_SHARE, min(2 * fair, 0.9)):
        return None
    words = f"partition {hot.partition} has {share:.0%} of the lag; its fair share is {fair:.0%}"
    return Diagnosis("skew", (words,), 0.8, "see which keys producers send there; add partitions")


def _hot_task(evidence: Evidence, start: str) -> Diagnosis | None:
    long = [batch for batch in _recent(evidence) if batch.tasks and _is_uneven(batch, batch.tasks)]
    if not long or len(long) * 2 < len(_tasks(evidence)):
        return None
    last = long[-1]
    words = f"one task runs for {last.tasks.longest_s if last.tasks else 0:.1f} s of {last.seconds:.1f} s"
    return Diagnosis("skew", (words,), 0.7, "see which keys are so frequent; raise speed.state_partitions")


def _is_uneven(batch: BatchFigures, tasks: TaskFigures) -> bool:
    usual = tasks.run_s / max(tasks.tasks, 1)
    return tasks.longest_s > _LONG_TASK_TIMES * usual and tasks.longest_s > _LONG_TASK_SHARE * batch.seconds


def _state(evidence: Evidence, start: str) -> Diagnosis | None:
    recent = [batch for batch in _recent(evidence) if batch.state and batch.tasks]
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
    if newest is None or (newest.files_left or 0) < _MANY_FILES or evidence.catch_up_s is not None:
        return None
    files = newest.files_left or 0
    size = (newest.bytes_left or 0) / files
    if size >= _SMALL_BYTES:
        return None
    words = f"{files:,} files are to be read, of {size / 1024:,.0f} KiB on average"
    longer = "ingest.trigger_interval" if evidence.stage == "speed" else "speed.trigger_interval"
    return Diagnosis("small_files", (words,), 0.7, f"raise {longer}; compact the table: run maintain")


def _burst(evidence: Evidence, start: str) -> Diagnosis | None:
    now, usual, capacity = evidence.rate_in, evidence.usual_rate_in, evidence.capacity
    if not now or not usual or now < _BURST_TIMES * usual or (capacity and capacity < usual):
        return None
    words = f"{now:,.0f} records/s come in, {usual:,.0f} in the hour before"
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
    if not left:
        return None
    words = f"{evidence.records:,} records are left, and fewer come than are processed"
    return Diagnosis("catching_up", (words, f"all is processed in {about(left)}"), 0.8)


_RULES: Final[tuple[Callable[[Evidence, str], Diagnosis | None], ...]] = (
    _other_topic,
    _lost,
    _lacking,
    _refused,
    _failed,
    _died,
    _stuck,
    _never_ran,
    _not_behind,
    _ended,
    _retention,
    _kafka,
    _open_transaction,
    _executors,
    _gc,
    _spill,
    _hot_partition,
    _hot_task,
    _state,
    _small_files,
    _burst,
    _slow,
    _catching_up,
)


def _recent(evidence: Evidence) -> tuple[BatchFigures, ...]:
    return evidence.busy[-_RECENT_BATCHES:]


def _tasks(evidence: Evidence) -> list[TaskFigures]:
    return [batch.tasks for batch in _recent(evidence) if batch.tasks]


def _phase_s(evidence: Evidence, phase: str) -> float:
    recent = _recent(evidence)
    return median(batch.phases.get(phase, 0.0) for batch in recent) if recent else 0.0


def _share_of_phase(evidence: Evidence, phase: str) -> float:
    recent = [batch for batch in _recent(evidence) if batch.seconds]
    return mean(batch.phases.get(phase, 0.0) / batch.seconds for batch in recent) if recent else 0.0


def _numbers(partitions: tuple[int, ...]) -> str:
    return ", ".join(map(str, partitions[:10])) + (" and more" if len(partitions) > 10 else "")
