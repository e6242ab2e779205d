"""Runs a job: sets up the log, loads what the user named, starts Spark, ends with one summary."""

import json
import logging
import signal
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, NoReturn

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipelines.cli.options import CommonOptions, LogFormat
from pipelines.cli.terminal import harmless, harmless_lines, print_error
from pipelines.config.model import PipelineConfig
from pipelines.contracts.contract import DataContract
from pipelines.errors import OncelakeError
from pipelines.runtime.notifications import notify
from pipelines.runtime.processes import stop_signals
from pipelines.runtime.run_events import RunEvents, begin_events
from pipelines.spark.failures import cause, explain_failure
from pipelines.spark.log_store import check_put_if_absent
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.preflight import (
    check_conditions,
    check_executors,
    check_patterns,
    check_queries,
    check_zone,
)
from pipelines.spark.session import spark_session, stop_session
from pipelines.steps.damaged_logs import damage_behind

Body = Callable[[Pipeline, str], Mapping[str, Any]]
ArgumentCheck = Callable[[PipelineConfig, DataContract], None]


class JobFailed(OncelakeError):
    """A failure of which a command tells more than its message.

    Args:
        failure: What kept the command from its end; the exit code is that of its kind.
        summary: What there is to tell all the same.
        message: The message, if not that of the failure.

    Attributes:
        summary: What there is to tell, for the JSON summary.
    """

    def __init__(
        self, failure: OncelakeError, summary: Mapping[str, Any], message: str | None = None
    ) -> None:
        super().__init__(message or str(failure))
        self.exit_code = failure.exit_code
        self.summary = dict(summary)


@dataclass(frozen=True)
class Job:
    """A command that works on a pipeline.

    Attributes:
        name: Its name.
        body: Does the work; gets pipeline and run id, returns its summary.
        check: Looks at arguments once configuration and contract are known, before Spark starts.
        is_stream: Whether it runs until it is stopped, so that a signal to stop is a good end.
        notifies: Whether the hooks of the configuration are called on failure.
    """

    name: str
    body: Body
    check: ArgumentCheck | None = None
    is_stream: bool = False
    notifies: bool = False


@dataclass(frozen=True)
class Opening:
    """A pipeline whose configuration and contract are read, and whose session has not started.

    Attributes:
        config: The configuration.
        contract: The contract.
        start: Starts the session, and makes sure that it can keep the contract.
    """

    config: PipelineConfig
    contract: DataContract
    start: Callable[[], Pipeline]


@dataclass(frozen=True)
class Examination:
    """A command that looks at a pipeline and has something to say even if no session starts.

    Attributes:
        name: Its name.
        body: Does the work; gets the opening and the run id, returns its summary.
    """

    name: str
    body: Callable[[Opening, str], Mapping[str, Any]]
    check: ClassVar[None] = None
    is_stream: ClassVar[bool] = False
    notifies: ClassVar[bool] = False


def run_job(job: Job | Examination, options: CommonOptions, output: LogFormat | None = None) -> NoReturn:
    """Run a job to its end and leave the process with the exit code that its outcome has.

    Args:
        job: The job.
        options: What the user said.
        output: How the summary is printed; as the log if it is None.
    """
    set_up_logging(options.log_format)
    summary = run_pipeline(job, options, StopRequest())
    stop_session()
    print_summary(summary, output or options.log_format)
    sys.exit(summary["exit_code"])


def run_pipeline(
    job: Job | Examination, options: CommonOptions, stop_request: "StopRequest"
) -> dict[str, Any]:
    """Run a job for one pipeline, whatever comes of it; the Spark session is left running.

    Args:
        job: The job.
        options: What the user said.
        stop_request: Whether the process has been asked to stop; if so, the run does nothing.

    Returns:
        The summary, with `status` (`done`, `failed`, `stopped`) and `exit_code`.
    """
    began, run_id = time.monotonic(), uuid.uuid4().hex[:12]
    summary: dict[str, Any] = {
        "job": job.name,
        "pipeline": options.pipeline,
        "env": options.env,
        "run_id": run_id,
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    attempt = _Attempt(job, options, stop_request)
    outcome = attempt.run(run_id)
    if not outcome:
        code = 0 if job.is_stream else OncelakeError.exit_code
        outcome = {"status": "stopped", "exit_code": code}
    summary |= outcome | {"duration_s": round(time.monotonic() - began, 3)}
    if attempt.events:
        attempt.events.end(summary)
    if job.notifies and attempt.config:
        notify(attempt.config.notify, summary)
    return summary


@dataclass
class _Attempt:
    """A job for one pipeline, and what is known of it.

    Attributes:
        job: The job.
        options: What the user said.
        stop_request: Whether the process has been asked to stop.
        config: The configuration, once it is read.
        events: What sends how the job ends, once it has begun and if somebody asks for it.
    """

    job: Job | Examination
    options: CommonOptions
    stop_request: "StopRequest"
    config: PipelineConfig | None = None
    events: RunEvents | None = None

    def run(self, run_id: str) -> dict[str, Any]:
        """Do the work; return its result, or nothing if it was asked to stop before it was done."""
        work = partial(self._work, run_id)
        return outcome_of(self.job.name, work, self.stop_request, self.options.log_format)

    def _work(self, run_id: str) -> Mapping[str, Any]:
        self.config, contract = self.options.load()
        if self.job.check:
            self.job.check(self.config, contract)
        self.events = begin_events(self.config, contract, self.job.name)
        opening = Opening(self.config, contract, partial(self._start, self.config, contract))
        if isinstance(self.job, Examination):
            return self.job.body(opening, run_id)
        pipeline = opening.start()
        check_put_if_absent(pipeline)
        try:
            return self.job.body(pipeline, run_id)
        except Exception as error:
            if damage := damage_behind(pipeline, error):
                raise damage from error
            raise

    def _start(self, config: PipelineConfig, contract: DataContract) -> Pipeline:
        """Start the session, and make sure that it can keep the contract.

        Raises:
            OncelakeError: It cannot, or does not start.
        """
        spark = spark_session(config, self.job.name, verbose=self.options.verbose)
        # Spark has put a handler of its own in place.
        self.stop_request.listen()
        _require_fit(spark, contract)
        return Pipeline(spark, config, contract)


def outcome_of(
    name: str, work: Callable[[], Mapping[str, Any]], stop_request: "StopRequest", log_format: LogFormat
) -> dict[str, Any]:
    """Do the work of a command, whatever comes of it; a failure is printed.

    Args:
        name: The command.
        work: Does it; returns what the summary says of it.
        stop_request: Whether the process has been asked to stop; it interrupts the work.
        log_format: How failures are printed.

    Returns:
        What the summary says, with `status` (`done`, `failed`) and `exit_code`; nothing if the process was
        asked to stop before the work was done.
    """
    outcome = dict[str, Any]()
    try:
        stop_request.listen()
        outcome = {"status": "done", **work(), "exit_code": 0}
    except OncelakeError as error:
        summary = error.summary if isinstance(error, JobFailed) else {}
        outcome = _failed(str(error), error.exit_code) | summary
        _tell(str(error), log_format)
    except KeyboardInterrupt:
        stop_request.to_stop = True
        stop_request.no_more()
    except Exception as error:  # noqa: BLE001 - whatever it is, the summary says it
        stop_request.no_more()
        # A signal goes to the whole process group, so the JVM may have ended first.
        if not stop_request.to_stop:
            outcome = _unforeseen(error, name, log_format)
    finally:
        stop_request.no_more()
    return outcome


def _failed(error: str, code: int = OncelakeError.exit_code) -> dict[str, Any]:
    return {"status": "failed", "error": error, "exit_code": code}


def _require_fit(spark: SparkSession, contract: DataContract) -> None:
    """Make sure that the session can keep the contract.

    Raises:
        ContractError, ConfigError: It cannot.
    """
    check_zone(spark, contract)
    check_patterns(spark, contract)
    check_conditions(spark, contract)
    check_queries(spark, contract)
    check_executors(spark, contract)


def _unforeseen(error: Exception, job: str, log_format: LogFormat) -> dict[str, Any]:
    """Print an error that is not one of ours; return what the summary says of it."""
    if isinstance(error, PySparkException | Py4JJavaError):
        if explained := explain_failure(error):
            _tell(str(explained), log_format)
            return _failed(str(explained), explained.exit_code)
        # Its text is a trace of some hundred lines, of which one says what it was.
        message = f"Spark failed in {_steps(error)}: {cause(error)}"
        _tell(message, log_format)
        return _failed(message)
    logging.getLogger(__name__).error("%s failed with an unexpected error", job, exc_info=error)
    return _failed(f"{type(error).__name__}: {str(error)[:500]}")


def _tell(error: str, log_format: LogFormat) -> None:
    if log_format == "text":
        print_error(error)


def _steps(error: Exception) -> str:
    """Return the way of an error through our own modules, the last one last."""
    frames = ((frame, Path(frame.filename).parts) for frame in traceback.extract_tb(error.__traceback__))
    ours = [(frame, parts) for frame, parts in frames if "pipelines" in parts]
    return " > ".join(f"{frame.name} ({'/'.join(parts[-2:])}:{frame.lineno})" for frame, parts in ours[-3:])


def refuse_unfit_expectations(config: PipelineConfig, contract: DataContract) -> None:
    """See to it, before a job that audits starts, that Great Expectations takes what people wrote.

    Raises:
        ConfigError: It does not.
    """
    if contract.expectations:
        # It takes seconds to import; the audit needs it anyhow.
        from pipelines.expectations.runner import refuse_unfit

        refuse_unfit(contract)


class StopRequest:
    """Whether SIGTERM, SIGHUP or Ctrl-C has come; while a run listens, the first interrupts it."""

    def __init__(self) -> None:
        self.to_stop = False
        self.no_more()

    def listen(self) -> None:
        """Let the first of these signals interrupt what runs, from now on; also one that came before."""
        for number in stop_signals():
            signal.signal(number, self._interrupt)
        if self.to_stop:
            raise KeyboardInterrupt

    def no_more(self) -> None:
        """Note signals without an interruption, from now on: what is left is to say how the run ended."""
        for number in stop_signals():
            signal.signal(number, self._remember)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if not self.to_stop:
            self.to_stop = True
            raise KeyboardInterrupt

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.to_stop = True


def set_up_logging(log_format: LogFormat) -> None:
    """Send the log to standard error, as text or as one JSON object a line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        _JsonFormatter()
        if log_format == "json"
        else _TextFormatter("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")
    )
    # Py4J logs a stack trace for each Ctrl-C that comes while Java is asked, by the root's logger.
    handler.addFilter(lambda record: not record.getMessage().startswith("KeyboardInterrupt while"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("pipelines").setLevel(logging.INFO)
    # It would log a stack trace for each Ctrl-C.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)


class _TextFormatter(logging.Formatter):
    """Messages may quote what a registry, a broker or a hook has answered."""

    def format(self, record: logging.LogRecord) -> str:
        return harmless_lines(super().format(record))


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def print_summary(summary: dict[str, Any], log_format: LogFormat) -> None:
    """Print how a job ended: as one JSON object, or in lines for people."""
    if log_format == "json":
        print(json.dumps(summary, default=str), flush=True)
        return
    job = f"{summary['job']} {harmless(summary['pipeline'])}"
    lines = [f"{job}: {summary['status']} in {summary['duration_s']:.1f} s"]
    lines += [
        f"  {key.replace('_', ' '):<20} {value:>12,}" for key, value in summary.get("counts", {}).items()
    ]
    lines += [f"  {line}" for line in summary.get("lines", [])]
    # What waits until Python ends can no longer change the exit code as it should.
    print("\n".join(lines), flush=True)
