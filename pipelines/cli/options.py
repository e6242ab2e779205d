"""The options that all jobs share, and what is loaded from them."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import click

from pipelines.cli.parameter_types import Folder
from pipelines.config.model import PipelineConfig
from pipelines.contracts.contract import DataContract
from pipelines.durations import parse_interval
from pipelines.steps.loading import load_pipeline

_DAY: Final = click.DateTime(["%Y-%m-%d"])
LogFormat = Literal["text", "json"]
Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class CommonOptions:
    """What the user said of pipeline, environment and output.

    Attributes:
        pipeline: The pipeline's name.
        env: The environment, a folder of `conf_dir`.
        conf_dir: The folder of configuration.
        contracts_dir: The folder of contracts.
        settings: `key=value` pairs that win over every file.
        log_format: `json` makes each line of the log and the summary a JSON object.
        verbose: Whether Spark's own warnings and stack traces are shown as well.
        cluster: The cluster whose source it is about; None for all of them, or for the first.
    """

    pipeline: str
    env: str
    conf_dir: Path
    contracts_dir: Path
    settings: tuple[str, ...]
    log_format: LogFormat
    verbose: bool = False
    cluster: str | None = None

    def load(self) -> tuple[PipelineConfig, DataContract]:
        """Read and check configuration and contract, and what people want to be asked beside it.

        Raises:
            ConfigError: The configuration or a suite of expectations is refused.
            ContractError: The contract is refused.
        """
        config, contract = load_pipeline(
            self.pipeline,
            env=self.env,
            conf_dir=self.conf_dir,
            contracts_dir=self.contracts_dir,
            settings=self.settings,
        )
        return config if self.cluster is None else config.source(self.cluster), contract


def once(*names: str, default: Any = None, **settings: Any) -> Callable[[Command], Command]:
    """Add an option that may be given once; click takes the last of several without a word.

    Args:
        names: As `click.option` takes them.
        default: Its value if it is not given.
        settings: Of `click.option`.
    """

    def only(context: click.Context, parameter: click.Parameter, values: tuple[Any, ...]) -> Any:
        if len(values) > 1:
            raise click.BadParameter(f"expected the option once, found it {len(values)} times")
        return values[0] if values else default

    shown_default: dict[str, Any] = (
        {"default": [default], "show_default": True} if default is not None else {}
    )
    return click.option(*names, multiple=True, callback=only, **shown_default, **settings)


def day_option(name: str, parameter: str, text: str) -> Callable[[Command], Command]:
    """Add an option that names a day."""
    return once(name, parameter, type=_DAY, help=text)


cluster_option = once(
    "--cluster",
    metavar="NAME",
    help="One of kafka.clusters; default: the first cluster, which has no name.",
)
each_cluster_option = once(
    "--cluster", metavar="NAME", help="One of kafka.clusters; default: all clusters, one after the other."
)
output_option = once(
    "--format",
    "output",
    type=click.Choice(["text", "json"]),
    help="Output format; default: that of --log-format.",
)
_FOLDERS = (
    once("--env", default="local", help="The environment, a folder of conf/."),
    once("--conf-dir", type=Folder(), default=Path("conf"), help="The folder with the configuration."),
    once(
        "--contracts-dir",
        type=Folder(),
        default=Path("data_contracts"),
        help="The folder with the contracts.",
    ),
)
_PLACES = (
    *_FOLDERS,
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="Override a setting, e.g. kafka.topic=flights. Repeatable.",
    ),
)
_LOG_FORMAT = once(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    help="json: write each line of the log, and the summary, as a JSON object.",
)
_VERBOSE = click.option("--verbose", is_flag=True, help="Show Spark's own warnings and stack traces as well.")
_PIPELINE = "The pipeline, e.g. flights."
_OPTIONS = (
    once("--pipeline", required=True, metavar="NAME", help=_PIPELINE),
    *_PLACES,
    _LOG_FORMAT,
    _VERBOSE,
)
_OPTIONS_OF_MANY = (
    once("--pipeline", metavar="NAME", help=_PIPELINE),
    click.option("--all", "everything", is_flag=True, help="Run for all pipelines, one after the other."),
    *_PLACES,
    _LOG_FORMAT,
    _VERBOSE,
)


def common_options(command: Command) -> Command:
    """Add the shared options to a click command, which takes them as keywords."""
    return _with(_OPTIONS, command)


def config_options(command: Command) -> Command:
    """Add the shared options to a command that starts no Spark, of whose log nothing is to be shown."""
    return _with(tuple(option for option in _OPTIONS if option is not _VERBOSE), command)


def options_of_many(command: Command) -> Command:
    """Add the shared options, with --all beside --pipeline; `require_one_or_all` refuses both or none."""
    return _with(_OPTIONS_OF_MANY, command)


def key_option(*, required: bool = False) -> Callable[[Command], Command]:
    """Add `--key`, which names a dedup key or parts of it; a command gets the texts as `key_texts`."""
    return click.option(
        "--key",
        "key_texts",
        multiple=True,
        required=required,
        metavar="COLUMN=VALUE",
        help="A part of the dedup key, e.g. flight=1545 or order.id=o-7. Repeatable.",
    )


def interval(context: click.Context, parameter: click.Parameter, text: str | None) -> timedelta | None:
    """Return the interval that an option's value stands for; for `callback`.

    Raises:
        BadParameter: It is none.
    """
    try:
        return None if text is None else parse_interval(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def require_one_or_all(pipeline: str | None, everything: bool) -> None:
    """Refuse a command line that names a pipeline and all of them, or none.

    Raises:
        UsageError: `--pipeline` and `--all` are both there, or none of them.
    """
    if everything == (pipeline is not None):
        raise click.UsageError(
            "--all runs every pipeline and --pipeline NAME one: use one or the other"
            if everything
            else "Missing option '--pipeline'. Name a pipeline, or use --all."
        )


def days_between(
    day: datetime | None, first: datetime | None = None, last: datetime | None = None
) -> tuple[date | None, date | None]:
    """Return the first and the last day that --date, or --from and --to, name; None where they do not.

    Raises:
        UsageError: They contradict each other, or one is missing.
    """
    if day and (first or last):
        raise click.UsageError("--date names one day, --from and --to several: use one or the other")
    if bool(first) != bool(last):
        raise click.UsageError("--from and --to go together: name the first and the last of the days")
    first, last = day or first, day or last
    return first.date() if first else None, last.date() if last else None


def place_options(command: Command) -> Command:
    """Add those that say where a pipeline's configuration and contract are, without the pipeline itself."""
    return _with(_PLACES, command)


def file_options(command: Command) -> Command:
    """Add those that name a pipeline and the folders of its files, and nothing that wins over the files."""
    return _with((once("--pipeline", required=True, metavar="NAME", help=_PIPELINE), *_FOLDERS), command)


def log_options(command: Command) -> Command:
    """Add those that say what is shown of the log."""
    return _with((_LOG_FORMAT, _VERBOSE), command)


def _with(options: tuple[Callable[[Command], Command], ...], command: Command) -> Command:
    for option in reversed(options):
        command = option(command)
    return command
