"""A real stream that hangs is ended with its Java and started again: its Java, a call to the file system."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from pipelines.cli.options import CommonOptions
from pipelines.cli.run_alerts import command_of
from pipelines.spark.stream_progress import StreamProgress, progress_in
from pipelines.supervision.child import Program
from pipelines.supervision.output import ProgramName
from testbed.short_lived_settings import BRIEF_SPARK
from testbed.waiting import wait_until
from tests.support.supervised_streams import Supervised

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

# Signs come every ten seconds.
STUCK_AFTER_S = 40.0


class Stream:
    """A speed stream of an empty lake, under a supervisor."""

    def __init__(self, folder: Path) -> None:
        self.lake = folder / "lake"
        settings = (f"lake.root={self.lake}", *BRIEF_SPARK)
        options = CommonOptions(
            "flights", "local", Path("conf"), Path("data_contracts"), settings, "text", verbose=False
        )
        name = ProgramName("flights", "speed")
        command = command_of(options, "speed_stream")
        self.supervised = Supervised(Program(name, command, stuck_after_s=STUCK_AFTER_S), stop_within_s=20.0)

    def progress(self) -> StreamProgress | None:
        """What the newest run has told of itself."""
        with suppress(OSError):
            return progress_in((self.lake / "ops/checkpoints/flights/speed.progress.json").read_text())
        return None

    def wait_for_run(self, other_than: int | None = None) -> list[psutil.Process]:
        """The processes of a run whose query has found that there is nothing to do."""

        def moves() -> bool:
            run = self.progress()
            return run is not None and run.pid != other_than and run.seen_at > run.started_at

        wait_until(moves, "its query runs")
        run = self.progress()
        assert run is not None
        process = psutil.Process(run.pid)
        return [process, *process.children(recursive=True)]


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[Stream]:
    stream = Stream(tmp_path)
    yield stream
    stream.supervised.stop()


def stop_java(stream: Stream, run: list[psutil.Process]) -> Callable[[], None]:
    """Its Java stands still, as in a bug of its own."""
    (java,) = (each for each in run if each.name() == "java")
    java.send_signal(signal.SIGSTOP)
    return lambda: None


def let_a_call_hang(stream: Stream, run: list[psutil.Process]) -> Callable[[], None]:
    """The next commit of bronze is a pipe into which nobody writes: whoever opens it waits for ever."""
    log = stream.lake / "bronze/flights/_delta_log"
    newest = max(int(path.stem) for path in log.glob("*.json"))
    commit = log / f"{newest + 1:020}.json"
    os.mkfifo(commit)
    return commit.unlink


@pytest.mark.parametrize(
    ("hang", "evidence"),
    [
        (stop_java, "its process lives, but neither its query nor its Java has given a sign of life for"),
        (let_a_call_hang, "no micro-batch and no task has ended"),
    ],
)
def test_a_stream_that_hangs_is_ended_and_started_again(
    stream: Stream,
    hang: Callable[[Stream, list[psutil.Process]], Callable[[], None]],
    evidence: str,
) -> None:
    run = stream.wait_for_run()
    repair = hang(stream, run)
    wait_until(lambda: bool(stream.supervised.alarms), "it is found to be stuck")
    repair()
    stream.wait_for_run(other_than=run[0].pid)
    assert [each for each in run if each.is_running()] == []
    (told,) = stream.supervised.alarms
    assert (told.status, told.exit_code) == ("stuck", 1)
    assert evidence in str(told.error)
