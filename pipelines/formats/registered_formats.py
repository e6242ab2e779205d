"""The value formats that a contract may name in `valueFormat`."""

from collections.abc import Mapping
from typing import Final

from pipelines.config.model import PipelineConfig
from pipelines.contracts.contract import DataContract
from pipelines.formats.avro import Avro
from pipelines.formats.framed_json import FramedJson
from pipelines.formats.plain_json import PlainJson
from pipelines.formats.value_format import ValueFormat
from pipelines.registry.schema_registry import open_registry, registry_of
from pipelines.registry.wire_format import UNFRAMED, WireFormat

FORMATS: Final[Mapping[str, ValueFormat]] = {
    "json": PlainJson(),
    "avro": Avro(),
    "json_schema": FramedJson(),
}


def format_of(contract: DataContract) -> ValueFormat:
    """Return how the values of a contract are read."""
    return FORMATS[contract.value_format]


def format_of_kind(kind: str) -> ValueFormat | None:
    """Return the format that reads by schemas of a kind; None if none does."""
    return next((each for each in FORMATS.values() if each.schema_kind == kind), None)


def names_schemas(contract: DataContract) -> bool:
    """Return whether values name a schema of a registry."""
    return format_of(contract).schema_kind is not None


def wire_format_of(config: PipelineConfig, contract: DataContract) -> WireFormat:
    """Return how the values of a pipeline name their schemas; the registry is not asked.

    Raises:
        ConfigError: They name some, and there is no registry, or its client refuses its settings.
    """
    return open_registry(registry_of(config, contract)).wire_format if names_schemas(contract) else UNFRAMED


def java_options() -> dict[str, str]:
    """Return the system properties of all formats, which the driver's JVM gets."""
    return {key: value for each in FORMATS.values() for key, value in each.java_options.items()}


def jar_classes() -> dict[str, str]:
    """Return a class file of each jar that formats need, by what messages call the jar."""
    return {name: path for each in FORMATS.values() for name, path in each.jar_classes.items()}
