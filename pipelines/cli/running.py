"""Runs a job: sets up the log, loads what the user named, starts Spark, ends with one summary."""

import json
import logging
import signal
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from types import FrameType
from typing import Any, NoReturn

from pyspark.sql import SparkSession

from pipelines.cli.options import CommonOptions, LogFormat
from pipelines.config import PipelineConfig
from pipelines.contract import DataContract
from pipelines.errors import OncelakeError
from pipelines.ops.preflight import check_avro, check_conditions, check_patterns
from pipelines.session import spark_session

Body = Callable[[SparkSession, PipelineConfig, DataContract, str], dict[str, Any]]
Check = Callable[[PipelineConfig, DataContract], None]


def run_job(
    job: str,
    options: CommonOptions,
    body: Body,
    *,
    check: Check | None = None,
    is_done_when_stopped: bool = False,
) -> NoReturn:
    """Runs a job to its end and leaves the process with the exit code that its outcome has.

    Args:
        job: the job's name.
        options: what the user said.
        body: does the work; gets session, configuration, contract and run id, returns its summary.
        check: looks at arguments once configuration and contract are known, before Spark starts.
        is_done_when_stopped: whether SIGTERM or Ctrl-C is a good end, as it is for a stream.
    """
    set_up_logging(options.log_format)
    began, run_id = time.monotonic(), uuid.uuid4().hex[:12]
    summary: dict[str, Any] = {
        "job": job,
        "pipeline": options.pipeline,
        "env": options.env,
        "run_id": run_id,
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    code, spark = 0, None
    told = _Told()
    try:
        config, contract = options.load()
        if check:
            check(config, contract)
        spark = spark_session(config, job)
        # Spark has put a handler of its own in place.
        told.listen()
        check_patterns(spark, contract)
        check_conditions(spark, contract)
        check_avro(spark, contract)
        summary |= {"status": "done"} | body(spark, config, contract, run_id)
    except OncelakeError as error:
        code = error.exit_code
        summary |= {"status": "failed", "error": str(error)} | error.summary
        if options.log_format == "text":
            print(f"error: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        told.to_stop = True
        told.no_more()
    except Exception as error:
        told.no_more()
        # A process group is told as a whole, and the JVM may have gone first.
        if not told.to_stop:
            logging.getLogger(__name__).exception("%s failed for a reason it does not know", job)
            code = OncelakeError.exit_code
            summary |= {"status": "failed", "error": f"{type(error).__name__}: {str(error)[:500]}"}
    finally:
        told.no_more()
        if spark is not None:
            with suppress(Exception):
                spark.stop()
    if told.to_stop and "status" not in summary:
        code = 0 if is_done_when_stopped else OncelakeError.exit_code
        summary |= {"status": "stopped"}
    summary |= {"exit_code": code, "duration_s": round(time.monotonic() - began, 3)}
    _print_summary(summary, options.log_format)
    sys.exit(code)


def refuse_unfit_expectations(config: PipelineConfig, contract: DataContract) -> None:
    """Sees to it, before a job that audits starts, that Great Expectations takes what people wrote.

    Raises:
        ConfigError: it does not.
    """
    if contract.expectations:
        # It takes seconds to import; the audit needs it anyhow.
        from pipelines.quality.expectations import refuse_unfit

        refuse_unfit(contract)


class _Told:
    """Whether SIGTERM or Ctrl-C has come; the first interrupts what runs, later ones change nothing."""

    def __init__(self) -> None:
        self.to_stop = False
        self.listen()

    def listen(self) -> None:
        """From here on SIGTERM and Ctrl-C come here."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._first)

    def _first(self, number: int, frame: FrameType | None) -> None:
        if not self.to_stop:
            self.to_stop = True
            raise KeyboardInterrupt

    def no_more(self) -> None:
        """From here on nothing interrupts: what is left is to say how it ended."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)


def set_up_logging(log_format: LogFormat) -> None:
    """Sends the log to standard error, as text or as one JSON object a line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        _JsonFormatter()
        if log_format == "json"
        else logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("pipelines").setLevel(logging.INFO)
    # It would log a stack trace for each Ctrl-C.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)


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


def _print_summary(summary: dict[str, Any], log_format: LogFormat) -> None:
    if log_format == "json":
        print(json.dumps(summary, default=str), flush=True)
        return
    print(f"{summary['job']} {summary['pipeline']}: {summary['status']} in {summary['duration_s']:.1f} s")
    for key, value in summary.get("counts", {}).items():
        print(f"  {key.replace('_', ' '):<20} {value:>12,}")
    for line in summary.get("lines", []):
        print(f"  {line}")
