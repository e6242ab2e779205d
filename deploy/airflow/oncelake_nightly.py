"""Oncelake's nightly run as an Airflow DAG: one task for each pipeline, one run for each day.

For Airflow 3.3 with its standard provider. Airflow needs neither Oncelake nor Spark to parse this file: the
tasks start a command. Set these environment variables for the Airflow processes:

- `ONCELAKE_PROJECT`: the folder with `conf/` and `data_contracts/`, in which the command runs. Default:
  /opt/oncelake.
- `ONCELAKE_COMMAND`: the command. Default: `.venv/bin/oncelake nightly_batch` of the project. It can also be
  `spark-submit ... jobs/nightly_batch.py` in client mode; other modes do not return the job's exit code.
- `ONCELAKE_ENV`: the environment. Default: prod.
- `ONCELAKE_PIPELINES`: names of pipelines, separated by commas. Default: all of `conf/base/pipelines`.
- `ONCELAKE_TIME_ZONE`: the time zone of the schedule. Default: UTC. A run rebuilds the day on which its data
  interval begins in this time zone.
"""

import json
import os
import shlex
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from airflow.providers.standard.hooks.subprocess import SubprocessHook
from airflow.sdk import DAG, BaseOperator, Context, CronDataIntervalTimetable
from airflow.sdk.exceptions import AirflowException, AirflowFailException

PROJECT = Path(os.environ.get("ONCELAKE_PROJECT", "/opt/oncelake"))
COMMAND = shlex.split(os.environ.get("ONCELAKE_COMMAND", f"{PROJECT}/.venv/bin/oncelake nightly_batch"))
ENV = os.environ.get("ONCELAKE_ENV", "prod")
TIME_ZONE = os.environ.get("ONCELAKE_TIME_ZONE", "UTC")
# In UTC. It is 01:30 or 02:30 in New York, the time zone of the sample contracts: the day is over, and ingest
# has read its last records.
SCHEDULE = "30 6 * * *"
# Two hours in total, in which ingest can read the rest of the day.
RETRIES = 8
RETRY_DELAY = timedelta(minutes=15)
# A retry gives the same result.
FINAL = {2: "configuration, contract or command line refused", 3: "the audit failed"}


class NightlyBatch(BaseOperator):
    """Rebuilds, audits and certifies what is due of one pipeline; returns the summary of the run.

    Args:
        pipeline: its name.
    """

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self._process = SubprocessHook()

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the command; its log becomes that of the task.

        Raises:
            AirflowFailException: another try would give the same.
            AirflowException: another try may help.
        """
        words = [*COMMAND, "--pipeline", self.pipeline, "--env", ENV, "--log-format", "json", *_day(context)]
        done = self._process.run_command(words, cwd=str(PROJECT))
        summary = _summary(done.output)
        if done.exit_code == 0:
            return summary
        error = summary.get("error", "see the log")
        if done.exit_code in FINAL:
            raise AirflowFailException(f"{self.pipeline}: {FINAL[done.exit_code]}: {error}")
        raise AirflowException(f"{self.pipeline}: exit code {done.exit_code}: {error}")

    def on_kill(self) -> None:
        """Stop the run, as nobody else would: Airflow ends its own process only."""
        self._process.send_sigterm()


def _summary(last_line: str) -> dict[str, Any]:
    try:
        summary = json.loads(last_line)
    except ValueError:
        # The command could not say any more how it ended.
        return {}
    return summary if isinstance(summary, dict) else {}


def _day(context: Context) -> list[str]:
    """Return the option that names the day of the run, which is the one on which its data interval begins.

    The newest run names none: then `nightly_batch` takes yesterday and, with it, what came late.
    """
    start = context.get("data_interval_start")
    zone = ZoneInfo(TIME_ZONE)
    if not isinstance(start, datetime):
        return []
    day: date = start.astimezone(zone).date()
    yesterday = datetime.now(zone).date() - timedelta(days=1)
    return [] if day == yesterday else ["--date", day.isoformat()]


def _pipelines() -> list[str]:
    named = os.environ.get("ONCELAKE_PIPELINES", "").replace(",", " ").split()
    found = named or sorted(path.stem for path in (PROJECT / "conf/base/pipelines").glob("*.yml"))
    if not found:
        raise ValueError(
            f"no pipeline in {PROJECT}/conf/base/pipelines; set ONCELAKE_PROJECT or ONCELAKE_PIPELINES"
        )
    return found


with DAG(
    dag_id="oncelake_nightly",
    description="Rebuild, audit and certify past days",
    # Not a cron string, of which Airflow 3 makes runs without a data interval.
    schedule=CronDataIntervalTimetable(SCHEDULE, timezone=TIME_ZONE),
    # Backfills reach back to here, and to no day that Kafka could not know.
    start_date=datetime(1970, 1, 1, tzinfo=ZoneInfo(TIME_ZONE)),
    catchup=False,
    # One Spark at a time on this machine; more where pipelines run on a cluster.
    max_active_tasks=1,
    default_args={
        "retries": RETRIES,
        "retry_delay": RETRY_DELAY,
        "execution_timeout": timedelta(hours=6),
        # The night and a backfill of one pipeline would only find each other's lease.
        "max_active_tis_per_dag": 1,
    },
    tags=["oncelake"],
):
    for name in _pipelines():
        NightlyBatch(task_id=name, pipeline=name)
