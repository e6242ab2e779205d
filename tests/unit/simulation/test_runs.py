"""A seed replays its run, and of a run that fails the shortest history is found."""

import os
import subprocess
import sys
from functools import partial
from random import Random

import pytest
from click.testing import CliRunner

from simulation.__main__ import PROTOCOLS, simulate
from simulation.kernel import Fault, Kernel, Move, Process, Schedule, Violation
from simulation.nightly import NightlyWorld
from simulation.planted_nightly import NIGHTLY
from simulation.runs import play, shortest_history

pytestmark = pytest.mark.patient

_DIGEST = (
    "import hashlib, logging; logging.disable(logging.CRITICAL)\n"
    "from simulation.nightly import NightlyWorld\n"
    "from simulation.runs import play\n"
    "text = repr([play(NightlyWorld, seed).trace for seed in range(20)])\n"
    "print(hashlib.sha256(text.encode()).hexdigest())"
)


def digest(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", _DIGEST], capture_output=True, text=True, check=True, env=environment
    )
    return done.stdout


def test_a_seed_replays_its_run_in_another_process() -> None:
    assert digest("1") == digest("2")


@pytest.mark.parametrize("seed", range(5))
def test_the_schedule_of_a_run_replays_it(seed: int) -> None:
    run = play(NightlyWorld, seed)
    again = play(NightlyWorld, seed, run.moves)
    assert (again.trace, again.moves) == (run.trace, run.moves)


class Counting:
    """Two actors that add to a number without a look at each other, which is wrong."""

    def __init__(self, schedule: Schedule, setup: Random) -> None:
        self.kernel = Kernel(schedule, lambda: None)
        self.total = 0
        for number, name in enumerate("AB"):
            self.kernel.spawn(name, Process(name, number), self.add)

    def add(self) -> None:
        for _ in range(5):
            read = self.kernel.effect("read", lambda: self.total)
            self.kernel.effect("write", partial(self.write, read + 1), is_write=True)

    def write(self, total: int) -> None:
        self.total = total

    def finish(self) -> None:
        self.kernel.run()
        self.kernel.settle()
        if self.total != 10:
            raise Violation("all are counted", f"{self.total}")


def test_the_shortest_history_of_a_lost_update_has_one_switch_between_read_and_write() -> None:
    seed, run = next((seed, run) for seed in range(50) if (run := play(Counting, seed)).violation)
    shortest = shortest_history(Counting, seed, run)
    # B starts and reads, and stands still while A takes all of its steps.
    assert [*map(str, shortest.moves)] in (["B", "B"], ["A"] * 2 + ["B"] * 2)
    assert str(shortest.violation) == "all are counted: 5"


def test_each_fault_does_what_it_says() -> None:
    done: list[str] = []

    def end_of(fault: Fault) -> tuple[list[str], bool]:
        class Once:
            moves = iter([Move("A"), Move("A", fault)])

            def next(self, kernel: Kernel) -> Move | None:
                return next(self.moves, None)

        done.clear()
        kernel = Kernel(Once(), lambda: None)

        def body() -> None:
            kernel.effect(
                "write", lambda: done.append("done"), is_write=True, again=lambda: done.append("again")
            )
            kernel.effect("after", lambda: done.append("after"))

        actor = kernel.spawn("A", Process("A", 1), body)
        kernel.run()
        before = [*done]
        kernel.settle()
        kernel.close()
        return [*before, "|", *done[len(before) :]], actor.failure is not None

    assert end_of(Fault.CRASH_BEFORE) == (["|"], False)
    assert end_of(Fault.CRASH_AFTER) == (["done", "|"], False)
    assert end_of(Fault.REFUSED) == (["|"], True)
    assert end_of(Fault.LOST) == (["done", "|"], True)
    assert end_of(Fault.ECHO) == (["done", "again", "after", "|"], False)
    assert end_of(Fault.LATE) == (["|", "done"], True)
    assert end_of(Fault.CRASH_LATE) == (["|", "done"], False)
    assert end_of(Fault.STOP) == (["done", "after", "|"], False)


def test_a_run_that_fails_is_told_with_its_shortest_history_and_how_to_play_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planted = NIGHTLY[0]
    monkeypatch.setitem(PROTOCOLS, "nightly", planted.make)
    given = ["--seed", str(planted.seed), "--runs", "1", "--processes", "1", "--protocol", "nightly"]
    done = CliRunner().invoke(simulate, given)
    assert done.exit_code == 1
    violation = play(planted.make, planted.seed).violation
    assert violation is not None
    assert f"nightly, seed {planted.seed}: {violation.invariant}: " in done.output
    assert "The shortest history found:\n      1 s  " in done.output
    assert f"python -m simulation --protocol nightly --seed {planted.seed} --runs 1" in done.output


def test_the_command_says_what_it_has_done() -> None:
    done = CliRunner().invoke(simulate, ["--seed", "3", "--runs", "4", "--processes", "1"])
    assert done.exit_code == 0, done.output
    assert "nightly: 4 runs (seeds 3 to 6)" in done.output
    assert "0  violations" in done.output
