"""Runs pieces of work, each in fresh processes, and reads what they found."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.events import Truth
from benchmarks.items import ITEMS
from pipelines.errors import InfrastructureError

_ROOT: Final = Path(__file__).parent.parent


@dataclass(frozen=True)
class Setup:
    """What all pieces of work of a benchmark share.

    Attributes:
        folder: for lakes and logs.
        bootstrap_servers: where the topic is.
        topic: its name.
        truth: what it holds.
        cores: how many cores Spark is given.
        batch_records: the most records that a micro-batch takes, of speed about; 0 for no limit.
        settings: `key=value` pairs for Oncelake's own work.
    """

    folder: Path
    bootstrap_servers: str
    topic: str
    truth: Truth
    cores: int
    batch_records: int
    settings: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    """What one piece of work cost.

    Attributes:
        item: a name of `ITEMS`, or `build`: the part of the rebuild before its audit.
        events: how many records the topic holds.
        repetition: the number of the repetition.
        value_bytes: the length of all values of the topic, in bytes.
        wall_s: seconds from the start to the end; starting Spark is not in it.
        cpu_s: CPU seconds of all its processes in that time.
        compile_s: those of them that Java's compilers took.
        peak_mb: the largest resident memory of all its processes.
        details: micro-batches, tables, steps of nightly runs, megabytes read and written.
    """

    item: str
    events: int
    repetition: int
    value_bytes: int
    wall_s: float
    cpu_s: float
    compile_s: float
    peak_mb: float
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def run(self) -> tuple[int, int]:
        """Size and repetition: what was measured one after the other, beside the same reference."""
        return self.events, self.repetition


def chosen(only: Sequence[str]) -> list[str]:
    """Return the items to run, in order: those named (none: all), what they need, and the reference."""
    wanted = set(only or ITEMS) | {"raw"}
    for name in tuple(wanted):
        wanted.update(ITEMS[name].needs)
    return [name for name in ITEMS if name in wanted]


def run_items(setup: Setup, names: Sequence[str], repetition: int) -> Iterator[Result]:
    """Run items one after the other on empty lakes.

    Args:
        setup: what they share.
        names: from `chosen`.
        repetition: its number.

    Yields:
        The cost of each, when its result has been found right.

    Raises:
        InfrastructureError: a piece of work failed, or its result is wrong.
    """
    lakes = setup.folder / f"run-{setup.truth.records}-{repetition}"
    shutil.rmtree(lakes, ignore_errors=True)
    for name in names:
        yield from _run(setup, name, lakes, repetition)
    shutil.rmtree(lakes)


def _run(setup: Setup, name: str, lakes: Path, repetition: int) -> Iterator[Result]:
    parts = ("ingest", name) if name == "apart" else (name,)
    with ExitStack() as stack:
        workers = [
            stack.enter_context(_worker(setup, part, lakes / ITEMS[name].lake, check=part == name))
            for part in parts
        ]
        for worker in workers:
            worker.expect("ready")
        for worker in workers:
            worker.say("go")
        for worker in workers:
            worker.expect("done")
        workers[-1].say("check")
        found = [worker.result() for worker in workers]
    costs = [one["cost"] for one in found]
    end = max(cost["began"] + cost["wall_s"] for cost in costs)
    of_run = (setup.truth.records, repetition, setup.truth.value_bytes)
    yield Result(
        name,
        *of_run,
        end - min(cost["began"] for cost in costs),
        sum(cost["cpu_s"] for cost in costs),
        sum(cost["compile_s"] for cost in costs),
        sum(cost["peak_mb"] for cost in costs),
        {
            "queries": {query: value for one in found for query, value in one["queries"].items()},
            "tables": found[-1]["tables"],
            "steps": found[-1]["steps"],
            "mb": {way: sum(one["mb"][way] for one in found) for way in ("read", "written")},
        },
    )
    if build := found[-1].get("build"):
        costs_of_build = (build[part] for part in ("wall_s", "cpu_s", "compile_s", "peak_mb"))
        yield Result("build", *of_run, *costs_of_build)


class _Worker:
    """A process that does one piece of work, and speaks by lines."""

    def __init__(self, process: "subprocess.Popen[str]", name: str, log: Path) -> None:
        self._process = process
        self._name = name
        self._log = log

    def say(self, line: str) -> None:
        if self._process.stdin:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def expect(self, word: str) -> None:
        if self._hear() != word:
            raise self._failure()

    def result(self) -> dict[str, Any]:
        line = self._hear()
        if not line.startswith("{"):
            raise self._failure()
        return dict(json.loads(line))

    def _hear(self) -> str:
        return self._process.stdout.readline().strip() if self._process.stdout else ""

    def _failure(self) -> InfrastructureError:
        self._process.wait()
        said = [line for line in self._log.read_text(encoding="utf-8").splitlines() if line[:1].strip()]
        return InfrastructureError(
            f"{self._name} failed: {said[-1] if said else 'nothing said'}; see {self._log}"
        )


@contextmanager
def _worker(setup: Setup, item: str, lake: Path, *, check: bool) -> Iterator[_Worker]:
    lake.mkdir(parents=True, exist_ok=True)
    log = setup.folder / f"{item}.log"
    settings = [
        f"lake.root={lake}",
        f"spark.master=local[{setup.cores}]",
        f"kafka.bootstrap_servers={setup.bootstrap_servers}",
        f"kafka.topic={setup.topic}",
    ]
    if setup.batch_records:
        settings.append(f"kafka.max_offsets_per_trigger={setup.batch_records}")
        # Speed reads bytes of bronze: those of about as many records.
        stored = sum(path.stat().st_size for path in lake.glob("bronze/*/*.parquet"))
        if limit := stored * setup.batch_records // setup.truth.records:
            settings.append(f"speed.max_bytes_per_trigger={limit}b")
    if not ITEMS[item].reference:
        settings += setup.settings
    order = {"item": item, "settings": settings, "truth": asdict(setup.truth), "check": check}
    with (
        log.open("w", encoding="utf-8") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.work"],
            cwd=_ROOT,
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        try:
            worker = _Worker(process, item, log)
            worker.say(json.dumps(order))
            yield worker
        except BaseException:
            process.terminate()
            raise
