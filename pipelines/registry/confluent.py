"""A schema registry with Confluent's interface, asked by the driver alone; and how values name its schemas.

Source: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/#wire-format
"""

import json
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from pipelines.config.model import RegistryConfig
from pipelines.config.secret_masking import mask_values
from pipelines.errors import ConfigError, InfrastructureError, OncelakeError
from pipelines.registry.avro_references import inlined
from pipelines.registry.wire_format import WireFormat, WriterSchema

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaReference

_NOT_FOUND: Final = (40401, 40402, 40403)
_NO_SUCH_ADDRESS: Final = 404
_REFUSED: Final = (409, 422)
# The client wants these as numbers; options are text, as for Kafka.
_NUMBERS: Final = frozenset(
    {"cache.capacity", "cache.latest.ttl.sec", "max.retries", "retries.wait.ms", "retries.max.wait.ms"}
)
_LARGEST_ID: Final = 2**31 - 1
_LARGEST_ID_SENT: Final = 2**32 - 1
_RETRIES: Final = 5
_NO_REGISTRY: Final = "answers, but not as a registry does; is it a page to log in?"
_LONGEST_WAIT: Final = timedelta(seconds=5)

_HEADER: Final = 5
CONFLUENT: Final = WireFormat(
    # An id is an unsigned number of 32 bits.
    schema_id=f"CASE WHEN length(_value) >= {_HEADER} AND substring(_value, 1, 1) = X'00'"
    " THEN conv(hex(substring(_value, 2, 4)), 16, 10) END",
    payload=f"substring(_value, {_HEADER + 1})",
    header=lambda schema_id: b"\x00" + int(schema_id).to_bytes(_HEADER - 1),
)
"""A byte 0, the schema's id in four bytes, the payload."""

_log = logging.getLogger(__name__)


class ConfluentRegistry:
    """A `SchemaRegistry` with Confluent's interface, with bounded retries.

    Args:
        config: The address and how to log in.

    Raises:
        ConfigError: The client refuses its settings.
    """

    wire_format = CONFLUENT
    subject_naming = "Confluent's TopicNameStrategy"

    def __init__(self, config: RegistryConfig) -> None:
        # Not at the top: it brings an HTTP library, for which every command would wait.
        from confluent_kafka.schema_registry import SchemaRegistryClient

        self._url = config.url
        secrets = {key: value.get_secret_value() for key, value in config.secrets.items()}
        self._secrets = tuple(secrets.values())
        settings = {
            "url": config.url,
            "timeout": config.timeout / timedelta(seconds=1),
            "max.retries": _RETRIES,
            "retries.max.wait.ms": _LONGEST_WAIT // timedelta(milliseconds=1),
            **{key: _typed(key, value) for key, value in config.options.items()},
            **secrets,
        }
        self._tries = int(str(settings["max.retries"])) + 1
        try:
            self._client = SchemaRegistryClient(settings)
        except (ValueError, TypeError, OSError) as error:
            raise ConfigError(f"registry: the client refuses its settings: {self._said(error)}") from None

    def _said(self, error: Exception) -> str:
        """Return what the client says; an HTTP library repeats a header that it cannot send."""
        return f"{type(error).__name__}: {mask_values(str(error), self._secrets)}"

    def schema(self, schema_id: str) -> WriterSchema | None:
        """See `SchemaRegistry.schema`."""
        number = int(schema_id)
        is_large = number > _LARGEST_ID
        schema = self._ask(lambda: self._client.get_schema(number), is_large=is_large)
        if schema is None and is_large:
            # Whether it is a registry that has no such address, or no registry at all, another id tells.
            self._ask(lambda: self._client.get_schema(_LARGEST_ID))
        return None if schema is None else self._whole(schema_id, schema)

    def subject_of(self, topic: str) -> str:
        """See `SchemaRegistry.subject_of`."""
        return f"{topic}-value"

    def latest(self, subject: str) -> WriterSchema | None:
        """See `SchemaRegistry.latest`."""
        version = self._ask(lambda: self._client.get_latest_version(subject))
        if version is None:
            return None
        if type(version.schema_id) is not int or not 0 <= version.schema_id <= _LARGEST_ID_SENT:
            raise self._no_registry("a version without the id of its schema")
        return self._whole(str(version.schema_id), version.schema)

    def register(self, subject: str, text: str) -> str:
        """See `SchemaRegistry.register`."""
        from confluent_kafka.schema_registry import Schema
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        def put() -> int:
            try:
                return int(self._client.register_schema(subject, Schema(text, "AVRO")))
            except SchemaRegistryError as error:
                if error.http_status_code not in _REFUSED:
                    raise
                raise ConfigError(
                    f"publish.subject: {self._url} refuses the schema of subject '{subject}':"
                    f" {error.error_message}. If readers are to follow a breaking change, give it a topic or"
                    " a subject of its own"
                ) from None

        return str(self._ask(put))

    def _whole(self, schema_id: str, schema: "Schema") -> WriterSchema:
        kind, text = schema.schema_type or "AVRO", schema.schema_str
        if not isinstance(text, str) or not text.strip() or not isinstance(kind, str):
            raise self._no_registry("a schema without a text or a kind")
        kind = kind.upper()
        if kind == "AVRO" and schema.references:
            named = self._definitions(schema.references)
            try:
                parsed = {name: json.loads(definition) for name, definition in named.items()}
                text = json.dumps(inlined(json.loads(text), parsed))
            except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
                # One schema that makes no sense is one that cannot be read by, and ends nothing else.
                _log.warning("schema %s, with what it refers to, makes no sense: %s", schema_id, error)
        return WriterSchema(schema_id, kind, text)

    def _definitions(self, references: "list[SchemaReference]") -> dict[str, str]:
        """Return the texts of all schemas that are referred to, by the names of the references."""
        definitions: dict[str, str] = {}
        waiting, requested = list(references), set()
        while waiting:
            reference = waiting.pop()
            if not isinstance(reference.subject, str) or type(reference.version) is not int:
                raise self._no_registry("a reference without a subject and a version")
            which = (reference.subject, reference.version)
            if which in requested:
                # Two refer to the same, or a circle has come round.
                continue
            requested.add(which)
            answer = self._ask(lambda w=which: self._client.get_version(*w))
            if answer is None:
                raise InfrastructureError(
                    f"registry.url: {self._url}: a schema refers to version {reference.version} of"
                    f" {reference.subject}, which is not there"
                )
            definitions[str(reference.name)] = str(answer.schema.schema_str)
            waiting += answer.schema.references or []
        return definitions

    def _no_registry(self, found: str) -> InfrastructureError:
        return InfrastructureError(f"registry.url: {self._url} {_NO_REGISTRY}: found {found}")

    def _ask(self, question: Any, *, is_large: bool = False) -> Any:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            return question()
        except SchemaRegistryError as error:
            # Where ids are signed, one beyond them is an address that is not there.
            if error.error_code in _NOT_FOUND or (is_large and error.http_status_code == _NO_SUCH_ADDRESS):
                return None
            raise InfrastructureError(
                f"registry.url: {self._url} answers {error.http_status_code}: {error.error_message}."
                " Expected an address with Confluent's interface (Apicurio: /apis/ccompat/v7), and a login"
                " that may read schemas, and write them to publish"
            ) from None
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            # The client reads the answer without a doubt of its shape.
            raise InfrastructureError(
                f"registry.url: {self._url} {_NO_REGISTRY} ({self._said(error)})."
                " Expected an address with Confluent's interface (Apicurio: /apis/ccompat/v7)"
            ) from error
        except OncelakeError:
            raise
        except Exception as error:
            # The client hands on what its HTTP library raises, and that library has changed before.
            raise InfrastructureError(
                f"registry.url: {self._url} does not answer after {self._tries} tries:"
                f" {self._said(error)}. See docs/runbook.md, 'The schema registry'"
            ) from error


def _typed(key: str, value: str) -> str | int:
    """Return an option as the client wants it.

    Raises:
        ConfigError: It wants a number, and this is none.
    """
    if key not in _NUMBERS:
        return value
    try:
        return int(value)
    except ValueError:
        raise ConfigError(f"registry.options.{key}: expected a whole number, got {value!r}") from None
