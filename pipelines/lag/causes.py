"""Why a stage is behind: one cause, with the figures that point to it and what helps.

The rules are tried in the order of `_RULES`, reasons before what they lead to; the first that matches names
the cause. A stage that keeps up does not come near their limits.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from statistics import mean, median
from typing import Final

from pipelines.kafka.fetches import SECONDS, THROTTLED_S, FetchFigures
from pipelines.lag.diagnosis import Advice, Diagnosis, Symptom, as_symptom
from pipelines.lag.phases import Phase, longest_phase
from pipelines.lag.skewed_keys import against_skew, key_symptoms
from pipelines.lag.stage_facts import PartitionLag, StageFacts, TopicHealth
from pipelines.spark.stream_progress import WRITTEN_S, BatchFigures, TaskFigures

# What came since the last two steps of a stage is not behind.
_STEPS: Final = 2
_SLACK_S: Final = 10.0
# Of the time for which Kafka keeps a record: what must be left of it; and after how much of it a scheduler's
# next run is overdue, however long the runs before were apart.
_LEFT_SHARE: Final = 0.25
_OVERDUE_SHARE: Final = 0.6
_GC_SHARE: Final = 0.2
_SOURCE_SHARE: Final = 0.5
_SOURCE_S: Final = 1.0
# A fetch of the first unread records, also from a disk, or from another continent.
_FETCH_S: Final = 0.5
_STATE_SHARE: Final = 0.5
_SPILLED_BYTES: Final = 64 << 20
_HOT_SHARE: Final = 0.5
_LONG_TASK_TIMES: Final = 4
_LONG_TASK_SHARE: Final = 0.6
_MANY_FILES: Final = 100
_SMALL_BYTES: Final = 1 << 20
_BURST_TIMES: Final = 3
_ROOM: Final = 1.1
_MIB: Final = 1 << 20
# What helps against the longest phase of a micro-batch.
_FASTER: Final[dict[Phase, Advice]] = {
    "source": "check_source",
    "planning": "longer_trigger",
    "decode": "more_cores",
    "state": "less_state",
    "write": "more_cores",
    "quarantine": "fewer_broken",
    "commit": "check_store",
    "log": "check_checkpoints",
}
_RECENT_BATCHES: Final = 10


def find_cause(facts: StageFacts) -> Diagnosis:
    """Name the cause of a stage's lag, by what is known of the stage."""
    diagnosis = next((each for rule in _RULES if (each := rule(facts))), None)
    if diagnosis is None:
        diagnosis = Diagnosis("unknown", (_records_left(facts),), 0.0, "read_log")
    if diagnosis.cause == "retention":
        return diagnosis
    return replace(diagnosis, symptoms=(*diagnosis.symptoms, *_endangered(facts)))


def _records_left(facts: StageFacts) -> Symptom:
    return as_symptom("records_left", records=facts.records, behind_s=facts.behind_s)


def _unreachable(facts: StageFacts) -> Diagnosis | None:
    if facts.unreachable is None:
        return None
    return Diagnosis("kafka", (as_symptom("no_answer", failure=facts.unreachable),), 1.0, "restore_brokers")


def _other_topic(facts: StageFacts) -> Diagnosis | None:
    if facts.health and facts.health.is_other:
        return Diagnosis("other_topic", (as_symptom("another_topic"),), 1.0, "topic_recreated")
    ahead = tuple(
        as_symptom("offsets_ahead", partition=each.partition, offsets=each.ahead)
        for each in facts.partitions
        if each.ahead
    )
    if not ahead:
        return None
    return Diagnosis("other_topic", ahead, 1.0, "topic_shorter")


def _lost(facts: StageFacts) -> Diagnosis | None:
    lost = tuple(
        as_symptom("offsets_deleted", partition=each.partition, offsets=each.lost)
        for each in facts.partitions
        if each.lost
    )
    return Diagnosis("retention", lost, 1.0, "records_lost") if lost else None


def _lacking(facts: StageFacts) -> Diagnosis | None:
    if facts.missing_table is None:
        return None
    return Diagnosis("stopped", (as_symptom("no_table", table=facts.missing_table),), 1.0)


def _refused(facts: StageFacts) -> Diagnosis | None:
    if facts.refusal is None:
        return None
    ago_s = (facts.at - facts.refusal.at).total_seconds()
    refused = as_symptom("start_refused", ago_s=ago_s, failure=facts.refusal.failure)
    return Diagnosis("stopped", (refused,), 1.0, "fix_and_start")


def _failed(facts: StageFacts) -> Diagnosis | None:
    stream = facts.stream
    if stream is None or stream.failure is None:
        return None
    ended = _run_ended(facts, stream.ended_at or stream.written_at)
    symptoms = (ended, as_symptom("run_failed", failure=stream.failure))
    return Diagnosis("stopped", symptoms, 1.0, "fix_and_start")


def _died(facts: StageFacts) -> Diagnosis | None:
    stream = facts.stream
    silent = stream.unwritten_s(facts.at) if stream else None
    if stream is None or silent is None or facts.is_alive:
        return None
    silence = as_symptom("process_silent", process=stream.pid, host=stream.host, ago_s=silent)
    gone = (as_symptom("process_gone"),) if facts.is_alive is False else ()
    return Diagnosis("stopped", (silence, *gone), 1.0 if gone else 0.8, "start_if_gone")


def _stuck(facts: StageFacts) -> Diagnosis | None:
    silent = facts.stream.stuck_s(facts.at) if facts.stream else None
    if silent is None:
        return None
    return Diagnosis("stuck", (as_symptom("nothing_ended", for_s=silent),), 0.9, "restart_if_stuck")


def _not_behind(facts: StageFacts) -> Diagnosis | None:
    behind, tolerance = facts.behind_s, _tolerance(facts)
    if behind is None or behind > tolerance or any(each.hidden for each in facts.partitions):
        return None
    if facts.health and facts.health.offline:
        return None
    if not facts.records:
        if facts.rate_in == 0:
            return Diagnosis("source_quiet", (as_symptom("nothing_comes"),), 1.0)
        return Diagnosis("none", (as_symptom("all_processed"),), 1.0)
    return Diagnosis("none", (as_symptom("keeps_up", behind_s=behind, usual_s=tolerance),), 1.0)


def _tolerance(facts: StageFacts) -> float:
    """Return how old the oldest unprocessed record of a stage that keeps up may be, in seconds."""
    # A micro-batch that takes longer than the trigger interval is itself a reason to be behind.
    tolerance = _STEPS * (facts.step_s + min(facts.usual_s, facts.step_s)) + _SLACK_S
    keeps = facts.health.retention_s if facts.health else None
    if not facts.is_once or keeps is None:
        return tolerance
    next_run = facts.step_s + _SLACK_S
    # Runs may be as far apart as they are, if Kafka waits for the next one.
    is_in_time = next_run <= (1 - _LEFT_SHARE) * keeps
    return min(tolerance, max(next_run if is_in_time else 0.0, _OVERDUE_SHARE * keeps))


def _ended(facts: StageFacts) -> Diagnosis | None:
    stream = facts.stream
    if stream is None or stream.ended_at is None:
        return None
    return Diagnosis("stopped", (_run_ended(facts, stream.ended_at),), 1.0, "start")


def _run_ended(facts: StageFacts, ended_at: datetime) -> Symptom:
    return as_symptom("run_ended", ago_s=(facts.at - ended_at).total_seconds())


def _never_ran(facts: StageFacts) -> Diagnosis | None:
    if facts.stream is not None:
        return None
    if facts.planned_at is None:
        return Diagnosis("stopped", (as_symptom("never_ran"),), 1.0, "start")
    since = (facts.at - facts.planned_at).total_seconds()
    if since <= WRITTEN_S or not facts.records:
        return None
    symptoms = (as_symptom("no_figures"), as_symptom("micro_batch_planned", ago_s=since))
    return Diagnosis("stopped", symptoms, 0.5, "start_if_not_running")


def _open_transaction(facts: StageFacts) -> Diagnosis | None:
    hidden = tuple(
        as_symptom("offsets_hidden", partition=each.partition, offsets=each.hidden)
        for each in facts.partitions
        if each.hidden
    )
    return Diagnosis("open_transaction", hidden, 0.9, "find_producer") if hidden else None


def _retention(facts: StageFacts) -> Diagnosis | None:
    danger = _endangered(facts)
    if not danger:
        return None
    ended_at = facts.stream.ended_at if facts.stream else None
    ended = (_run_ended(facts, ended_at),) if ended_at else ()
    return Diagnosis("retention", (*danger, *ended), 0.9, "raise_retention")


def _endangered(facts: StageFacts) -> tuple[Symptom, ...]:
    """Return that Kafka is about to delete unread records; empty if it is not."""
    keeps = facts.health.retention_s if facts.health else None
    endangered = [each for each in facts.partitions if keeps is not None and _is_endangered(each, keeps)]
    if not endangered:
        return ()
    worst = min(endangered, key=lambda each: each.retention_s or 0.0)
    catch_up = worst.catch_up_s
    return (
        as_symptom("soon_deleted", partition=worst.partition, deleted_s=worst.retention_s or 0.0),
        as_symptom("read_in", read_s=catch_up) if catch_up else as_symptom("no_catch_up"),
    )


def _is_endangered(lag: PartitionLag, keeps_s: float) -> bool:
    left, catch_up = lag.retention_s, lag.catch_up_s
    if left is None or not lag.records or left >= _LEFT_SHARE * keeps_s:
        return False
    return catch_up is None or _STEPS * catch_up > left


def _offline(facts: StageFacts) -> Diagnosis | None:
    if facts.health is None or not facts.health.offline:
        return None
    offline = as_symptom("no_leader", partitions=facts.health.offline)
    return Diagnosis("kafka", (offline,), 1.0, "restore_brokers")


def _throttled(facts: StageFacts) -> Diagnosis | None:
    if facts.fetches is None or facts.fetches.throttled_s < THROTTLED_S:
        return None
    throttled = as_symptom("throttled", waited_s=facts.fetches.throttled_s)
    return Diagnosis("kafka", (throttled,), 0.9, "check_quotas")


def _slow_fetches(facts: StageFacts) -> Diagnosis | None:
    if facts.fetches is None:
        return None
    slow = tuple(_of_brokers(facts.fetches))
    return _slow_kafka(facts, slow, 0.8) if slow else None


def _of_brokers(fetches: FetchFigures) -> Iterator[Symptom]:
    """Yield which brokers answer fetches slowly, or not at all."""
    if fetches.silent:
        yield as_symptom("no_fetch", brokers=fetches.silent, waited_s=SECONDS)
    for broker, took in sorted(fetches.latency_s.items()):
        if took >= _FETCH_S:
            yield as_symptom("slow_fetch", broker=broker, took_s=took)


def _slow_source(facts: StageFacts) -> Diagnosis | None:
    asking = _share_of_phase(facts, "source")
    if facts.health is None or asking <= _SOURCE_SHARE or _phase_s(facts, "source") <= _SOURCE_S:
        return None
    quick = _quick_fetches(facts)
    return _slow_kafka(facts, (as_symptom("slow_source", share=asking), *quick), 0.5 if quick else 0.7)


def _slow_kafka(facts: StageFacts, slow: tuple[Symptom, ...], sure: float) -> Diagnosis:
    """Return that brokers are slow, with what their partitions tell of them."""
    health = facts.health or TopicHealth()
    moved = (as_symptom("moved_leaders", partitions=health.moved),) if health.moved else ()
    if health.under_replicated:
        under = as_symptom("not_in_sync", partitions=health.under_replicated)
        return Diagnosis("kafka", (*slow, under, *moved), 0.9, "check_unsynced_brokers")
    return Diagnosis("kafka", (*slow, *moved), sure, "elect_leaders" if moved else "check_brokers")


def _quick_fetches(facts: StageFacts) -> tuple[Symptom, ...]:
    """Return that brokers answer fetches quickly; empty if they do not, or if it is unknown."""
    latency = facts.fetches.latency_s.values() if facts.fetches else ()
    return (as_symptom("quick_fetches", ms=max(latency) * 1000),) if latency else ()


def _executors(facts: StageFacts) -> Diagnosis | None:
    wanted, stream = facts.wanted_executors, facts.stream
    if not wanted or not stream or stream.executors >= wanted:
        return None
    symptom = as_symptom("few_executors", executors=stream.executors, wanted=wanted)
    return Diagnosis("executors", (symptom,), 0.9, "check_cluster_manager")


def _gc(facts: StageFacts) -> Diagnosis | None:
    tasks = _tasks(facts)
    run, gc = sum(each.run_s for each in tasks), sum(each.gc_s for each in tasks)
    if not run or gc / run <= _GC_SHARE:
        return None
    return Diagnosis("gc", (as_symptom("garbage_collection", share=gc / run),), 0.9, "more_memory")


def _spill(facts: StageFacts) -> Diagnosis | None:
    tasks = _tasks(facts)
    spilling = [each for each in tasks if each.spilled_bytes > _SPILLED_BYTES]
    if not spilling or len(spilling) * 2 < len(tasks):
        return None
    most = max(each.spilled_bytes for each in spilling)
    return Diagnosis("spill", (as_symptom("spilled", mib=most / _MIB),), 0.8, "more_memory_or_less_data")


def _hot_partition(facts: StageFacts) -> Diagnosis | None:
    lags, total = facts.partitions, facts.records
    # Of the others, only partitions that lack something are known.
    if facts.stage != "ingest" or len(lags) < 2 or not total:
        return None
    hot = max(lags, key=lambda each: each.records)
    share, fair = hot.records / total, 1 / len(lags)
    # The backlog of one whose leader was away is as uneven, and shrinks.
    if share < max(_HOT_SHARE, min(2 * fair, 0.9)) or hot.catch_up_s is not None:
        return None
    symptom = as_symptom("hot_partition", partition=hot.partition, share=share, fair=fair)
    return Diagnosis("skew", (symptom, *key_symptoms(facts)), 0.8, against_skew(facts))


def _hot_task(facts: StageFacts) -> Diagnosis | None:
    long = [batch for batch in _recent(facts) if batch.tasks and _is_uneven(batch, batch.tasks)]
    if not long or len(long) * 2 < len(_tasks(facts)):
        return None
    last = long[-1]
    longest = last.tasks.longest_s if last.tasks else 0.0
    symptom = as_symptom("long_task", longest=longest, micro_batch=last.seconds)
    return Diagnosis("skew", (symptom, *key_symptoms(facts)), 0.7, against_skew(facts))


def _is_uneven(batch: BatchFigures, tasks: TaskFigures) -> bool:
    usual = tasks.run_s / max(tasks.tasks, 1)
    return tasks.longest_s > _LONG_TASK_TIMES * usual and tasks.longest_s > _LONG_TASK_SHARE * batch.seconds


def _state(facts: StageFacts) -> Diagnosis | None:
    recent = [batch for batch in _recent(facts) if batch.state and batch.tasks]
    run = sum(batch.tasks.run_s for batch in recent if batch.tasks)
    state = sum(batch.state.seconds for batch in recent if batch.state)
    if not run or state / run <= _STATE_SHARE:
        return None
    newest = recent[-1].state
    memory = newest.memory_bytes if newest else 0
    symptoms = (as_symptom("state_time", share=state / run), as_symptom("state_memory", mib=memory / _MIB))
    return Diagnosis("state", symptoms, 0.8, "less_state")


def _small_files(facts: StageFacts) -> Diagnosis | None:
    newest = next((batch for batch in reversed(facts.busy) if batch.files_left is not None), None)
    if newest is None or (newest.files_left or 0) < _MANY_FILES or facts.catch_up_s is not None:
        return None
    files = newest.files_left or 0
    size = (newest.bytes_left or 0) / files
    if size >= _SMALL_BYTES:
        return None
    advice: Advice = "fewer_files_of_ingest" if facts.stage == "speed" else "fewer_files_of_speed"
    return Diagnosis("small_files", (as_symptom("many_files", files=files, kib=size / 1024),), 0.7, advice)


def _burst(facts: StageFacts) -> Diagnosis | None:
    now, usual, capacity = facts.rate_in, facts.usual_rate_in, facts.capacity
    if not now or usual is None or now < _BURST_TIMES * usual or (capacity and capacity < usual):
        return None
    can = (as_symptom("capacity", rate=capacity),) if capacity else ()
    # After an hour without a record nobody knows what is usual.
    sure = 0.8 if usual else 0.6
    return Diagnosis("burst", (as_symptom("burst_rate", rate=now, usual=usual), *can), sure, "wait_for_end")


def _slow(facts: StageFacts) -> Diagnosis | None:
    capacity, rate_in = facts.capacity, facts.rate_in
    if not capacity or not rate_in or capacity > _ROOM * rate_in:
        return None
    longest = longest_phase(_recent(facts), facts.stage)
    symptoms = (
        as_symptom("rate_at_capacity", rate=rate_in, capacity=capacity),
        as_symptom("longest_phase", share=longest.share, phase=longest.phase),
        *(_quick_fetches(facts) if longest.phase == "write" else ()),
    )
    return Diagnosis("slow", symptoms, 0.8, _FASTER[longest.phase])


def _catching_up(facts: StageFacts) -> Diagnosis | None:
    left = facts.catch_up_s
    if not left:
        return None
    symptoms = (
        as_symptom("catching_up", records=facts.records),
        as_symptom("processed_in", processed_s=left),
    )
    return Diagnosis("catching_up", symptoms, 0.8)


_RULES: Final[tuple[Callable[[StageFacts], Diagnosis | None], ...]] = (
    _unreachable,
    _other_topic,
    _lost,
    _lacking,
    _refused,
    _failed,
    _died,
    _stuck,
    _never_ran,
    # What is usual between two runs of a scheduler may be more than Kafka waits for.
    _retention,
    _not_behind,
    _ended,
    _offline,
    _throttled,
    _slow_fetches,
    _slow_source,
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


def _recent(facts: StageFacts) -> tuple[BatchFigures, ...]:
    return facts.busy[-_RECENT_BATCHES:]


def _tasks(facts: StageFacts) -> list[TaskFigures]:
    return [batch.tasks for batch in _recent(facts) if batch.tasks]


def _phase_s(facts: StageFacts, phase: str) -> float:
    recent = _recent(facts)
    return median(batch.phases.get(phase, 0.0) for batch in recent) if recent else 0.0


def _share_of_phase(facts: StageFacts, phase: str) -> float:
    recent = [batch for batch in _recent(facts) if batch.seconds]
    return mean(batch.phases.get(phase, 0.0) / batch.seconds for batch in recent) if recent else 0.0
