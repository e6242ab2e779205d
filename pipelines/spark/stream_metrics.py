"""The metrics of a stream, whoever takes them: `pipelines.spark.stream_server` and `stream_telemetry`."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from pipelines.spark.stream_progress import COUNTERS, BatchFigures, RunTotals, StreamProgress

PREFIX: Final = "oncelake_stream_"


@dataclass(frozen=True)
class StreamMetric:
    """A metric of a stream as it is now.

    Attributes:
        name: Its name, after `PREFIX`; Prometheus adds `_total` to that of a counter.
        text: What it means.
        kind: A counter begins at 0 when the stream is started, and only grows.
        values: The values, by that of `label`; under an empty text if it has no label.
        label: What tells the values apart.
    """

    name: str
    text: str
    kind: Literal["counter", "gauge"]
    values: Mapping[str, float]
    label: str | None = None


def counter(name: str, text: str, value: float) -> StreamMetric:
    """Return a counter without a label."""
    return StreamMetric(name, text, "counter", {"": value})


def gauge(name: str, text: str, value: float) -> StreamMetric:
    """Return a gauge without a label."""
    # OTLP takes no truth values.
    return StreamMetric(name, text, "gauge", {"": float(value)})


def stream_metrics(
    progress: StreamProgress, totals: RunTotals, own: Iterable[StreamMetric] = ()
) -> Iterator[StreamMetric]:
    """Yield the metrics of a stream; those that it does not know are left out.

    Args:
        progress: What is known of the run.
        totals: What its micro-batches add up to.
        own: What only this stream has.
    """
    for name, each in COUNTERS.items():
        yield counter(name, each.text, totals.counters.get(name, 0.0))
    yield StreamMetric("seconds", "Time of micro-batches, by phase.", "counter", totals.phases, "phase")
    for name, text, value in _gauges(progress):
        if value is not None:
            yield gauge(name, text, value)
    yield from own


def _gauges(progress: StreamProgress) -> Iterator[tuple[str, str, float | None]]:
    last = next((batch for batch in reversed(progress.batches) if batch.records), None)
    yield "healthy", "0 if it has given no sign for too long.", progress.silent_s(datetime.now(UTC)) is None
    yield "last_sign_timestamp_seconds", "Time of the last progress.", progress.seen_at.timestamp()
    yield "started_timestamp_seconds", "When it was started.", progress.started_at.timestamp()
    yield "trigger_interval_seconds", "Time from one micro-batch to the next.", progress.trigger_s
    yield "executors", "Executors, beside the driver.", progress.executors
    if last is None:
        return
    yield "last_micro_batch_records", "Records of the last micro-batch with any.", last.records
    yield "last_micro_batch_seconds", "What it took.", last.seconds
    yield "watermark_timestamp_seconds", "Its watermark.", _watermark(last)
    yield "watermark_delay_seconds", "How far that was behind when it began.", _watermark_delay(last)
    yield "state_memory_bytes", "Memory of the state.", last.state.memory_bytes if last.state else None
    yield "files_outstanding", "Files of its source that it has left for later.", last.files_left
    if last.tasks:
        yield "task_seconds", "What its tasks took in all.", last.tasks.run_s
        yield "gc_seconds", "Of that, garbage collection.", last.tasks.gc_s
        yield "spilled_bytes", "What its tasks spilled to disk.", last.tasks.spilled_bytes


def _watermark(batch: BatchFigures) -> float | None:
    return batch.watermark.timestamp() if batch.watermark else None


def _watermark_delay(batch: BatchFigures) -> float | None:
    return (batch.at - batch.watermark).total_seconds() if batch.watermark else None
