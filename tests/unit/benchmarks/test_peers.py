"""What is told of peers, and how their rows are counted."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.events import Truth
from benchmarks.peers.__main__ import Measured
from benchmarks.peers.catalogue import PEERS, Peer, delta_files, visible_files
from benchmarks.peers.trial import Outcome, is_due, outcome

TRUTH = Truth(records=6, unique=4, duplicates=1, broken=1, value_bytes=600)
HERE = Path("benchmarks/peers")


def rows(path: Path, *numbers: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"sequence": pa.array(numbers, pa.int64())}), path)


def test_rows_are_held_against_the_topic(tmp_path: Path) -> None:
    peer = Peer("a", "a", visible_files)
    assert outcome(peer, tmp_path, TRUTH) == Outcome(rows=0, duplicates=0, missing=4)
    rows(tmp_path / "part-0", 0, 1, 2)
    # Not committed yet.
    rows(tmp_path / ".part-1.inprogress", 3)
    rows(tmp_path / "deeper/part-2", 2)
    assert outcome(peer, tmp_path, TRUTH) == Outcome(rows=4, duplicates=1, missing=1)


def test_files_of_a_delta_table_are_those_that_its_log_has(tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    commits: list[list[dict[str, dict[str, str]]]] = [
        [{"commitInfo": {}}, {"add": {"path": "a"}}, {"add": {"path": "b"}}],
        [{"remove": {"path": "a"}}, {"add": {"path": "c"}}],
    ]
    for number, actions in enumerate(commits):
        (log / f"{number:020}.json").write_text("\n".join(json.dumps(action) for action in actions))
    assert delta_files(tmp_path) == [tmp_path / "b", tmp_path / "c"]


def test_a_row_says_what_is_wrong_and_what_cannot_run() -> None:
    exact, twice = Outcome(4, 0, 0), Outcome(5, 1, 1)
    measured = Measured("A", None, 20.04, 17.5, 61.2, 100.0, 2_345.6, exact, twice)
    assert measured.cells() == [
        "A",
        "20.0",
        "17.5",
        "61.2",
        "100.0",
        "2,346",
        "exact",
        "1 duplicates, 1 missing",
    ]
    hung = replace(measured, result=None, at_kill=3, has_hung=True)
    assert hung.cells()[-1] == "1 duplicates, 1 missing, but did not end within 600 s (3 rows before)"
    assert Measured("B", why_not="no such package").cells()[:2] == ["B", "cannot run here: no such package"]
    assert len(Measured("B", why_not="no").cells()) == len(measured.cells())


def test_a_program_is_killed_when_it_has_committed_rows_and_not_before(tmp_path: Path) -> None:
    def is_killed(words: str, within_s: float) -> bool:
        task = {"killed_peer": "limit", "kill_after_s": within_s, "order": {"folder": str(tmp_path)}}
        with subprocess.Popen([sys.executable, "-c", words], text=True) as process:
            due = is_due(process, task)
            process.kill()
        return due

    assert not is_killed("pass", 60.0)
    assert is_killed("import time; time.sleep(100)", 0.3)
    log = tmp_path / "table/_delta_log"
    log.mkdir(parents=True)
    (log / "0.json").write_text('{"add": {"path": "being wri')
    assert not PEERS["limit"].has_committed(tmp_path)
    (log / "0.json").write_text('{"add": {"path": "a"}}')
    assert is_killed("import time; time.sleep(100)", 60.0)


@pytest.mark.parametrize("name", PEERS)
def test_each_peer_has_its_program_and_what_it_needs(name: str) -> None:
    peer = PEERS[name]
    assert (HERE / "programs" / f"{peer.program}.py").is_file()
    if peer.environment:
        wanted = (HERE / "requirements" / f"{peer.environment}.txt").read_text().splitlines()
        assert all("==" in line for line in wanted)
    if peer.jars and peer.jars != "spark":
        assert f'<conf name="{peer.jars}"/>' in (HERE / "ivy.xml").read_text()
