"""Signs of life reach the parent, and neither side waits for the other."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.runtime.life_signs import (
    SIGNS_VARIABLE,
    Motion,
    SignPipe,
    SignSender,
    sign_sender,
    tell_parent_of_life,
)
from testbed.waiting import wait_until

TELLS = f"""
import os, sys, time
from pathlib import Path
from pipelines.runtime.life_signs import tell_parent_of_life
tell_parent_of_life(0.01)
written = Path(sys.argv[1]).with_suffix(".part")
written.write_text(str({SIGNS_VARIABLE!r} in os.environ))
written.rename(sys.argv[1])
time.sleep(600)
"""


@pytest.fixture
def pipe() -> Iterator[SignPipe]:
    pipe = SignPipe()
    yield pipe
    pipe.close()


def test_signs_arrive_in_order_and_once(pipe: SignPipe) -> None:
    sender = SignSender(pipe.write_end)
    signs = [None, Motion(0, 0, 0.5), None, Motion(2**40, 7, 3_600.0)]
    for each in signs:
        sender.send(each)
    assert pipe.received() == signs
    assert pipe.received() == []
    pipe.hand_over()
    # The child has ended.
    assert pipe.received() == []


def test_a_child_does_not_wait_for_a_parent_that_reads_nothing(pipe: SignPipe) -> None:
    sender = SignSender(pipe.write_end)
    for moves in range(20_000):
        sender.send(Motion(moves, 0, 1.0))
    kept = pipe.received()
    # What is kept is whole, from the first on.
    assert kept == [Motion(moves, 0, 1.0) for moves in range(len(kept))]
    assert 1_000 < len(kept) < 20_000
    sender.send(None)
    assert pipe.received() == [None]
    pipe.hand_over()


def test_a_parent_that_is_gone_is_no_failure() -> None:
    pipe = SignPipe()
    pipe.close()
    SignSender(pipe.write_end).send(None)
    pipe.hand_over()


def test_a_process_tells_that_it_lives_and_what_it_starts_does_not(pipe: SignPipe, tmp_path: Path) -> None:
    # In a process of its own: it tells for as long as it lives.
    tells = tmp_path / "tells"
    program = [sys.executable, "-c", TELLS, str(tells)]
    environment = {**os.environ, SIGNS_VARIABLE: str(pipe.write_end)}
    child = subprocess.Popen(program, env=environment, pass_fds=[pipe.write_end])
    pipe.hand_over()
    try:
        wait_until(lambda: None in pipe.received(), "it has told")
        wait_until(tells.exists, "it has looked at its variables")
        assert tells.read_text() == "False"
    finally:
        child.kill()
        child.wait()


def test_who_is_not_asked_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    sign_sender.cache_clear()
    monkeypatch.delenv(SIGNS_VARIABLE, raising=False)
    tell_parent_of_life()
    assert sign_sender() is None
    sign_sender.cache_clear()
