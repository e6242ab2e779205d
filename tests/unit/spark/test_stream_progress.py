from dataclasses import replace
from datetime import UTC, datetime, timedelta

from pipelines.spark.stream_progress import (
    BatchFigures,
    StateFigures,
    StreamProgress,
    micro_batch_of,
    progress_path,
)

OF_SPEED = {
    "id": "6c9a1c5e-0d2f-4b53-8f0c-6d9f0e6f3a11",
    "runId": "b3b1e1a7-3f0e-4c8b-9b0a-2a4f3f1f9a55",
    "name": "speed",
    "timestamp": "2026-01-01T12:00:00.000Z",
    "batchId": 7,
    "batchDuration": 1234,
    "numInputRows": 20,
    "durationMs": {
        "addBatch": 900,
        "commitBatch": 10,
        "commitOffsets": 20,
        "getBatch": 30,
        "latestOffset": 40,
        "queryPlanning": 100,
        "triggerExecution": 1234,
        "walCommit": 50,
    },
    "stateOperators": [
        {
            "numRowsTotal": 1_000,
            "memoryUsedBytes": 2_048,
            "allUpdatesTimeMs": 300,
            "allRemovalsTimeMs": 200,
            "commitTimeMs": 100,
        },
        # What an operator does not measure is -1.
        {"numRowsTotal": 5, "memoryUsedBytes": -1},
    ],
    "sources": [{"numInputRows": 20, "metrics": {"numFilesOutstanding": "3", "numBytesOutstanding": "4096"}}],
}


def test_a_report_of_spark_becomes_figures_by_phase() -> None:
    phases = {"source": 0.07, "planning": 0.1, "write": 0.9, "log": 0.08}
    state = StateFigures(2_048, 0.3, 0.2, 0.1)
    began = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert micro_batch_of(OF_SPEED) == BatchFigures(
        7, began, 1.234, 20, phases, state, files_left=3, bytes_left=4_096
    )
    assert state.seconds == 0.6


def test_a_source_that_is_no_table_has_no_files_and_a_query_without_state_no_state() -> None:
    report = {
        **OF_SPEED,
        "stateOperators": [],
        "sources": [{"numInputRows": 20, "metrics": {"rackShare": "1"}}],
    }
    found = micro_batch_of(report)
    assert (found.state, found.files_left, found.bytes_left) == (None, None, None)


def test_a_run_that_has_ended_is_neither_dead_nor_stuck() -> None:
    began = datetime(2026, 1, 1, 12, tzinfo=UTC)
    run = StreamProgress("speed", "host", 7, began, began, began, 10.0)
    ended, later = replace(run, ended_at=began), began + timedelta(minutes=6)
    assert (run.unwritten_s(later), run.stuck_s(later)) == (360, 360)
    assert (ended.unwritten_s(later), ended.stuck_s(later)) == (None, None)
    # It writes twice a minute, and may be silent for longer.
    soon = began + timedelta(seconds=121)
    assert (run.unwritten_s(soon), run.stuck_s(soon)) == (121, None)
    assert run.unwritten_s(began + timedelta(seconds=120)) is None


def test_the_file_lies_beside_the_checkpoint_and_not_in_it() -> None:
    assert (
        progress_path("lake/ops/checkpoints/flights/speed/")
        == "lake/ops/checkpoints/flights/speed.progress.json"
    )
