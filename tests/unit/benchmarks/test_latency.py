"""The delay of events is read from a table's own log and files."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.latency import Feed, commits, delays


def commit(table: Path, version: int, at_ms: int, *sent_ms: int) -> None:
    """Commits at a moment; adds a file with a row for each Kafka timestamp, if there is any."""
    actions: list[dict[str, object]] = [{"commitInfo": {"timestamp": at_ms}}]
    if sent_ms:
        name = f"_event_date=2024-03-01/part {version}.parquet"
        path = table / name
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = pa.table({"_kafka_timestamp": pa.array(sent_ms, pa.timestamp("ms", "UTC"))})
        pq.write_table(rows, path)
        stats = json.dumps({"numRecords": len(sent_ms)})
        actions.append({"add": {"path": name.replace(" ", "%20"), "stats": stats}})
    log = table / "_delta_log" / f"{version:020d}.json"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("\n".join(map(json.dumps, actions)))


def test_a_row_is_as_late_as_the_commit_that_made_it_visible(tmp_path: Path) -> None:
    commit(tmp_path, 0, 500)
    commit(tmp_path, 1, 4_000, 1_000, 2_500)
    commit(tmp_path, 2, 9_000, 5_000)
    assert [(one.at_ms, one.rows) for one in commits(tmp_path)] == [(4_000, 2), (9_000, 1)]
    assert sorted(delays(tmp_path, 0)) == [1.5, 3.0, 4.0]
    assert sorted(delays(tmp_path, 2_000)) == [1.5, 4.0]


def test_a_table_that_is_not_there_yet_has_no_commits(tmp_path: Path) -> None:
    assert commits(tmp_path / "none") == []
    assert len(delays(tmp_path / "none", 0)) == 0


def test_as_many_records_are_handed_out_as_are_asked_for_across_chunks() -> None:
    feed, sequences, pieces = Feed(100_500, 1), set[int](), []
    for most in (70_000, 50_000, 20_000):
        chunk, places = feed.take(most)
        pieces.append((places.start, places.stop))
        whole = (chunk.values[place] for place in places if chunk.values[place].endswith(b"}"))
        sequences.update(json.loads(value)["sequence"] for value in whole)
        assert feed.rows == len(sequences)
    assert pieces == [(0, 70_000), (70_000, 100_000), (0, 500)]
