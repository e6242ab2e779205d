"""The jobs and commands of a pipeline in a run, as an operator would call them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from chaos.desk import Desk
from chaos.jobs import CHAOS, Job
from chaos.registry import Registry
from chaos.releases import Release
from chaos.traffic import DAYS
from chaos.values import JSON, WITH_SCHEMAS, AvroValues, Values
from pipelines.publishing.checkpoint_note import FIRST_START
from pipelines.spark.checkpoints import note_path
from testbed.short_lived_settings import BRIEF_SPARK

_EXECUTOR_MB: Final = 600
JOBS: Final = {"ingest": "ingest_stream", "speed": "speed_stream", "publish": "publish_stream"}


@dataclass(frozen=True)
class Site:
    """Where the pipelines of a run are.

    Attributes:
        folder: of the run.
        servers: of the cluster.
        entry: what Python runs as `oncelake`.
        environment: additions to that of jobs.
        registry: the schema registry; None without one.
        desk: runs what an operator calls; None if each command is a process of its own.
        settings: of all jobs, as `--set` takes them.
        release: the code that jobs run from their next start on.
        executors: how many processes run the tasks of a stream or a nightly run; 0 where its JVM does.
    """

    folder: Path
    servers: str
    entry: Sequence[str] = ("-m", "pipelines.cli")
    environment: Mapping[str, str] = field(default_factory=dict)
    registry: Registry | None = None
    desk: Desk | None = None
    settings: Sequence[str] = BRIEF_SPARK
    release: Release = field(default_factory=Release)
    executors: int = 0

    @property
    def lake(self) -> Path:
        """The folder of the lake."""
        return self.folder / "lake"

    @property
    def logs(self) -> Path:
        """The folder of what the jobs say."""
        return self.folder / "logs"

    def checkpoint(self, name: str) -> Path:
        """Return the checkpoint of a stream.

        Args:
            name: `PIPELINE/QUERY`.
        """
        return self.lake / "ops" / "checkpoints" / name

    def publishes(self, pipeline: str) -> bool:
        """Return whether the stream that publishes a pipeline has been started, of whatever release it is."""
        checkpoint = self.checkpoint(f"{pipeline}/publish")
        note = Path(note_path(str(checkpoint)))
        return (checkpoint / "metadata").exists() or (note.exists() and FIRST_START in note.read_text())

    def values(self, pipeline: str) -> Values:
        """Return the value format of a pipeline."""
        if self.registry and pipeline in WITH_SCHEMAS:
            return AvroValues(self.registry.ids)
        return JSON

    def stream(self, pipeline: str, query: str) -> Job:
        """Return the job of a stream, not started."""
        return self._large(self.job(f"{pipeline}/{query}", pipeline, JOBS[query]))

    def nightly(self, pipeline: str) -> Job:
        """Return the nightly run from the first day on, not started; `--to` is missing."""
        night = self.job(f"{pipeline}/nightly", pipeline, "nightly_batch", "--from", str(DAYS[0]))
        return self._large(night)

    def _large(self, job: Job) -> Job:
        """Let executors run the tasks of a job, if there are any: Spark's own cluster of workers."""
        if self.executors:
            master = f"spark.master=local-cluster[{self.executors},1,{_EXECUTOR_MB}]"
            memory = f"spark.conf.spark.executor.memory={_EXECUTOR_MB}m"
            job.words = [*job.words, "--set", master, "--set", memory]
        return job

    def job(self, name: str, pipeline: str, command: str, *options: str) -> Job:
        """Return a job or command, not started.

        Args:
            name: its name in the journal.
            pipeline: the pipeline.
            command: such as `checkpoint reset`.
            options: its own options.
        """
        settings = [f"kafka.bootstrap_servers={self.servers}", f"lake.root={self.lake}", *self.settings]
        if self.registry and pipeline in WITH_SCHEMAS:
            settings.append(f"registry.url={self.registry.url}")
        words = [*command.split(), "--pipeline", pipeline]
        words += ["--conf-dir", str(CHAOS / "conf"), "--contracts-dir", str(CHAOS / "contracts")]
        words += [word for setting in settings for word in ("--set", setting)]
        return Job(name, [*words, *options], self.logs, self.entry, self.environment, self.release)

    def errand(self, name: str, pipeline: str, command: str, *options: str) -> Job:
        """Return a command as an operator calls it, not started; the arguments are those of `job`."""
        errand = self.job(name, pipeline, command, *options)
        if self.desk:
            errand.entry = self.desk.entry
        return errand
