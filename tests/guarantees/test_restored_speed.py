"""The speed layer, the quarantine and their checkpoint know each other: one that was put back is refused."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from delta.tables import DeltaTable

from pipelines.config.streams import STREAMS
from pipelines.contracts.contract import DataContract
from pipelines.contracts.rules import RowRule
from pipelines.delta.event_tables import ensure_speed
from pipelines.delta.io import append
from pipelines.delta.reader_position_check import require_not_read_ahead
from pipelines.delta.record_tables import ensure_bronze, ensure_quarantine
from pipelines.delta.stream_check import check_speed
from pipelines.delta.table_properties import set_table_property
from pipelines.delta.tables import version
from pipelines.delta.upkeep import compact
from pipelines.errors import InfrastructureError, SourceError
from pipelines.fault_points import Point, armed
from pipelines.ledger.quarantine import Selection
from pipelines.spark.checkpoints import note_path, query_files
from pipelines.spark.stream_progress import progress_path
from pipelines.steps.checkpoints import reset_checkpoint
from pipelines.steps.maintain import maintain
from tests.support.accidents import dying, once
from tests.support.changes_by_hand import change_by_hand
from tests.support.delta_rows import rows_in
from tests.support.lakes import Lake
from tests.support.nights import on, stream
from tests.support.replays import replay

pytestmark = pytest.mark.usefixtures("two_partitions")

BAD = b"poison"


def numbers(lake: Lake) -> list[int]:
    return sorted(number for (number,) in rows_in(lake.config.table("speed"), "flight"))


def broken(lake: Lake) -> int:
    return len(rows_in(lake.config.table("quarantine"), "_offset"))


def commits(lake: Lake) -> list[Path]:
    logs = (folder(lake, what) / "_delta_log" for what in ("speed", "quarantine"))
    return sorted(commit for log in logs for commit in log.glob("*.json"))


def refused(lake: Lake, why: str) -> None:
    """The stream ends with exit code 4 and the command that fixes it, and writes nothing."""
    before = commits(lake)
    command = "oncelake checkpoint reset --pipeline flights --query speed"
    with pytest.raises(SourceError, match=rf"(?s){why}.*{command}") as no:
        stream(lake)
    assert no.value.exit_code == 4
    assert commits(lake) == before


def fixed(lake: Lake, expected: list[int], quarantined: int) -> None:
    """The command is followed, and all of bronze is there once."""
    reset_checkpoint(lake.pipeline, "reset", "speed")
    stream(lake)
    assert numbers(lake) == expected
    assert broken(lake) == quarantined


def folder(lake: Lake, what: str) -> Path:
    return Path(lake.config.checkpoint("speed") if what == "checkpoint" else lake.config.table(what))  # type: ignore[arg-type]


def put_back(lake: Lake, what: str, backup: Path) -> None:
    lost(lake, what, backup)
    shutil.copytree(backup / what, folder(lake, what))


def restored(lake: Lake, what: str, backup: Path) -> None:
    """The table as it was one commit before, by Delta's own command."""
    path = str(folder(lake, what))
    DeltaTable.forPath(lake.spark, path).restoreToVersion(version(lake.spark, path) - 1)


def lost(lake: Lake, what: str, backup: Path) -> None:
    shutil.rmtree(folder(lake, what), ignore_errors=True)


def test_what_does_not_go_together_is_refused_and_what_does_goes_on(lake: Lake, tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    lake.ingest([on(1, 1), BAD])
    stream(lake)
    _back_up(lake, before)
    # Micro-batches of copies alone, and of broken records alone: with each the next stream goes on.
    lake.ingest([on(1, 1)])
    assert stream(lake).counts.duplicates == 1
    lake.ingest([BAD])
    assert stream(lake).counts.quarantined == 1
    lake.ingest([on(1, 2), BAD])
    stream(lake)
    _back_up(lake, after)

    _each_accident_is_refused(lake, before, after)

    # What upkeep and people do meanwhile.
    path = lake.config.table("speed")
    compact(lake.spark, path)
    set_table_property(lake.spark, path, "oncelake.test", "1")
    change_by_hand(lake.spark, path, lambda rows: rows.delete("flight = 1"))
    restored(lake, "speed", folder(lake, "speed"))
    check_speed(lake.pipeline)
    # A lake of before: nothing is noted.
    Path(note_path(lake.config.checkpoint("speed"))).unlink()
    lake.ingest([on(1, 3)])
    stream(lake)
    assert numbers(lake) == [1, 2, 3]

    put_back(lake, "checkpoint", before)
    fixed(lake, [1, 2, 3], 3)


def _back_up(lake: Lake, backup: Path) -> None:
    for what in ("checkpoint", "speed", "quarantine"):
        shutil.copytree(folder(lake, what), backup / what)


def _each_accident_is_refused(lake: Lake, before: Path, after: Path) -> None:
    accident: Callable[[Lake, str, Path], None]
    for accident, what, why in (
        (put_back, "checkpoint", "speed/flights is ahead of its checkpoint"),
        (put_back, "speed", "speed/flights is behind its checkpoint"),
        (put_back, "quarantine", "quarantine/flights is behind its checkpoint"),
        (restored, "speed", "speed/flights: a RESTORE rolled back rows"),
        (restored, "quarantine", "quarantine/flights: a RESTORE rolled back rows"),
        (lost, "checkpoint", "its checkpoint .* does not exist"),
        (lost, "speed", "speed/flights: there is no such table"),
        (lost, "quarantine", "quarantine/flights: there is no such table"),
    ):
        accident(lake, what, before)
        refused(lake, why)
        put_back(lake, what, after)
    lost(lake, "speed", before)
    with pytest.raises(SourceError, match="speed/flights: there is no such table"):
        replay(lake.pipeline, "replay", Selection(), dry_run=False)
    assert not folder(lake, "speed").exists()
    put_back(lake, "speed", after)


def test_what_is_read_further_than_it_was_put_back_is_refused_and_what_was_killed_is_counted(
    lake: Lake, tmp_path: Path, small: DataContract
) -> None:
    lake.ingest([on(1, 1), on(1, 2), BAD])
    shutil.copytree(folder(lake, "bronze"), tmp_path / "bronze")
    lake.ingest([on(1, 3)])
    lake.ingest([on(1, 4)])
    stream(lake)
    put_back(lake, "bronze", tmp_path)
    refused(lake, r"bronze/flights: found version \d+, expected \d+ or later, which speed_stream has read")
    # Nor may upkeep bring it to that version by commits of its own.
    with pytest.raises(SourceError, match="which speed_stream has read"):
        maintain(lake.pipeline, "upkeep", dry_run=False)
    fixed(lake, [1, 2], 1)

    _a_killed_run_is_counted(lake, small)

    # What ingest reads once more.
    lake.ingest([on(1, 3), on(1, 4)])
    stream(lake)
    assert numbers(lake) == [1, 2, 3, 4]


def test_a_run_that_stood_still_while_the_stream_was_reset_writes_nothing_more(lake: Lake) -> None:
    lake.ingest([on(1, 1), BAD])
    stream(lake)
    lake.ingest([on(1, 2)])
    progress = Path(progress_path(lake.config.checkpoint("speed")))

    def is_elsewhere(written_at: datetime) -> None:
        """The run is on another machine, of which nothing else is seen."""
        run = json.loads(progress.read_text()) | {"host": "elsewhere", "written_at": written_at.isoformat()}
        (progress.parent / f".{progress.name}.crc").unlink(missing_ok=True)
        progress.write_text(json.dumps(run))

    def reset() -> None:
        is_elsewhere(datetime.now(UTC))
        with pytest.raises(InfrastructureError, match="speed_stream runs on elsewhere"):
            reset_checkpoint(lake.pipeline, "reset", "speed")
        is_elsewhere(datetime.now(UTC) - timedelta(minutes=5))
        reset_checkpoint(lake.pipeline, "reset", "speed")
        # As the run does that follows.
        ensure_speed(lake.pipeline)
        ensure_quarantine(lake.pipeline)

    with (
        armed(Point.BATCH_LOOKED_FOR, once(reset)),
        pytest.raises(SourceError, match="another table is in its place since this run began") as refused,
    ):
        stream(lake)
    assert refused.value.exit_code == 4
    assert numbers(lake) == []


def test_a_stream_within_its_first_version_or_within_a_commit_has_read_that_version(
    make_lake: Callable[..., Lake], tmp_path: Path
) -> None:
    # Each file is a micro-batch of its own.
    lake = make_lake("speed.max_bytes_per_trigger=1b")
    lake.ingest([on(1, 1)])
    lake.ingest([on(1, 2)])
    shutil.copytree(folder(lake, "bronze"), tmp_path / "first/bronze")
    lake.ingest([on(1, 3)])
    _killed_after_a_micro_batch(lake)
    assert numbers(lake) == [1]
    # Within the version that it began with. Restored with the checkpoint of ingest, as the runbook allows.
    _is_refused_to_all(lake, tmp_path / "first")
    fixed(lake, [1, 2], 0)

    shutil.copytree(folder(lake, "bronze"), tmp_path / "second/bronze")
    append(lake.envelopes([on(1, 3), on(1, 4)]).repartition(2), lake.config.table("bronze"))
    _killed_after_a_micro_batch(lake)
    assert len(numbers(lake)) == 3
    _is_refused_to_all(lake, tmp_path / "second")
    fixed(lake, [1, 2], 0)


def _killed_after_a_micro_batch(lake: Lake) -> None:
    """The stream does one micro-batch, and dies in the next."""
    death = InfrastructureError("died here")
    with armed(Point.BATCH_LOOKED_FOR, dying(death, time=2)), pytest.raises(InfrastructureError):
        stream(lake)


def _is_refused_to_all(lake: Lake, backup: Path) -> None:
    """Neither ingest nor the stream goes on with a bronze that lacks one version of those that were read."""
    put_back(lake, "bronze", backup)
    why = "expected .* or later, which speed_stream has read"
    with pytest.raises(SourceError, match=rf"{why}.*checkpoint reset --pipeline flights --query speed"):
        require_not_read_ahead(lake.pipeline, *STREAMS["ingest"].tables)
    refused(lake, why)


def _a_killed_run_is_counted(lake: Lake, small: DataContract) -> None:
    """A summary counts what a run had committed that was killed."""
    checkpoint, contract = folder(lake, "checkpoint"), lake.contract
    # Killed when both tables had it, and the checkpoint not.
    for kept in [*(checkpoint / "offsets").glob("[1-9]"), *(checkpoint / "commits").glob("*")]:
        kept.unlink()
    # What is computed now is another thing: the contract does not take the second flight any more.
    lake.contract = replace(small, row_rules=(*small.row_rules, RowRule("flight", "maximum", 1)))
    counts = stream(lake).counts
    assert (counts.records, counts.rows, counts.quarantined) == (3, 2, 1)
    assert (numbers(lake), broken(lake)) == ([1, 2], 1)
    assert stream(lake).counts.records == 0
    lake.contract = contract


@pytest.mark.thorough
def test_a_lake_of_before_whose_stream_has_found_nothing_goes_on(lake: Lake, tmp_path: Path) -> None:
    ensure_bronze(lake.pipeline)
    stream(lake)
    # That code committed no micro-batch without rows, and noted nothing.
    for made in ("speed", "quarantine"):
        lost(lake, made, tmp_path)
    ensure_speed(lake.pipeline)
    ensure_quarantine(lake.pipeline)
    checkpoint = lake.config.checkpoint("speed")
    Path(note_path(checkpoint)).unlink()
    assert query_files(lake.spark, checkpoint).next_batch > 0
    lake.ingest([on(1, 1)])
    stream(lake)
    assert numbers(lake) == [1]
