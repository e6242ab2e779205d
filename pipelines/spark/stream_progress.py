"""What the last micro-batches of a stream took: figures in a file beside its checkpoint.

The file is replaced as a whole, so it does not grow. Who reads it needs no access to the stream's process.
"""

import logging
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import psutil
from py4j.protocol import Py4JError
from pydantic import AwareDatetime, FiniteFloat, TypeAdapter, ValidationError
from pyspark.sql import SparkSession

from pipelines.config.streams import Query
from pipelines.spark.checkpoints import replace_file
from pipelines.spark.failures import cause
from pipelines.spark.files import HadoopFile

KEPT: Final = 60

WRITTEN_S: Final = 120.0
"""After how many seconds its file says that a run may be gone: one that lives writes it twice a minute."""

# Longer than one task takes, mostly.
_SILENT_S: Final = 300.0
# Spark's names of what a micro-batch spends its time on (`ProgressReporter`).
_PHASES: Final = {
    "source": ("latestOffset", "getBatch"),
    "planning": ("queryPlanning",),
    "write": ("addBatch",),
    "log": ("walCommit", "commitBatch", "commitOffsets"),
}

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StateFigures:
    """The state of a micro-batch's deduplication; times are sums over its tasks.

    Attributes:
        memory_bytes: What it takes in memory. Its keys are not counted: that would cost a look at each.
        update_s: Seconds of looking up and writing keys.
        evict_s: Seconds of removing expired keys.
        commit_s: Seconds of writing the changes to the checkpoint.
    """

    memory_bytes: int = 0
    update_s: FiniteFloat = 0.0
    evict_s: FiniteFloat = 0.0
    commit_s: FiniteFloat = 0.0

    @property
    def seconds(self) -> float:
        """All that the state took."""
        return self.update_s + self.evict_s + self.commit_s


@dataclass(frozen=True)
class TaskFigures:
    """What the tasks of a micro-batch took, summed over them.

    Attributes:
        tasks: How many have ended.
        failed: How many of these failed.
        run_s: Seconds that executors ran them.
        gc_s: Seconds of garbage collection meanwhile.
        spilled_bytes: Bytes that did not fit into memory.
        longest_s: The longest of them.
        handing_on_s: Of `run_s`, that of tasks that handed rows on to others, by a shuffle.
    """

    tasks: int = 0
    failed: int = 0
    run_s: FiniteFloat = 0.0
    gc_s: FiniteFloat = 0.0
    spilled_bytes: int = 0
    longest_s: FiniteFloat = 0.0
    handing_on_s: FiniteFloat = 0.0


@dataclass(frozen=True)
class BatchFigures:
    """A micro-batch that is done.

    Attributes:
        number: Its number.
        at: When it began.
        seconds: How long it took.
        records: What it read.
        phases: Seconds by phase: `source` (asking for offsets), `planning`, `write` (reading, computing and
            writing), `log` (of the checkpoint).
        state: Of a query with state.
        tasks: Of its tasks; None if they were not measured.
        duplicates: Copies that the deduplication left out.
        late: Records behind the watermark.
        watermark: The watermark; None if the query has none, or had no micro-batch before.
        files_left: Files of its source that it has left for the next ones; None if its source has none.
        bytes_left: What these have.
        parts: Seconds of `write` by what the job itself can tell apart, see `pipelines.spark.write_parts`.
    """

    number: int
    at: AwareDatetime
    seconds: FiniteFloat
    records: int
    phases: Mapping[str, FiniteFloat] = field(default_factory=dict)
    state: StateFigures | None = None
    tasks: TaskFigures | None = None
    duplicates: int = 0
    late: int = 0
    watermark: AwareDatetime | None = None
    files_left: int | None = None
    bytes_left: int | None = None
    parts: Mapping[str, FiniteFloat] = field(default_factory=dict)


@dataclass(frozen=True)
class StreamProgress:
    """What is known of a run of a stream.

    Attributes:
        query: Its name: `ingest`, `speed` or `publish`.
        host: Where its driver runs.
        pid: The driver's process.
        started_at: When the run began.
        written_at: When this was written; while the process lives, twice a minute.
        seen_at: The last sign that the stream moves: a micro-batch or a task has ended, or there was nothing
            to do.
        trigger_s: The time from one micro-batch to the next; 0 if it was to take what is there and end.
        previous_at: When the run before it began, if that left a file.
        executors: How many executors it has; 0 where the driver does their work.
        ended_at: When it ended; None while it runs, or if it died.
        failure: The first line of why it failed.
        batches: Its last micro-batches, the oldest first.
    """

    query: Query
    host: str
    pid: int
    started_at: AwareDatetime
    written_at: AwareDatetime
    seen_at: AwareDatetime
    trigger_s: FiniteFloat
    previous_at: AwareDatetime | None = None
    executors: int = 0
    ended_at: AwareDatetime | None = None
    failure: str | None = None
    batches: tuple[BatchFigures, ...] = ()

    def silent_s(self, now: datetime) -> float | None:
        """Return for how many seconds it has given no sign that it moves; None if that is not too long.

        That there was nothing to do is said once in a trigger interval.
        """
        silent = (now - self.seen_at).total_seconds()
        return silent if silent > self.patience_s else None

    @property
    def patience_s(self) -> float:
        """For how many seconds it may give no sign that it moves."""
        return _SILENT_S + 2 * self.trigger_s

    def stuck_s(self, now: datetime) -> float | None:
        """Return `silent_s` of a run that has not ended; None of one that has."""
        return None if self.ended_at is not None else self.silent_s(now)

    def unwritten_s(self, now: datetime) -> float | None:
        """Return for how many seconds a run has written nothing; None if it has ended, or it is not too long.

        Unless it is known to live, its process may have been killed: who is killed leaves no word.
        """
        since = (now - self.written_at).total_seconds()
        return since if self.ended_at is None and since > WRITTEN_S else None

    def is_recent(self, now: datetime) -> bool:
        """Return whether a run has not ended, and has told of itself a moment ago."""
        return self.ended_at is None and self.unwritten_s(now) is None

    def is_alive(self) -> bool | None:
        """Return whether the process of the run is there; None where that cannot be seen from here."""
        if self.host != platform.node():
            return None
        try:
            # Its id may have been given to another, which began later.
            return psutil.Process(self.pid).create_time() <= self.started_at.timestamp()
        except psutil.NoSuchProcess:
            return False

    def is_of(self, run: "StreamProgress") -> bool:
        """Return whether both are of one run."""
        return (self.host, self.pid, self.started_at) == (run.host, run.pid, run.started_at)


@dataclass(frozen=True)
class Refusal:
    """A run that failed before its query began. It leaves the figures of the run before as they are.

    Attributes:
        at: When it failed.
        failure: The first line of why.
        last_written_at: When the figures that it found were written; None if there were none. If there are
            newer ones, a run is or was at work since.
    """

    at: AwareDatetime
    failure: str
    last_written_at: AwareDatetime | None


_FILE: Final = TypeAdapter(StreamProgress)
_REFUSAL: Final = TypeAdapter(Refusal)


def new_run(query: Query, trigger_s: float, previous: StreamProgress | None) -> StreamProgress:
    """Return what is known of a run that begins in this process.

    Args:
        query: The query's name.
        trigger_s: As in `StreamProgress`.
        previous: What the run before it has left.
    """
    now = datetime.now(UTC)
    previous_at = previous.started_at if previous else None
    return StreamProgress(query, platform.node(), os.getpid(), now, now, now, trigger_s, previous_at)


def write_progress(spark: SparkSession, checkpoint: str, progress: StreamProgress) -> None:
    """Replace the file of a query.

    Raises:
        Py4JError: It cannot be written.
    """
    replace_file(spark, progress_path(checkpoint), _FILE.dump_json(progress).decode())


def progress_path(checkpoint: str) -> str:
    """Return where the figures of a query are, by the path of its checkpoint."""
    return f"{checkpoint.rstrip('/')}.progress.json"


def write_refusal(spark: SparkSession, checkpoint: str, refusal: Refusal) -> None:
    """Replace the file that says why the last run of a query was refused.

    Raises:
        Py4JError: It cannot be written.
    """
    replace_file(spark, _refusal_path(checkpoint), _REFUSAL.dump_json(refusal).decode())


def read_refusal(spark: SparkSession, checkpoint: str, last: StreamProgress | None) -> Refusal | None:
    """Return why the newest run of a query was refused; None if it was not, or if another was at work since.

    Args:
        spark: The session.
        checkpoint: The path of the query's checkpoint.
        last: The figures of the newest run.
    """
    try:
        text = HadoopFile(spark, _refusal_path(checkpoint)).text()
        refusal = refusal_in(text) if text else None
    except (Py4JError, ValidationError) as error:
        _log.warning("%s cannot be read: %s", _refusal_path(checkpoint), cause(error))
        return None
    return refusal if refusal and refusal.last_written_at == (last.written_at if last else None) else None


def _refusal_path(checkpoint: str) -> str:
    return f"{checkpoint.rstrip('/')}.refusal.json"


def progress_in(text: str) -> StreamProgress:
    """Return the figures that the text of a query's file stands for.

    Raises:
        ValidationError: It stands for none.
    """
    return _FILE.validate_json(text)


def refusal_in(text: str) -> Refusal:
    """Return the refusal that the text of a query's file stands for.

    Raises:
        ValidationError: It stands for none.
    """
    return _REFUSAL.validate_json(text)


def read_progress(spark: SparkSession, checkpoint: str) -> StreamProgress | None:
    """Return the figures of the newest run of a query; None if there are none that can be read."""
    try:
        text = HadoopFile(spark, progress_path(checkpoint)).text()
        return progress_in(text) if text else None
    except Py4JError as error:
        # Some file systems have none for a moment while it is replaced.
        _log.warning("%s cannot be read: %s", progress_path(checkpoint), cause(error))
        return None
    except ValidationError as error:
        _log.warning("%s cannot be read, and is passed over: %s", progress_path(checkpoint), error)
        return None


def micro_batch_of(progress: Mapping[str, Any]) -> BatchFigures:
    """Return the figures of a micro-batch.

    Args:
        progress: Spark's report of it (`StreamingQueryProgress`), as parsed JSON.
    """
    took: Mapping[str, int] = progress.get("durationMs") or {}
    states = progress.get("stateOperators") or []
    sources = [source.get("metrics") or {} for source in progress["sources"]]
    return BatchFigures(
        number=progress["batchId"],
        at=datetime.fromisoformat(progress["timestamp"]),
        seconds=progress.get("batchDuration", took.get("triggerExecution", 0)) / 1000,
        records=progress["numInputRows"],
        phases={phase: sum(took.get(name, 0) for name in names) / 1000 for phase, names in _PHASES.items()},
        state=_state(states) if states else None,
        duplicates=sum(_custom(each, "numDroppedDuplicateRows") for each in states),
        late=sum(each.get("numRowsDroppedByWatermark", 0) for each in states),
        watermark=_watermark(progress),
        files_left=_sum(sources, "numFilesOutstanding"),
        bytes_left=_sum(sources, "numBytesOutstanding"),
    )


class CounterSpec(NamedTuple):
    """A figure that is added up over the micro-batches of a run.

    Attributes:
        text: What it counts.
        of: Returns what a micro-batch adds to it.
    """

    text: str
    of: Callable[[BatchFigures], float]


COUNTERS: Final[Mapping[str, CounterSpec]] = {
    "records": CounterSpec("Records that were read.", lambda batch: batch.records),
    "micro_batches": CounterSpec("Micro-batches with records.", lambda batch: int(bool(batch.records))),
    "duplicates": CounterSpec("Copies that the deduplication left out.", lambda batch: batch.duplicates),
    "late": CounterSpec("Records behind the watermark.", lambda batch: batch.late),
}


@dataclass(frozen=True)
class RunTotals:
    """What the micro-batches of a run add up to.

    Attributes:
        counters: By the names of `COUNTERS`.
        phases: Seconds by phase, as in `BatchFigures`.
    """

    counters: Mapping[str, float] = field(default_factory=dict)
    phases: Mapping[str, float] = field(default_factory=dict)

    def plus(self, batch: BatchFigures) -> "RunTotals":
        """Return the totals with one more micro-batch."""
        counters = {name: self.counters.get(name, 0.0) + each.of(batch) for name, each in COUNTERS.items()}
        phases = {
            phase: self.phases.get(phase, 0.0) + batch.phases.get(phase, 0.0)
            for phase in self.phases.keys() | batch.phases.keys()
        }
        return RunTotals(counters, phases)


def _state(operators: list[Mapping[str, Any]]) -> StateFigures:
    def total(name: str) -> int:
        return sum(max(operator.get(name, 0), 0) for operator in operators)

    return StateFigures(
        memory_bytes=total("memoryUsedBytes"),
        update_s=total("allUpdatesTimeMs") / 1000,
        evict_s=total("allRemovalsTimeMs") / 1000,
        commit_s=total("commitTimeMs") / 1000,
    )


def _custom(operator: Mapping[str, Any], name: str) -> int:
    return int((operator.get("customMetrics") or {}).get(name, 0))


def _watermark(progress: Mapping[str, Any]) -> datetime | None:
    text = (progress.get("eventTime") or {}).get("watermark")
    watermark = datetime.fromisoformat(text) if text else None
    # Before its first micro-batch a query has one of 1970.
    return watermark if watermark and watermark.timestamp() > 0 else None


def _sum(sources: list[Mapping[str, str]], name: str) -> int | None:
    known = [int(source[name]) for source in sources if name in source]
    return sum(known) if known else None
