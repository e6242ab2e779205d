"""What a running demo consists of, and the jobs as it calls them."""

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from demo.folder import DemoFolder
from demo.narration import Narrator
from demo.processes import Job
from demo.replay import Plan
from pipelines.config.loader import load_config
from pipelines.config.model import PipelineConfig

ROOT = Path(__file__).resolve().parent.parent
PIPELINE = "flights"

# A JVM that lives for half a minute spends most of it on compiling what it will not run again: this
# saves two fifths of the processor time of a small job. For a year's data the full compiler pays off.
BRIEF_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
# The same holds for Spark's compiling of its plans.
BRIEF_SPARK = (
    "spark.conf.spark.sql.codegen.wholeStage=false",
    "spark.conf.spark.sql.codegen.factoryMode=NO_CODEGEN",
)
_MINUTES = 60.0


@dataclass(frozen=True)
class Cast:
    """What a running demo consists of.

    Attributes:
        plan: What is sent, and the truth.
        folder: Where everything is.
        servers: The broker's address.
        topic: The demo's topic.
        narrator: Who tells it.
        brief: Whether there is so little data that nothing is worth compiling for it.
    """

    plan: Plan
    folder: DemoFolder
    servers: str
    topic: str
    narrator: Narrator
    brief: bool

    @property
    def settings(self) -> tuple[str, ...]:
        """What differs from the configuration in `conf/`, as `--set` takes it."""
        return (
            f"kafka.bootstrap_servers={self.servers}",
            f"kafka.topic={self.topic}",
            f"lake.root={self.folder.lake}",
            "ingest.trigger_interval=1 second",
            "speed.trigger_interval=1 second",
            *(BRIEF_SPARK if self.brief else ()),
        )

    @property
    def patience(self) -> float:
        """Seconds that a job may need at most: some minutes, and more for more records."""
        return 4 * _MINUTES + self.plan.truth.sent / 200

    def config(self) -> PipelineConfig:
        """Return the configuration that the jobs have."""
        return load_config(PIPELINE, conf_dir=ROOT / "conf", settings=self.settings)

    def job(self, command: str, *flags: str) -> Job:
        """Prepare a job just as a user would call it.

        Args:
            command: `ingest_stream` and so on; `quarantine replay` is two words.
            flags: Its own flags.

        Returns:
            The job, not started.
        """
        settings = [word for setting in self.settings for word in ("--set", setting)]
        words = [sys.executable, "-m", "pipelines.cli", *command.split(), "--pipeline", PIPELINE]
        return Job(command.replace(" ", "_"), [*words, *settings, *flags], ROOT, self.folder.logs)

    def run(self, job: Job, stack: ExitStack) -> None:
        """Run a job to its good end.

        Args:
            job: Not started.
            stack: Ends the job, should the demo end early.

        Raises:
            InfrastructureError: It failed or took too long; the message names its log.
        """
        stack.callback(job.end)
        job.start()
        job.wait(self.patience)
