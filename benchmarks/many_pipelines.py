"""`python -m benchmarks.many_pipelines`: one night of many small pipelines, in one process."""

import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from benchmarks.aged_tables import Age, Aged
from benchmarks.meter import Meter
from pipelines.config.loader import load_config
from pipelines.formats.contract_files import load_contract
from pipelines.runtime.processes import graceful_shutdown
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.session import end_application, spark_session

_HERE: Final = Path(__file__).parent
_OUT: Final = _HERE / "out"
_LAYERS: Final = ("bronze", "speed", "quarantine")
_MOST_BATCHES_A_DAY: Final = 24
_DAY_S: Final = 86_400
_ROWS: Final = 8


@dataclass(frozen=True)
class Project:
    """A project of pipelines that are copies of each other, and its lake.

    Attributes:
        folder: holds both.
        pipelines: their number.
        cores: that Spark may use.
    """

    folder: Path
    pipelines: int
    cores: int

    @property
    def conf(self) -> Path:
        """Its configuration."""
        return self.folder / "conf"

    @property
    def settings(self) -> tuple[str, ...]:
        """What the configuration of the benchmarks leaves open."""
        return (
            f"lake.root={self.folder / 'lake'}",
            # Nobody asks it: what bronze holds is enough.
            "kafka.bootstrap_servers=localhost:9092",
            "batch.seal_by=bronze",
            f"spark.master=local[{self.cores}]",
        )

    def fill(self, age: Age) -> None:
        """Write configuration and tables; those of the first pipeline are made, the others copied."""
        shutil.copytree(_HERE / "conf", self.conf)
        model = self.conf / "base" / "pipelines" / "events.yml"
        first, *others = names = [f"events_{number:04}" for number in range(self.pipelines)]
        for name in names:
            shutil.copyfile(model, model.with_stem(name))
        model.unlink()
        config = load_config(first, conf_dir=self.conf, settings=self.settings, environ={})
        contract = load_contract(_HERE / "contracts" / config.contract)
        Aged(Pipeline(spark_session(config, "fill"), config, contract), age).write()
        # What it took is not the night's.
        end_application()
        for name in others:
            for layer in _LAYERS:
                shutil.copytree(self.folder / "lake" / layer / first, self.folder / "lake" / layer / name)

    def night(self, age: Age) -> dict[str, Any]:
        """Let all pipelines certify the last day; return the summary of the job."""
        command = [sys.executable, "-m", "pipelines.cli", "nightly_batch", "--all", f"--date={age.last}"]
        places = ["--conf-dir", str(self.conf), "--contracts-dir", str(_HERE / "contracts")]
        settings = (f"--set={setting}" for setting in self.settings)
        done = subprocess.run(
            [*command, *places, "--env=local", "--log-format=json", *settings],
            cwd=_HERE.parent,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode:
            raise click.ClickException(f"the night ended with exit code {done.returncode}: {done.stdout}")
        return dict(json.loads(done.stdout.splitlines()[-1]))


def day_of(records: int) -> Age:
    """Return a lake whose days have so many records each, in as many micro-batches as share them evenly."""
    most = range(_MOST_BATCHES_A_DAY, 0, -1)
    batches = next(n for n in most if records % n == 0 and _DAY_S % n == 0)
    return Age(0, 1, _DAY_S // batches, records // batches)


@click.command("many_pipelines")
@click.option("--pipelines", default=200, show_default=True, type=click.IntRange(min=1))
@click.option("--records", default=1_000, show_default=True, type=click.IntRange(min=1))
@click.option("--cores", default=2, show_default=True)
@graceful_shutdown()
def main(pipelines: int, records: int, cores: int) -> None:
    """Measure `nightly_batch --all` over pipelines with a day of so many records each."""
    age = day_of(records)
    _OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="many-", dir=_OUT) as folder:
        project = Project(Path(folder), pipelines, cores)
        Console(stderr=True).print(f"filling the tables of {pipelines} pipelines ...")
        project.fill(age)
        Console(stderr=True).print("the night ...")
        with Meter() as meter:
            summary = project.night(age)
    Console().print(night_table(summary["pipelines"], meter))


def night_table(nights: list[dict[str, Any]], meter: Meter) -> Table:
    """Return what the night had taken when so many pipelines were through."""
    made = Table(title="A night of small pipelines, one after the other in one process")
    for heading in ("pipelines", "wall s", "CPU s", "peak MB", "s for each since the row above"):
        made.add_column(heading, justify="right")
    before, wall_s = 0, 0.0
    for done in sorted({len(nights) * row // _ROWS for row in range(1, _ROWS + 1)} - {0}):
        last = nights[done - 1]
        end = datetime.fromisoformat(last["started_at"]) + timedelta(seconds=last["duration_s"])
        cost = meter.cost(until=end.timestamp())
        each = (cost.wall_s - wall_s) / (done - before)
        made.add_row(
            str(done), f"{cost.wall_s:.0f}", f"{cost.cpu_s:.0f}", f"{cost.peak_mb:,.0f}", f"{each:.1f}"
        )
        before, wall_s = done, cost.wall_s
    return made


if __name__ == "__main__":
    main()
