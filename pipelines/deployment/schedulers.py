"""Airflow, systemd and cron: the files of `deploy/`, with the names, folders and times of one pipeline."""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from pipelines.deployment.deployment_model import PipelineDeployment, StreamProcess
from pipelines.deployment.files import DeploymentFile
from pipelines.deployment.pods import cron
from pipelines.errors import ConfigError
from pipelines.resources import resource
from pipelines.runtime.notifications import hooks

_HOME: Final = "/opt/oncelake"
_CRONTAB: Final = "deploy/cron/oncelake-pipeline"
_RUN: Final = "oncelake-run.service"
_ANY_YEAR: Final = 2026
_DAG: Final = "deploy/airflow/oncelake_nightly.py"
_ALERTS: Final = """# Calls the hooks once when a stream falls behind, and once when it no longer is.
*/5 """
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


class _Place(NamedTuple):
    """The folder and the environment of the files."""

    home: str
    env: str


def airflow_files(described: PipelineDeployment, home: str) -> list[DeploymentFile]:
    """Return the DAG of a pipeline.

    Args:
        described: The pipeline.
        home: The project's folder on the worker.
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


def systemd_files(
    described: PipelineDeployment, home: str, together: Sequence[PipelineDeployment] | None = None
) -> list[DeploymentFile]:
    """Return the units of a pipeline: services for its streams, timers for the night and for upkeep.

    Args:
        described: The pipeline.
        home: The project's folder on the machine.
        together: Further pipelines whose streams run in one service with those of this one, by `oncelake
            run`; None for a service for each stream.
    """
    place = _Place(home, described.config.env)
    streams = () if together is not None else described.processes
    files = [_of_stream(each, place) for each in streams]
    others = ("oncelake-nightly@.service", "oncelake-maintain@.service", "oncelake-failed@.service")
    files += [DeploymentFile(name, _unit(name, place, [])) for name in others]
    if together is not None:
        names = dict.fromkeys(each.config.name for each in (described, *together))
        named = _Replaced("--all", "", " ".join(f"--pipeline {name}" for name in names))
        which = [
            _Replaced("# The streams of all pipelines,", "", f"# The streams of {', '.join(names)},"),
            _Replaced(
                "Description=Oncelake: streams",
                "\n",
                f"Description=Oncelake: streams of {', '.join(names)}\n",
            ),
        ]
        files.append(DeploymentFile(_RUN, _unit(_RUN, place, [*which, named])))
    zone = described.contract.day_time_zone
    nightly = [
        _Replaced("# 01:30 or", "last records.\n", _AT_NIGHT),
        _Replaced("OnCalendar=", "\n", f"OnCalendar=*-*-* {_clock(described.nightly_at)} {zone}\n"),
    ]
    maintain = [_Replaced("OnCalendar=", "\n", f"OnCalendar=*-*-* {_clock(described.maintain_at)} {zone}\n")]
    for name, parts in (("oncelake-nightly@.timer", nightly), ("oncelake-maintain@.timer", maintain)):
        named = _Replaced("@flights", "", f"@{described.config.name}")
        files.append(DeploymentFile(name, _unit(name, place, [named, *parts])))
    return sorted(files, key=lambda each: each.name)


def _of_stream(process: StreamProcess, place: _Place) -> DeploymentFile:
    """Return the unit of a stream, which has the name of its job, and of its cluster if that has one."""
    unit, job, cluster = "oncelake-stream@.service", process.job, process.cluster
    if cluster is None:
        return DeploymentFile(f"oncelake-{job}@.service", _unit(unit, place, []))
    named = [
        _Replaced("# A stream of", "that name.\n", f"# {job} of the pipeline behind the @, for {cluster}.\n"),
        _Replaced("Description=", "\n", f"Description=Oncelake: {job} of %i, for {cluster}\n"),
        _Replaced("oncelake %j ", "", f"oncelake {job} --cluster {cluster} "),
    ]
    return DeploymentFile(f"oncelake-{job}-{cluster}@.service", _unit(unit, place, named))


def cron_files(described: PipelineDeployment, home: str) -> list[DeploymentFile]:
    """Return the crontab of a pipeline: its night, its upkeep, and a look at its lag.

    Args:
        described: The pipeline.
        home: The project's folder on the machine.
    """
    name = described.config.name
    nightly, maintain = (
        " ".join(cron(at - _least_offset(described.contract.zone)).split()[:2])
        for at in (described.nightly_at, described.maintain_at)
    )
    parts = [_Replaced("\n30 6 ", "", f"\n{nightly} "), _Replaced("\n30 18 ", "", f"\n{maintain} ")]
    if any(hooks(described.config.notify)):
        parts += [
            _Replaced("# Says so if a stream", "*/15 ", _ALERTS),
            _Replaced(" --format json", "", " --format json --alert"),
            _Replaced("; if grep", "; fi;", ";"),
        ]
    text = _with(_CRONTAB, parts)
    # Its logs and locks have the name of the pipeline as well. Cron passes over file names with a dot.
    file = f"oncelake-{described.slug}"
    for old, new in (
        ("flights", name),
        (f"/etc/cron.d/oncelake-{name}", f"/etc/cron.d/{file}"),
        ("--env prod", f"--env {described.config.env}"),
        (_HOME, home),
    ):
        text = text.replace(old, new)
    return [DeploymentFile(file, text)]


def _least_offset(zone: ZoneInfo) -> timedelta:
    """Return the offset of a time zone from UTC in the half of the year in which it is less."""
    offsets = (datetime(_ANY_YEAR, month, 1, tzinfo=zone).utcoffset() for month in range(1, 13))
    return min(offset for offset in offsets if offset is not None)


def _unit(name: str, place: _Place, parts: Sequence[_Replaced]) -> str:
    # A unit may start several commands.
    text = _with(f"deploy/systemd/{name}", parts)
    return text.replace(_HOME, place.home).replace("--env prod", f"--env {place.env}")


def _clock(at: timedelta) -> str:
    minutes = int(at / timedelta(minutes=1)) % (24 * 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:00"


def _with(file: str, parts: Sequence[_Replaced]) -> str:
    """Return a file of `deploy/` with parts replaced.

    Raises:
        ConfigError: A part is not there: this copy of Oncelake does not fit together.
    """
    text = resource(file).read_text(encoding="utf-8")
    for part in parts:
        before, first, rest = text.partition(part.first)
        _, last, after = rest.partition(part.last) if part.last else ("", " ", rest)
        if not first or not last:
            raise ConfigError(f"{file}: expected {part.first!r} in it; install Oncelake again")
        text = before + part.by + after
    return text
