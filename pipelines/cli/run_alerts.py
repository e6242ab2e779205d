"""Alerts of lag within `oncelake run`: `oncelake lag --alert` is started again and again beside the streams.

An evaluation is a process of its own. Whatever it waits for, a cluster, a lake or a hook, no stream does.
"""

import logging
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final

from pipelines.cli.options import CommonOptions
from pipelines.config.model import PipelineConfig
from pipelines.errors import InfrastructureError
from pipelines.lag.alerts import PipelineAlerts
from pipelines.runtime.notifications import hooks
from pipelines.steps.lag_alerts import send_pending, updated_alerts
from pipelines.supervision.child import Program
from pipelines.supervision.output import ProgramName
from pipelines.supervision.periodic_programs import Repeated, RunResult

_LAG: Final = "lag"
# Spark starts within seconds; a large bronze that speed has not read takes longer.
_SHORTEST_LIMIT: Final = timedelta(minutes=2)

_log = logging.getLogger(__name__)


def command_of(options: CommonOptions, job: str, *more: str) -> list[str]:
    """Return the program and arguments by which a job is started for a pipeline.

    Args:
        options: What the user said.
        job: The name of the job.
        more: Further arguments.
    """
    words = ["--pipeline", options.pipeline, "--env", options.env, "--log-format", options.log_format]
    words += ["--conf-dir", str(options.conf_dir), "--contracts-dir", str(options.contracts_dir)]
    words += [f"--set={setting}" for setting in options.settings]
    words += ["--verbose"] if options.verbose else []
    return [sys.executable, "-m", "pipelines.cli", job, *words, *more]


def is_evaluated(config: PipelineConfig) -> bool:
    """Return whether the lag of a pipeline is evaluated: if an alert has somebody to go to."""
    return config.lag.evaluate_every is not None and any(hooks(config.notify))


def repeated(configs: Mapping[str, PipelineConfig], options: Mapping[str, CommonOptions]) -> list[Repeated]:
    """Return the evaluations of pipelines, the first an interval from now, and each at its own time.

    Args:
        configs: By pipeline, those for which `is_evaluated` is true.
        options: What the user said, by pipeline.
    """
    found = []
    for place, (name, config) in enumerate(configs.items()):
        every = config.lag.evaluate_every or timedelta()
        command = command_of(options[name], _LAG, "--alert", "--format", "json")
        found.append(
            Repeated(
                Program(ProgramName(name, _LAG), command),
                every.total_seconds(),
                max(every, _SHORTEST_LIMIT).total_seconds(),
                first_after_s=every.total_seconds() * (1 + place / len(configs)),
            )
        )
    return found


@dataclass(frozen=True)
class LagEvaluations:
    """What became of the evaluations of a pipeline's lag.

    Attributes:
        pipeline: The pipeline.
        made: How many there were.
        failed: How many of these could not find out the lag.
        raised: The alerts that are raised, as far as known.
        own: The alert of evaluations that could not even keep their alerts.
    """

    pipeline: str
    made: int = 0
    failed: int = 0
    raised: Collection[str] = ()
    own: PipelineAlerts = field(default_factory=PipelineAlerts)

    @property
    def lines(self) -> list[str]:
        """The same in words; nothing if there was none."""
        failed = f", {self.failed} failed" if self.failed else ""
        return [f"{self.pipeline}: lag evaluated {self.made} times{failed}"] if self.made else []


class RunAlerts:
    """Takes what evaluations have told, and tells people itself of those that could not keep their alerts.

    An evaluation keeps its alerts in the lake, where the next one finds them, whoever makes it. One that was
    killed, or whose Java does not start, or that cannot read the lake, has kept nothing: these are counted
    here, in memory, by the same rules.

    Args:
        configs: Of the pipelines.
    """

    def __init__(self, configs: Mapping[str, PipelineConfig]) -> None:
        self.configs = configs
        # Of each pipeline the thread of its evaluations alone changes what is known.
        self.evaluations = {name: LagEvaluations(name) for name in configs}

    def take(self, name: ProgramName, result: RunResult) -> None:
        """Take what came of an evaluation; may call hooks, each of which has a bounded time.

        Args:
            name: Names the pipeline.
            result: What the evaluation printed.
        """
        known, config = self.evaluations[name.pipeline], self.configs[name.pipeline]
        raised = result.printed.get("alerts")
        if result.failure:
            _log.warning("%s: the lag was not evaluated: %s", name, result.failure)
            known = replace(known, failed=known.failed + 1)
        if isinstance(raised, Mapping):
            self._log_changes(name, known.raised, raised)
            known = replace(known, raised=tuple(raised))
        lost = None if isinstance(raised, Mapping) else InfrastructureError(result.failure or "no result")
        own = updated_alerts(known.own, config, lost or [])
        known = replace(known, made=known.made + 1, own=own)
        # Before hooks are called: they take time.
        self.evaluations[name.pipeline] = known
        self.evaluations[name.pipeline] = replace(known, own=send_pending(own, config))

    def _log_changes(self, name: ProgramName, before: Collection[str], now: Collection[str]) -> None:
        for subject in sorted({*now} - {*before}):
            _log.warning("%s: alert: %s; see: oncelake lag", name, subject)
        for subject in sorted({*before} - {*now}):
            _log.info("%s: no alert any more: %s", name, subject)


def summary_of_alerts(evaluations: Mapping[str, LagEvaluations]) -> dict[str, Any]:
    """Tell how often the lag of pipelines was evaluated.

    Args:
        evaluations: By pipeline.

    Returns:
        `lag`: for each pipeline how many evaluations there were, and how many failed; nothing if no lag is
        evaluated.
    """
    told = [
        {"pipeline": each.pipeline, "evaluations": each.made, "failed": each.failed}
        for each in evaluations.values()
    ]
    return {"lag": told} if told else {}
