"""`oncelake deploy`: files for those who run the jobs of a pipeline, from its configuration."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click

from pipelines.cli.options import Command, file_options, interval
from pipelines.cli.parameter_types import Finite, Folder
from pipelines.deployment.databricks import Clusters, databricks_files
from pipelines.deployment.deployment_model import PipelineDeployment, load_deployment
from pipelines.deployment.files import DeploymentFile
from pipelines.deployment.keda import Workers, keda_files
from pipelines.deployment.kubernetes import kubernetes_files
from pipelines.deployment.measured_rates import measured_rates
from pipelines.deployment.pods import Place, Pods
from pipelines.deployment.schedulers import airflow_files, cron_files, systemd_files
from pipelines.deployment.spark_operator import Executors, spark_operator_files
from pipelines.errors import ConfigError, InfrastructureError
from pipelines.runtime.atomic_files import write_files

_PLACE: Final = Place()
_NUMBER: Final = click.IntRange(1, 1_000_000)
_RATE: Final = Finite(min=1e-9, max=1e12)
# Of an object in Kubernetes.
_LABEL: Final = "[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_NAME: Final = rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*"
_NAME_WORDS: Final = "1 to 253 small letters, digits, '.' and '-', a letter or a digit first and last"
_FOLDER: Final = r"(/(?!\.{1,2}(/|$))[\w.-]+)+"
_FOLDER_WORDS: Final = (
    "the absolute path of a folder, of letters, digits, '.', '_' and '-', without '.' and '..' as a part and"
    " without / at its end"
)
_WORD: Final = r"[\w.-]+"
_WORD_WORDS: Final = "letters, digits, '.', '_' and '-'"


def _like(
    pattern: str, words: str, example: str
) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """Return a check of an option's value, which stands in files that others read.

    Args:
        pattern: What a value matches as a whole.
        words: The same, for people.
        example: Such a value.
    """

    def check(context: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
        if text is not None and not re.fullmatch(pattern, text):
            raise click.BadParameter(f"expected {words}, such as {example}, got {text!r}")
        return text

    return check


_home = click.option(
    "--home",
    default=_PLACE.home,
    show_default=True,
    metavar="DIR",
    callback=_like(_FOLDER, _FOLDER_WORDS, "/opt/oncelake"),
    help="Project folder on the target machine or in the image.",
)
_image = click.option(
    "--image",
    default=_PLACE.image,
    show_default=True,
    callback=_like(
        r"\w[\w.:/@-]*",
        "the name of an image, of letters, digits, '.', '_', '-', ':', '/' and '@'",
        "registry.example.internal/oncelake:1.0",
    ),
    help="Container image.",
)
_secret = click.option(
    "--secret",
    default=_PLACE.secret,
    show_default=True,
    metavar="NAME",
    callback=_like(_NAME, _NAME_WORDS, "oncelake"),
    help="The secret (Databricks: the scope) that has each environment variable under its name.",
)
_partitions = click.option(
    "--partitions",
    type=_NUMBER,
    help="Partitions of the topic; of several clusters, of the one that has the fewest.",
)
_out = click.option(
    "--out",
    type=Folder(),
    help="The folder to write to. Default: standard output.",
)


def _in_pods(command: Command) -> Command:
    for option in reversed((_image, _home, _secret)):
        command = option(command)
    return command


@click.group()
def deploy() -> None:
    """Write deployment files for a pipeline.

    They are made from its configuration, and hold no secrets.
    """


@deploy.command()
@file_options
@_in_pods
@_out
def kubernetes(out: Path | None, **named: Any) -> None:
    """Write StatefulSets and CronJobs.

    Also their ConfigMap, ServiceAccount and NetworkPolicy.
    """
    _write(kubernetes_files(_pods(named)), out)


@deploy.command()
@file_options
@_in_pods
@click.option(
    "--workers",
    metavar="KIND/NAME",
    callback=_like(
        rf"(StatefulSet|Deployment)/{_NAME}",
        "StatefulSet/NAME or Deployment/NAME",
        "StatefulSet/spark-worker",
    ),
    help="Scale the workers of a Spark cluster. Default: start runs of the streams when there is a backlog.",
)
@click.option(
    "--partitions", type=_NUMBER, help="Partitions of the topic; of several clusters, of all together."
)
@click.option("--rate-in", type=_RATE, help="With --workers: incoming records per second.")
@click.option(
    "--rate-out", type=_RATE, help="With --workers: records per second that one executor processes."
)
@click.option(
    "--measured",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="With --workers: take both rates from this file, printed by `oncelake lag --format json`.",
)
@click.option(
    "--catch-up",
    callback=interval,
    metavar="INTERVAL",
    help="With --workers: maximum time to clear the backlog.",
)
@click.option(
    "--cooldown",
    callback=interval,
    default="5 minutes",
    show_default=True,
    metavar="INTERVAL",
    help="With --workers: time to wait before scaling in.",
)
@click.option(
    "--max-executors",
    type=_NUMBER,
    help="With --workers: maximum number of executors. Default: the number of partitions.",
)
@_out
def keda(out: Path | None, workers: str | None, **named: Any) -> None:
    """Write KEDA objects that scale by the backlog.

    They start runs of the streams or, with --workers, scale the workers of a Spark cluster.
    """
    figures = {key: named.pop(key) for key in ("partitions", "rate_in", "rate_out", "catch_up")}
    cooldown, most, measured = (named.pop(key) for key in ("cooldown", "max_executors", "measured"))
    if measured:
        _require_measured_alone(workers, figures)
        figures |= asdict(measured_rates(measured, named["pipeline"], named["env"]))
    _write(keda_files(_pods(named), _workers(workers, figures, cooldown, most)), out)


def _require_measured_alone(workers: str | None, figures: dict[str, Any]) -> None:
    """Make sure that measured rates are asked for, and are not given as well.

    Raises:
        ConfigError: They are not, or are.
    """
    if workers is None:
        raise ConfigError("--measured: expected with --workers only; leave it out, or name the workers")
    if figures["rate_in"] is not None or figures["rate_out"] is not None:
        raise ConfigError("--measured: expected in place of --rate-in and --rate-out; leave these out")


def _workers(
    workers: str | None, figures: dict[str, Any], cooldown: timedelta, most: int | None
) -> Workers | None:
    """Return what is to be scaled; None if runs are to be started.

    Raises:
        ConfigError: A figure is missing, or has no meaning.
    """
    options = {f"--{key.replace('_', '-')}": value for key, value in figures.items()}
    if workers is None:
        if given := [
            name for name, value in {**options, "--max-executors": most}.items() if value is not None
        ]:
            raise ConfigError(
                f"{', '.join(given)}: expected with --workers only: a stream is one run at a time, and a"
                " second copy of it would be refused; leave the option out, or name the workers of a"
                " Spark cluster"
            )
        return None
    if missing := [name for name, value in options.items() if value is None]:
        rates = "; --measured takes the rates from oncelake lag" if "--rate-in" in missing else ""
        raise ConfigError(
            f"--workers needs {', '.join(missing)}, from which the threshold is computed{rates}"
        )
    kind, _, name = workers.partition("/")
    return Workers(kind, name, **figures, cooldown=cooldown, most=most)


@deploy.command("spark-operator")
@file_options
@_in_pods
@click.option(
    "--executors", type=_NUMBER, help="Of each application. Default: spark.executor.instances, or 2."
)
@_partitions
@click.option(
    "--driver-account",
    default=Executors().account,
    show_default=True,
    metavar="NAME",
    callback=_like(_NAME, _NAME_WORDS, "spark"),
    help="The service account of drivers.",
)
@_out
def spark_operator(
    out: Path | None, executors: int | None, partitions: int | None, driver_account: str, **named: Any
) -> None:
    """Write SparkApplications.

    One for each stream, and scheduled ones for nightly_batch and maintain.
    """
    _write(spark_operator_files(_pods(named), Executors(executors, partitions, driver_account)), out)


@deploy.command()
@file_options
@_home
@_out
def airflow(out: Path | None, home: str, **named: Any) -> None:
    """Write a DAG for the nightly run."""
    _write(airflow_files(_described(named), home), out)


@deploy.command()
@file_options
@_home
@click.option(
    "--one-service",
    is_flag=True,
    help="Run all streams in one service, by `oncelake run`. Default: one for each.",
)
@click.option(
    "--with",
    "others",
    multiple=True,
    metavar="NAME",
    help="A further pipeline whose streams this service runs. Repeatable.",
)
@_out
def systemd(out: Path | None, home: str, *, one_service: bool, others: tuple[str, ...], **named: Any) -> None:
    """Write services, and timers for nightly_batch and maintain."""
    if others and not one_service:
        raise ConfigError(
            "--with: expected with --one-service only; add it, or write files for each pipeline"
        )
    pipeline = named.pop("pipeline")
    together = [load_deployment(name, **named) for name in others] if one_service else None
    _write(systemd_files(load_deployment(pipeline, **named), home, together), out)


@deploy.command("cron")
@file_options
@_home
@_out
def cron_command(out: Path | None, home: str, **named: Any) -> None:
    """Write a crontab: nightly_batch, maintain, lag alerts."""
    _write(cron_files(_described(named), home), out)


@deploy.command("databricks-job")
@file_options
@_secret
@click.option(
    "--runtime",
    required=True,
    metavar="VERSION",
    callback=_like(_WORD, _WORD_WORDS, "18.0.x-scala2.13"),
    help="The Databricks runtime (spark_version).",
)
@click.option(
    "--node-type",
    required=True,
    metavar="TYPE",
    callback=_like(_WORD, _WORD_WORDS, "m6gd.large"),
    help="The type of all nodes.",
)
@click.option(
    "--files",
    required=True,
    metavar="DIR",
    callback=_like(_FOLDER, _FOLDER_WORDS, "/Workspace/Shared/oncelake"),
    help="Workspace or volume folder with jobs, conf, data_contracts, the wheel and the jar.",
)
@click.option("--workers", type=_NUMBER, default=1, show_default=True, help="Minimum number of workers.")
@click.option("--max-workers", type=_NUMBER, help="Maximum number of workers. Default: no autoscaling.")
@_partitions
@_out
def databricks_job(out: Path | None, secret: str, **named: Any) -> None:
    """Write job definitions for the Databricks Jobs API."""
    keys = ("runtime", "node_type", "files", "workers", "partitions")
    clusters = {key: named.pop(key) for key in keys} | {"most_workers": named.pop("max_workers")}
    pods = Pods(_described(named), Place(secret=secret))
    _write(databricks_files(pods, Clusters(**clusters)), out)


def _described(named: dict[str, Any]) -> PipelineDeployment:
    return load_deployment(named.pop("pipeline"), **named)


def _pods(named: dict[str, Any]) -> Pods:
    place = Place(*(named.pop(key) for key in ("image", "home", "secret")))
    return Pods(_described(named), place)


def _write(files: Sequence[DeploymentFile], out: Path | None) -> None:
    """Write files to a folder, or print them one after the other.

    Raises:
        ConfigError: The folder cannot be written to.
    """
    if out is None:
        click.echo(_together(files), nl=False)
        return
    try:
        written = write_files(out, {each.name: each.text for each in files}, "deployment files")
    except InfrastructureError as error:
        raise ConfigError(str(error)) from None
    for path in written:
        click.echo(str(path))


def _together(files: Sequence[DeploymentFile]) -> str:
    if all(each.name.endswith(".json") for each in files):
        return json.dumps([json.loads(each.text) for each in files], indent=2, ensure_ascii=False) + "\n"
    between = "---\n" if all(each.name.endswith(".yaml") for each in files) else "\n"
    if len(files) == 1:
        return files[0].text
    return between.join(f"# {each.name}\n{each.text}" for each in files)
