"""Faults that strike while a slot is published, in Spark's own processes, each once."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, Literal
from unittest.mock import patch

import psutil
import pyarrow as pa
from confluent_kafka import KafkaException, Producer
from pyspark import TaskContext

from pipelines.fault_points import Point, armed
from pipelines.publishing import slot_writer
from pipelines.publishing.slot_connections import Connection
from pipelines.publishing.slot_writer import SlotTask, write_slot

Moment = Point | Literal["after the task", "after the batch"]
"""A point of the task, or of what calls the sink in the driver."""
Victim = Literal["task", "worker", "executor", "driver", "broker", "zombie", "straggler"]

IN_TASKS: Final = (Point.SLOT_TAKEN, Point.ROWS_PRODUCED, Point.SLOT_SENT, Point.SLOT_COMMITTED)
IN_DRIVER: Final = ("after the task", "after the batch")
_PATIENCE_S: Final = 120


@dataclass(frozen=True)
class Fault:
    """What happens once.

    Attributes:
        batch: in which micro-batch.
        slot: in which slot, where it strikes a task.
        point: when.
        victim: who.
        marker: a file that is made when it happens, with the attempt at the task.
        driver: the process id of the driver's Python.
    """

    batch: int
    slot: int
    point: Moment
    victim: Victim
    marker: str
    driver: int = 0

    def strike(self) -> None:
        """Makes it happen, if it has not happened."""
        try:
            with Path(self.marker).open("x") as said:
                said.write(_attempt())
        except FileExistsError:
            return
        match self.victim:
            case "task":
                raise RuntimeError("a fault of the test")
            case "worker":
                os.kill(os.getpid(), signal.SIGKILL)
            case "executor":
                # The Python worker was forked by a daemon that the executor's JVM has started.
                psutil.Process().parents()[1].kill()
                time.sleep(_PATIENCE_S)
            case "driver":
                kill_tree(self.driver)
            case "broker":
                Path(f"{self.marker}.struck").touch()
                _wait_for(f"{self.marker}.fixed")
            case "straggler":
                # Spark makes a copy of a task that takes so long, and ends this one when the copy is done.
                _wait_for(f"{self.marker}.done")
            case "zombie":
                # What is stopped in a group that loses its last parent would be continued, and hung up.
                os.setsid()
                Path(f"{self.marker}.pid").write_text(str(os.getpid()))
                os.kill(os.getpid(), signal.SIGSTOP)


def kill_tree(pid: int) -> None:
    """Kills a process and all that it has started; ourselves last, if we are among them."""
    process = psutil.Process(pid)
    everybody = [*process.children(recursive=True), process]
    for each in everybody:
        # One that is stopped is the zombie, which survives.
        if each.pid != os.getpid() and each.status() != psutil.STATUS_STOPPED:
            each.kill()
    os.kill(os.getpid(), signal.SIGKILL)


def _wait_for(path: str) -> None:
    until = time.monotonic() + _PATIENCE_S
    while not Path(path).exists() and time.monotonic() < until:
        time.sleep(0.05)


@dataclass(frozen=True)
class _Noting(Connection):
    """A connection that knows which producers it has given."""

    taken: list[Producer] = field(default_factory=list)

    def producer(self, slot: int) -> Producer:
        producer = super().producer(slot)
        self.taken.append(producer)
        return producer


def struck_write_slot(
    batches: Iterator[pa.RecordBatch], task: SlotTask, faults: Sequence[Fault], is_blind: bool
) -> Iterator[pa.RecordBatch]:
    """`write_slot`, with a fault in it.

    Args:
        batches: as for `write_slot`.
        task: as for `write_slot`.
        faults: what happens; in each slot of a micro-batch once at most.
        is_blind: whether progress is not looked at, to see that tests find the duplicates.
    """
    context = TaskContext.get()
    assert context is not None
    place = (task.done.next_batch - 1, context.partitionId())
    here = next((fault for fault in faults if (fault.batch, fault.slot) == place), None)
    blind: Callable[..., str] = lambda known, done, is_new: "publish"  # noqa: E731 - the signature matters
    with patch.object(slot_writer, "what_to_do", blind) if is_blind else nullcontext():
        yield from _struck(batches, task, here)


def _struck(
    batches: Iterator[pa.RecordBatch], task: SlotTask, fault: Fault | None
) -> Iterator[pa.RecordBatch]:
    if fault is None:
        yield from write_slot(batches, task)
        return
    connection, reached = _Noting(**vars(task.connection)), list[Point]()

    def come_to(point: Point) -> None:
        reached.append(point)
        if point != fault.point:
            return
        if point is Point.ROWS_PRODUCED:
            # What was produced so far is in the topic, and stays there.
            connection.taken[-1].flush(_PATIENCE_S)
        fault.strike()

    with ExitStack() as stack:
        for point in IN_TASKS:
            stack.enter_context(armed(point, partial(come_to, point)))
        try:
            yield from _first(
                write_slot(batches, replace(task, connection=connection)), Path(f"{fault.marker}.done")
            )
        except KafkaException as refused:
            if reached[-1:] == [Point.SLOT_SENT]:
                Path(f"{fault.marker}.refused").write_text(refused.args[0].name())
            raise


def _first(written: Iterator[pa.RecordBatch], done: Path) -> Iterator[pa.RecordBatch]:
    """Says which attempt at the task was the first to end."""
    for told in written:
        with suppress(FileExistsError), done.open("x") as said:
            said.write(_attempt())
        yield told


def _attempt() -> str:
    """Which attempt at a task this is; nothing in the driver."""
    context = TaskContext.get()
    return str(context.attemptNumber()) if context else ""


def striking(*faults: Fault, is_blind: bool = False) -> AbstractContextManager[object]:
    """Gives tasks a `write_slot` with faults in it, for the length of a block.

    Args:
        faults: what happens.
        is_blind: as for `struck_write_slot`.
    """
    # Not at the top: workers load this module, and need no session.
    from pipelines.publishing import transactional_sink

    # Spark sends it to its workers with the task: what is armed here is not armed there.
    struck = partial(struck_write_slot, faults=faults, is_blind=is_blind)
    return patch.object(transactional_sink, "write_slot", struck)
