"""What a schema registry must offer, and which one a pipeline has."""

from typing import Protocol

from pipelines.config.model import PipelineConfig, RegistryConfig
from pipelines.contracts.contract import DataContract
from pipelines.errors import ConfigError
from pipelines.registry.confluent import ConfluentRegistry
from pipelines.registry.wire_format import WireFormat, WriterSchema


class SchemaRegistry(Protocol):
    """Look schemas up, with bounded retries. The driver alone asks it.

    Attributes:
        wire_format: How values name their schemas.
        subject_naming: What the rule of `subject_of` is called, for messages.
    """

    wire_format: WireFormat
    subject_naming: str

    def schema(self, schema_id: str) -> WriterSchema | None:
        """Return the schema of an id, with all that it refers to; None if the registry has none of that id.

        Raises:
            InfrastructureError: The registry does not answer, or not as a registry does.
        """
        ...

    def subject_of(self, topic: str) -> str:
        """Return the subject under which producers register schemas of a topic's values by default."""
        ...

    def latest(self, subject: str) -> WriterSchema | None:
        """Return the newest schema of a subject; None if the registry does not know the subject.

        Raises:
            InfrastructureError: The registry does not answer, or not as a registry does.
        """
        ...

    def register(self, subject: str, text: str) -> str:
        """Put an Avro schema into the registry, if it is not there; return its id.

        Raises:
            ConfigError: The registry refuses it, e.g. since readers of earlier ones could not read by it.
            InfrastructureError: The registry does not answer, or not as a registry does.
        """
        ...


def open_registry(config: RegistryConfig) -> SchemaRegistry:
    """Return the registry at an address; nothing is asked of it yet.

    Raises:
        ConfigError: The registry's client refuses its settings.
    """
    return ConfluentRegistry(config)


def registry_of(config: PipelineConfig, contract: DataContract) -> RegistryConfig:
    """Return the registry that a pipeline needs.

    Raises:
        ConfigError: It has none.
    """
    if config.registry is None:
        raise ConfigError(
            f"registry.url: missing; {contract.path} has valueFormat {contract.value_format}, whose schemas"
            " are in a registry. Add it, e.g. --set registry.url=http://registry:8081"
        )
    return config.registry
