"""What `oncelake contract check --against registry` compares with: the newest schema of a topic."""

from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from pipelines.cli.options import CommonOptions
from pipelines.contracts.diff import Change
from pipelines.errors import ConfigError, ContractError
from pipelines.formats.producer_compatibility import producer_changes
from pipelines.formats.registered_formats import names_schemas
from pipelines.registry.schema_registry import open_registry, registry_of

REGISTRY: Final = "registry"


def refuse_half(context: click.Context, against: str) -> None:
    """Refuse the registry without a pipeline, and what belongs to a pipeline without the registry.

    Args:
        context: Of the command, which knows the options that were given.
        against: What to compare with.

    Raises:
        UsageError: One is there without the other.
    """
    if against == REGISTRY and context.params["pipeline"] is None:
        raise click.UsageError(
            "--against registry needs --pipeline NAME, whose configuration names topic and registry;"
            " for a file with the name registry, use --against ./registry"
        )
    options = [
        option.opts[0]
        for option in context.command.params
        if option.name in ("pipeline", "env", "conf_dir", "contracts_dir", "settings")
        and context.get_parameter_source(option.name) == ParameterSource.COMMANDLINE
    ]
    if against != REGISTRY and options:
        raise click.UsageError(f"{', '.join(options)}: allowed only with --against registry")


def against_producers(files: tuple[Path, ...], **options: Any) -> tuple[Path, list[Change]]:
    """Compare a pipeline's contract with the newest schema that producers registered for its topic.

    Args:
        files: Nothing, or the pipeline's contract.
        options: Those that `CommonOptions` takes.

    Returns:
        The contract's file, and how what producers send differs from it.

    Raises:
        ConfigError: The configuration is refused, or the registry has nothing to compare with.
        ContractError: The contract is refused, or the schema cannot be compared with it.
        InfrastructureError: The registry does not answer.
    """
    config, contract = CommonOptions(**options, log_format="text").load()
    path = Path(contract.path)
    if others := [str(file) for file in files if file.resolve() != path.resolve()]:
        raise ConfigError(f"{', '.join(others)}: expected no file, or {path}, the contract of {config.name}")
    if not names_schemas(contract):
        raise ConfigError(
            f"{path}: valueFormat {contract.value_format}: values have no schema id, so a registry does not"
            " have their schema; compare with a git revision or a file"
        )
    settings = registry_of(config, contract)
    registry = open_registry(settings)
    subject = registry.subject_of(config.kafka.topic)
    schema = registry.latest(subject)
    if schema is None:
        raise ConfigError(
            f"registry.url: {settings.identity} has no subject {subject}; expected the one that producers of"
            f" the topic register their schema under ({registry.subject_naming}); see kafka.topic"
        )
    try:
        return path, producer_changes(contract, schema)
    except ContractError as error:
        raise ContractError(f"registry.url: {settings.identity}: subject {subject}: {error}") from None
