"""`python -m benchmarks.peers`: Oncelake beside other ways to deduplicate a topic, on the same records.

Each peer runs on two sizes of topic; the difference is what an event costs it, without what its start costs.
Then it is killed with `kill -9` when it has committed rows, and started again, and its rows are counted.
"""

import json
import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from benchmarks.events import PARTITIONS, Truth
from benchmarks.peers.catalogue import PEERS, Peer
from benchmarks.peers.environment import jars_of, python_of, variables_of
from benchmarks.peers.trial import Order, Outcome, Task, outcome
from benchmarks.results import machine
from benchmarks.topic import fill_topic
from demo.topic import create_topic, delete_topic
from pipelines.errors import InfrastructureError
from pipelines.runtime.local_broker import broker
from pipelines.runtime.processes import graceful_shutdown

_OUT: Final = Path(__file__).parents[1] / "out"
# For what takes a minute or two. Some programs, started again after a kill, wait for ever.
_WITHIN_S: Final = 600.0
_COLUMNS: Final = (
    "peer",
    "µs CPU/event",
    "without compilers",
    "wall s",
    "CPU s",
    "peak MB",
    "result",
    "after kill -9",
)


class _Hung(InfrastructureError):
    """A program has not ended for so long that it was killed."""


@dataclass(frozen=True)
class Measured:
    """What was measured of a peer.

    Attributes:
        label: how tables call it.
        why_not: why it cannot run here; None if it can.
        marginal_us: CPU microseconds for each further event.
        warm_us: the same without Java's compilers.
        wall_s: seconds for the larger topic, its start included.
        cpu_s: CPU seconds for it.
        peak_mb: the largest resident memory of all its processes.
        result: its rows of the larger topic.
        after_kill: its rows of the larger topic, after it was killed and started again.
        at_kill: rows that it had committed when it was killed; None where only its end shows them.
        has_hung: whether it had not ended so long after it was started again that it was killed once more.
    """

    label: str
    why_not: str | None = None
    marginal_us: float | None = None
    warm_us: float | None = None
    wall_s: float | None = None
    cpu_s: float | None = None
    peak_mb: float | None = None
    result: Outcome | None = None
    after_kill: Outcome | None = None
    at_kill: int | None = None
    has_hung: bool = False

    def cells(self) -> list[str]:
        """Return the cells of its row under the columns of the table."""
        if self.why_not:
            return [self.label, f"cannot run here: {self.why_not}", *[""] * (len(_COLUMNS) - 2)]
        figures = (self.marginal_us, self.warm_us, self.wall_s, self.cpu_s, self.peak_mb)
        after_kill = _words(self.after_kill)
        if self.has_hung:
            after_kill += f", but did not end within {_WITHIN_S:.0f} s"
        return [
            self.label,
            *("" if figure is None else f"{figure:,.{0 if figure > 999 else 1}f}" for figure in figures),
            _words(self.result),
            after_kill + ("" if self.at_kill is None else f" ({self.at_kill:,} rows before)"),
        ]


def _words(found: Outcome | None) -> str:
    if found is None:
        return ""
    wrong = ((found.duplicates, "duplicates"), (found.missing, "missing"))
    return ", ".join(f"{number:,} {what}" for number, what in wrong if number) or "exact"


@dataclass(frozen=True)
class Bench:
    """Topics that are filled, and how they are read.

    Attributes:
        servers: where the cluster is.
        topics: by name, what each holds; the smallest first.
        folder: for what peers write.
        cores: how many each may use.
        batch_records: how many records each takes at once.
    """

    servers: str
    topics: dict[str, Truth]
    folder: Path
    cores: int
    batch_records: int

    def measure(self, name: str) -> Measured:
        """Return the cost of a peer, or why it cannot run here."""
        peer = PEERS[name]
        try:
            runs = [self._run(peer, topic) for topic in self.topics]
            small, large = (cost for cost, _ in (runs[0], runs[-1]))
            events = [truth.records for truth in self.topics.values()]
            further = (events[-1] - events[0]) / 1e6
            slope = warm = None
            if further:
                slope = (large["cpu_s"] - small["cpu_s"]) / further
                warm = slope - (large["compile_s"] - small["compile_s"]) / further
            measured = Measured(
                peer.label,
                marginal_us=slope,
                warm_us=warm,
                wall_s=large["wall_s"],
                cpu_s=large["cpu_s"],
                peak_mb=large["peak_mb"],
                result=runs[-1][1],
            )
            return self._killed(name, measured)
        except Exception as error:  # noqa: BLE001 - whatever it is, the others can be measured
            return Measured(peer.label, why_not=f"{type(error).__name__}: {error}")

    def _run(self, peer: Peer, topic: str) -> tuple[dict[str, Any], Outcome]:
        with self._place() as folder:
            cost = self._done(self._task(peer, topic, folder))
            return cost, outcome(peer, folder, self.topics[topic])

    def _killed(self, name: str, measured: Measured) -> Measured:
        """Kill a peer, start it again, and return what was measured with what became of that."""
        peer, topic = PEERS[name], next(reversed(self.topics))
        with self._place() as folder:
            killed = replace(self._task(peer, topic, folder), killed_peer=name)
            if killed.run()["exit"] != -signal.SIGKILL:
                raise InfrastructureError(f"it has ended before it was killed: {killed.complaint()}")
            before = None if peer.commits else outcome(peer, folder, self.topics[topic]).rows
            has_hung = False
            try:
                self._done(self._task(peer, topic, folder))
            except _Hung:
                has_hung = True
            after = outcome(peer, folder, self.topics[topic])
            return replace(measured, at_kill=before, after_kill=after, has_hung=has_hung)

    @contextmanager
    def _place(self) -> Iterator[Path]:
        folder = self.folder / uuid.uuid4().hex[:8]
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _task(self, peer: Peer, topic: str, folder: Path) -> Task:
        order = Order(
            self.servers, topic, str(folder), folder.name, self.cores, self.batch_records, jars_of(peer)
        )
        log = str(self.folder / f"{peer.program}.log")
        return Task(str(python_of(peer)), peer.program, asdict(order), variables_of(peer), log, _WITHIN_S)

    def _done(self, task: Task) -> dict[str, Any]:
        found = task.run()
        if found["exit"] == -signal.SIGKILL:
            raise _Hung(f"it did not end within {task.kill_after_s:.0f} s; see {task.log}")
        if found["exit"]:
            raise InfrastructureError(f"exit code {found['exit']}: {task.complaint()}; see {task.log}")
        return dict(found["cost"])


@click.command("peers")
@click.option(
    "--events", "sizes", default="1000000,3000000", show_default=True, help="Two sizes, with a comma between."
)
@click.option("--only", multiple=True, type=click.Choice(list(PEERS)), help="Repeatable. [default: all]")
@click.option("--cores", default=2, show_default=True)
@click.option("--batch-records", default=250_000, show_default=True, help="Records of a micro-batch.")
@click.option("--seed", default=1, show_default=True, help="The same seed gives the same events.")
@graceful_shutdown()
def main(sizes: str, only: tuple[str, ...], cores: int, batch_records: int, seed: int) -> None:
    """Measure peers on generated events; write each as soon as it is measured."""
    _OUT.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="peers-", dir=_OUT))
    path = _OUT / f"peers-{datetime.now(UTC):%Y%m%dT%H%M%S}.json"
    events = sorted(map(int, sizes.replace("_", "").split(",")))
    setup = {"events": events, "cores": cores, "batch_records": batch_records, "seed": seed}
    measured: list[Measured] = []
    try:
        with broker(folder / "broker") as running, _topics(running.bootstrap_servers, events, seed) as topics:
            bench = Bench(running.bootstrap_servers, topics, folder, cores, batch_records)
            for name in only or PEERS:
                print(f"{PEERS[name].label} ...", file=sys.stderr, flush=True)
                measured.append(bench.measure(name))
                print("  " + " | ".join(measured[-1].cells()), file=sys.stderr, flush=True)
                _write(path, setup, measured)
    finally:
        if measured:
            Console().print(_table(measured))
            print(f"written: {path} and .md; logs: {folder}")
        shutil.rmtree(folder / "broker", ignore_errors=True)


@contextmanager
def _topics(servers: str, sizes: list[int], seed: int) -> Iterator[dict[str, Truth]]:
    topics: dict[str, Truth] = {}
    try:
        for records in sizes:
            topic = f"oncelake-peers-{uuid.uuid4().hex[:8]}"
            create_topic(servers, topic, PARTITIONS)
            topics[topic] = fill_topic(servers, topic, records, seed)
        yield topics
    finally:
        for topic in topics:
            delete_topic(servers, topic)


def _table(measured: list[Measured]) -> Table:
    table = Table(*_COLUMNS, title="The same topic, the same cores")
    for one in measured:
        table.add_row(*one.cells())
    return table


def _write(path: Path, setup: dict[str, Any], measured: list[Measured]) -> None:
    told = {**machine(), **setup}
    content = {"setup": told, "peers": [asdict(one) for one in measured]}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    lines = ["# Peers", "", *(f"- {name}: {value}" for name, value in told.items()), ""]
    lines += [f"| {' | '.join(_COLUMNS)} |", f"|---{'|---:' * (len(_COLUMNS) - 1)}|"]
    lines += [f"| {' | '.join(one.cells())} |" for one in measured]
    path.with_suffix(".md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
