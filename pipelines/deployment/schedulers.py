"""Airflow and systemd: the files of `deploy/`, with the names, folders and times of one pipeline."""

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from pipelines.deployment.described import Described
from pipelines.deployment.files import DeploymentFile
from pipelines.deployment.pods import cron
from pipelines.errors import ConfigError
from pipelines.resources import resource

_HOME: Final = "/opt/oncelake"
_DAG: Final = "deploy/airflow/oncelake_nightly.py"
_AT_NIGHT: Final = "# In the time zone of the contract: the day is over and sealed.\n"
_DOCSTRING: Final = """The nightly run of pipeline {name} as an Airflow DAG: one run for each day.

For Airflow 3.3 with its standard provider, made by `oncelake deploy airflow`. Airflow needs neither Oncelake
nor Spark to parse this file: the task starts a command. The environment variable `ONCELAKE_COMMAND` of the
worker sets another command, such as `spark-submit ... jobs/nightly_batch.py` in client mode.
"""


class _Replaced(NamedTuple):
    """The first part of a file that begins and ends with these words."""

    first: str
    last: str
    by: str


def airflow_files(described: Described, home: str) -> list[DeploymentFile]:
    """Return the DAG of a pipeline.

    Args:
        described: the pipeline.
        home: the project's folder on the worker.
    """
    name, zone = described.config.name, described.contract.day_time_zone
    text = _with(
        _DAG,
        [
            _Replaced("Oncelake's nightly run", "in this time zone.\n", _DOCSTRING.format(name=name)),
            _Replaced("PROJECT = ", "\n", f"PROJECT = Path({json.dumps(home)})\n"),
            _Replaced("ENV = ", "\n", f"ENV = {json.dumps(described.config.env)}\n"),
            _Replaced("TIME_ZONE = ", "\n", f"TIME_ZONE = {json.dumps(zone)}\n"),
            _Replaced("# In UTC. It is", "last records.\n", _AT_NIGHT),
            _Replaced("SCHEDULE = ", "\n", f"SCHEDULE = {json.dumps(cron(described.nightly_at))}\n"),
            _Replaced("def _pipelines", "return found\n\n\n", ""),
            _Replaced("dag_id=", ",\n", f"dag_id={json.dumps(f'oncelake_nightly_{name}')},\n"),
            _Replaced("for name in _pipelines():", "\n", f"for name in [{json.dumps(name)}]:\n"),
        ],
    )
    return [DeploymentFile(f"oncelake_nightly_{described.slug.replace('-', '_')}.py", text)]


def systemd_files(described: Described, home: str) -> list[DeploymentFile]:
    """Return the units of a pipeline: services for its streams, timers for the night and for upkeep.

    Args:
        described: the pipeline.
        home: the project's folder on the machine.
    """
    units = {f"oncelake-{each.job}@.service": "oncelake-stream@.service" for each in described.streams}
    units |= {name: name for name in ("oncelake-nightly@.service", "oncelake-maintain@.service")}
    env = [_Replaced("--env prod", "", f"--env {described.config.env}")]
    files = [DeploymentFile(name, _unit(unit, home, env)) for name, unit in units.items()]
    files.append(DeploymentFile("oncelake-failed@.service", _unit("oncelake-failed@.service", home, [])))
    zone = described.contract.day_time_zone
    nightly = [
        _Replaced("# 01:30 or", "last records.\n", _AT_NIGHT),
        _Replaced("OnCalendar=", "\n", f"OnCalendar=*-*-* {_clock(described.nightly_at)} {zone}\n"),
    ]
    maintain = [_Replaced("OnCalendar=", "\n", f"OnCalendar=*-*-* {_clock(described.maintain_at)} {zone}\n")]
    for name, parts in (("oncelake-nightly@.timer", nightly), ("oncelake-maintain@.timer", maintain)):
        named = _Replaced("@flights", "", f"@{described.config.name}")
        files.append(DeploymentFile(name, _unit(name, home, [named, *parts])))
    return sorted(files, key=lambda each: each.name)


def _unit(name: str, home: str, parts: Sequence[_Replaced]) -> str:
    return _with(f"deploy/systemd/{name}", parts).replace(_HOME, home)


def _clock(at: timedelta) -> str:
    minutes = int(at / timedelta(minutes=1)) % (24 * 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:00"


def _with(file: str, parts: Sequence[_Replaced]) -> str:
    """Return a file of `deploy/` with parts replaced.

    Raises:
        ConfigError: a part is not there: this copy of Oncelake does not fit together.
    """
    text = resource(file).read_text(encoding="utf-8")
    for part in parts:
        before, first, rest = text.partition(part.first)
        _, last, after = rest.partition(part.last) if part.last else ("", " ", rest)
        if not first or not last:
            raise ConfigError(f"{file}: expected {part.first!r} in it; install Oncelake again")
        text = before + part.by + after
    return text
