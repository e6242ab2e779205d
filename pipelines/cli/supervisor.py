"""`oncelake run`: the streams of pipelines in one process group, started again after a failure."""

import logging
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NoReturn

import click

from pipelines.cli.job_runner import print_summary, set_up_logging
from pipelines.cli.options import CommonOptions, LogFormat, interval, log_options, place_options
from pipelines.cli.run_alerts import (
    LagEvaluations,
    RunAlerts,
    command_of,
    is_evaluated,
    repeated,
    summary_of_alerts,
)
from pipelines.cli.run_all import GRAVEST_FIRST
from pipelines.cli.terminal import harmless
from pipelines.config.loader import require_pipelines
from pipelines.config.model import NotifyConfig, PipelineConfig
from pipelines.config.streams import STREAMS, Query
from pipelines.errors import ConfigError, OncelakeError
from pipelines.runtime.file_lock import lock_file
from pipelines.runtime.notifications import alert
from pipelines.runtime.processes import ORPHAN_WITHIN_S, stop_signals
from pipelines.supervision.child import Program
from pipelines.supervision.output import Printer, ProgramName, label_json, label_text
from pipelines.supervision.periodic_programs import RepeatedPrograms
from pipelines.supervision.restarts import RestartPolicy
from pipelines.supervision.run_lock import run_locks
from pipelines.supervision.supervisor import StreamOutcome, Supervisor

_POLICY: Final = RestartPolicy()
# A process that is killed does not end at once.
_SETTLED_S: Final = 10.0
_MORE_LOADS: Final = 2
_LOAD_AGAIN_S: Final = 5.0

_log = logging.getLogger(__name__)


def _streams(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> tuple[Query, ...] | None:
    """Return the streams that a list names, in the order of the data; None if there is no list."""
    if text is None:
        return None
    named = {word.strip() for word in text.split(",")}
    if odd := sorted(named - STREAMS.keys()):
        raise click.BadParameter(f"expected some of {','.join(STREAMS)}, got {', '.join(map(repr, odd))}")
    return tuple(each for each in STREAMS if each in named)


def _window(context: click.Context, parameter: click.Parameter, text: str) -> timedelta:
    """Return an interval longer than zero."""
    if window := interval(context, parameter, text):
        return window
    raise click.BadParameter("expected an interval longer than zero")


@click.command("run")
@click.option(
    "--pipeline", "named", multiple=True, metavar="NAME", help="A pipeline. Repeatable. Give this or --all."
)
@click.option("--all", "everything", is_flag=True, help="All pipelines. Give this or --pipeline.")
@click.option(
    "--streams",
    callback=_streams,
    metavar="LIST",
    help="Streams to run, comma-separated: ingest,speed,publish. Default: all that the pipeline configures.",
)
@click.option(
    "--max-restarts",
    type=click.IntRange(min=0),
    default=_POLICY.most_restarts,
    show_default=True,
    help="Stop restarting a stream after this many restarts within --window.",
)
@click.option(
    "--window",
    callback=_window,
    default="2 hours",
    show_default=True,
    metavar="INTERVAL",
    help="The time in which restarts are counted.",
)
@place_options
@log_options
def run_streams(
    named: tuple[str, ...],
    everything: bool,
    streams: tuple[Query, ...] | None,
    **common: Any,
) -> NoReturn:
    """Run streams, and restart those that fail or are stuck.

    Runs the streams of one or more pipelines until SIGTERM, SIGHUP or Ctrl-C.
    """
    if everything == bool(named):
        raise click.UsageError("name pipelines with --pipeline, or take all with --all: one of the two")
    window: timedelta = common.pop("window")
    policy = RestartPolicy(most_restarts=common.pop("max_restarts"), window_s=window.total_seconds())
    log_format: LogFormat = common["log_format"]
    set_up_logging(log_format)
    began = time.monotonic()
    summary: dict[str, Any] = {
        "job": "run",
        "env": common["env"],
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    try:
        names = require_pipelines(common["conf_dir"], common["env"]) if everything else dict.fromkeys(named)
        planned = _plan([CommonOptions(pipeline=name, **common) for name in names], streams)
        outcomes, evaluated = _supervise(planned, policy)
    except OncelakeError as error:
        if log_format == "text":
            raise
        summary |= {"status": "failed", "error": str(error), "exit_code": error.exit_code}
    else:
        told = summary_of(outcomes)
        told["lines"] += [line for each in evaluated.values() for line in each.lines]
        summary |= {"pipelines": [*names], **told, **summary_of_alerts(evaluated)}
    summary["duration_s"] = round(time.monotonic() - began, 3)
    shown = {"pipeline": ", ".join(summary["pipelines"])} if log_format == "text" else {}
    print_summary({**summary, **shown}, log_format)
    sys.exit(summary["exit_code"])


@dataclass(frozen=True)
class _Planned:
    """A pipeline whose streams are to run; without its configuration if that is refused."""

    options: CommonOptions
    config: PipelineConfig | None
    refusal: OncelakeError | None
    streams: tuple[Query, ...]

    def outcomes(self) -> list[StreamOutcome]:
        """Return what becomes of its streams if it is refused."""
        if self.refusal is None:
            return []
        code, said = self.refusal.exit_code, str(self.refusal)
        names = [ProgramName(self.options.pipeline, stream) for stream in self.streams]
        return [StreamOutcome(name, "failed", code, 0, said) for name in names]


def _plan(pipelines: Sequence[CommonOptions], wanted: tuple[Query, ...] | None) -> list[_Planned]:
    """Return which streams are to run.

    A pipeline that is refused does not stop the others, and none of its streams runs: nobody knows which
    these are, or whom to tell of them. What gave no answer, as a command that fetches a secret, is asked
    again.

    Raises:
        OncelakeError: All pipelines are refused.
        ConfigError: None of them has any of the streams.
    """
    planned = [_planned(options, wanted) for options in pipelines]
    if planned[0].refusal and all(each.refusal for each in planned):
        raise planned[0].refusal
    for _ in range(_MORE_LOADS):
        if not any(each.refusal for each in planned):
            break
        time.sleep(_LOAD_AGAIN_S)
        planned = [_planned(each.options, wanted) if each.refusal else each for each in planned]
    for each in planned:
        if each.refusal:
            _log.error(
                "%s: its streams are not started: %s. When it is fixed, start them with: oncelake run"
                " --pipeline %s",
                *(each.options.pipeline, each.refusal, each.options.pipeline),
            )
    if not any(each.streams for each in planned):
        raise ConfigError(
            "--streams publish: no pipeline has a section publish; add it, or name other streams"
        )
    return planned


def _planned(options: CommonOptions, wanted: tuple[Query, ...] | None) -> _Planned:
    config, refusal = None, None
    try:
        config, _ = options.load()
    except OncelakeError as error:
        refusal = error
    return _Planned(options, config, refusal, _streams_of(config, wanted))


def _streams_of(config: PipelineConfig | None, wanted: tuple[Query, ...] | None) -> tuple[Query, ...]:
    if config is None:
        return wanted or tuple(each for each in STREAMS if each != "publish")
    return tuple(each for each in wanted or config.streams if each in config.streams)


def _supervise(
    planned: Sequence[_Planned], policy: RestartPolicy
) -> tuple[list[StreamOutcome], Mapping[str, LagEvaluations]]:
    """Return what became of the streams, and what of the evaluations of the lag of their pipelines."""
    options = planned[0].options
    configs = {each.options.pipeline: each.config for each in planned if each.config}
    alarms = Alarms(configs, options.env)
    printer = Printer(label_json if options.log_format == "json" else label_text)
    supervisor = Supervisor(policy, printer, alarms.tell)
    programs = [
        program
        for each in planned
        if each.config
        for program in stream_programs(each.options, each.config, each.streams)
    ]
    names = [each.name for each in programs]
    files = {name: lock_file(configs[name.pipeline].root, name.pipeline, name.stream) for name in names}
    alerts = RunAlerts({name: config for name, config in configs.items() if is_evaluated(config)})
    evaluations = repeated(alerts.configs, {each.options.pipeline: each.options for each in planned})
    with run_locks(files, ORPHAN_WITHIN_S + _SETTLED_S, _log.warning) as locks:
        for number in stop_signals():
            signal.signal(number, lambda *_: supervisor.request_stop())
        with RepeatedPrograms(evaluations, printer, alerts.take):
            outcomes = supervisor.run([replace(each, lock=locks.get(each.name)) for each in programs])
    printer.flush()
    alarms.wait()
    refused = [outcome for each in planned for outcome in each.outcomes()]
    return [*outcomes, *refused], alerts.evaluations


def stream_programs(
    options: CommonOptions, config: PipelineConfig, streams: Sequence[Query]
) -> Iterator[Program]:
    """Yield the programs that run streams of a pipeline; those of several clusters have one for each.

    Args:
        options: What the user said.
        config: The configuration that it leads to.
        streams: The streams.
    """
    stuck_after = config.run.stuck_after
    for stream in streams:
        for cluster in _clusters(config, stream):
            name = f"{stream}@{cluster}" if cluster else stream
            more = [f"--cluster={cluster}"] if cluster else []
            yield Program(
                ProgramName(options.pipeline, name),
                command_of(options, STREAMS[stream].job, *more),
                stuck_after_s=stuck_after.total_seconds() if stuck_after else None,
            )


def _clusters(config: PipelineConfig, stream: Query) -> tuple[str | None, ...]:
    """Return for which clusters a stream runs, each in a process of its own; None is the first, or all."""
    if stream != "ingest":
        return (None,)
    return tuple(source.cluster for source in config.sources() if not source.kafka.retired)


@dataclass
class Alarms:
    """Calls the hooks of a pipeline when one of its streams is given up or stuck, while the others go on.

    What holds the stream up may keep a hook from being reached as well, so one that fails is called again.

    Attributes:
        configs: By pipeline.
        env: The environment.
        again_s: After how many seconds a hook that failed is called again.
    """

    configs: Mapping[str, PipelineConfig]
    env: str
    again_s: float = 60.0
    _calls: list[threading.Thread] = field(default_factory=list)
    _ends: threading.Event = field(default_factory=threading.Event)

    def tell(self, outcome: StreamOutcome) -> None:
        """Call the hooks in another thread."""
        if config := self.configs.get(outcome.name.pipeline):
            summary = {"job": "run", "env": self.env, **_document(outcome)}
            call = threading.Thread(target=self._call, args=(config.notify, summary))
            self._calls.append(call)
            call.start()

    def wait(self) -> None:
        """Wait for hooks that are being called; each has a bounded time, and is not called again."""
        self._ends.set()
        for call in self._calls:
            call.join()

    def _call(self, config: NotifyConfig, summary: Mapping[str, Any]) -> None:
        failed = alert(config, summary)
        while failed and not self._ends.wait(self.again_s):
            failed = alert(config, summary, failed)


def summary_of(outcomes: Sequence[StreamOutcome]) -> dict[str, Any]:
    """Tell what became of streams.

    Args:
        outcomes: Of each stream.

    Returns:
        `status`: `stopped`, or `failed` if a stream was given up; `exit_code`: the gravest; `streams`: what
        became of each; `lines`.
    """
    return {
        "status": "failed" if any(each.status == "failed" for each in outcomes) else "stopped",
        "exit_code": min((each.exit_code for each in outcomes), key=GRAVEST_FIRST.index),
        "streams": [_document(each) for each in outcomes],
        "lines": [_line(each) for each in outcomes],
    }


def _document(outcome: StreamOutcome) -> dict[str, Any]:
    return {
        "pipeline": outcome.name.pipeline,
        "stream": outcome.name.stream,
        "status": outcome.status,
        "exit_code": outcome.exit_code,
        "restarts": outcome.restarts,
        **({"error": outcome.error} if outcome.error else {}),
    }


def _line(outcome: StreamOutcome) -> str:
    error = f": {harmless(outcome.error)}" if outcome.error else ""
    return f"{outcome.name}: {outcome.status}, {outcome.restarts} restarts{error}"
