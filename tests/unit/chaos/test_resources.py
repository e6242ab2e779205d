"""What streams hold is sampled from their processes, and growth is told from what stays."""

import signal
import threading
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path

import psutil
import pytest

from chaos.resources import Holding, Sampler, behind, growing, holding, lines, unsampled
from testbed.waiting import wait_until
from tests.support.small_jobs import SmallJobs

STILL = Holding(memory_mb=800, handles=400, threads=90, checkpoint_mb=20, checkpoint_files=900)
MANY = 400


def rising(what: str, per_sample: float) -> list[Holding]:
    return [replace(STILL, **{what: getattr(STILL, what) + number * per_sample}) for number in range(MANY)]


def rules(samples: Sequence[Holding]) -> list[str]:
    return [text for violation in growing({"north/speed": samples}) for text in violation.examples]


def test_what_stays_or_grows_while_a_process_warms_up_is_bounded() -> None:
    warming_up = [replace(STILL, memory_mb=8.0 * number) for number in range(MANY // 4)]
    assert rules([*warming_up, *[STILL] * (3 * MANY // 4)]) == []
    # Waves, as of a heap that is cleared now and then.
    assert rules([replace(STILL, memory_mb=500 + 300 * (number % 7)) for number in range(MANY)]) == []
    assert rules(rising("memory_mb", 1000.0)[:8]) == []


def test_a_stream_of_a_long_run_that_was_hardly_sampled_is_told() -> None:
    assert unsampled({"north/speed": [STILL] * MANY}, ["north/speed"]) == []
    (told,) = unsampled({"north/speed": [STILL] * 10}, ["north/speed", "north/ingest"])
    assert told.examples == (
        "north/speed: 10, expected 120 at least",
        "north/ingest: 0, expected 120 at least",
    )


@pytest.mark.parametrize("what", [each.name for each in fields(Holding)])
def test_what_grows_all_the_time_is_told(what: str) -> None:
    (told,) = rules(rising(what, asdict(STILL)[what] / 100))
    assert what in told


def test_ingest_that_has_not_kept_up_is_told() -> None:
    assert behind({"north": 3_000, "south": 0}, rate=50.0) == []
    (told,) = behind({"north": 3_001, "south": 0}, rate=50.0)
    assert told.examples == ("north: found 3,001 records, expected 3,000 at most",)


def test_what_processes_hold_is_theirs(tmp_path: Path) -> None:
    (tmp_path / "state" / "0").mkdir(parents=True)
    (tmp_path / "state" / "0" / "1.delta").write_bytes(b"x" * 2_000_000)
    me, enough = [psutil.Process()], threading.Event()
    before = holding(me, tmp_path)
    thread = threading.Thread(target=enough.wait)
    thread.start()
    with (tmp_path / "metadata").open("wb"):
        now = holding(me, tmp_path)
    enough.set()
    thread.join()
    assert (before.checkpoint_mb, before.checkpoint_files, now.checkpoint_files) == (2, 1, 2)
    assert (now.handles - before.handles, now.threads - before.threads) == (1, 1)
    assert before.memory_mb > 10


def test_streams_are_sampled_while_they_run(jobs: SmallJobs, tmp_path: Path) -> None:
    jobs.supervisor.start()
    running = next(iter(jobs.supervisor.streams.values()))
    never_ran = replace(running, _process=None)
    sampler = Sampler({"runs": (running, tmp_path), "never ran": (never_ran, tmp_path)}, every_s=0.01)
    with sampler.sampling():
        wait_until(lambda: len(sampler.samples.get("runs", [])) > MANY // 10, "it was sampled", 30.0)
    running.send(signal.SIGKILL)
    assert {*sampler.samples} == {"runs"}
    assert sampler.samples["runs"][-1].threads >= 1
    assert "too few" in "\n".join(lines(sampler.samples))
    assert "threads 90 -> 90" in "\n".join(lines({"runs": [STILL] * MANY}))
