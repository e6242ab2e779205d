"""The sink that a pipeline publishes to, and how its values are written, by its configuration."""

from dataclasses import replace
from typing import Final

from pipelines.config.client_templates import SINK_TEMPLATES, settings
from pipelines.config.commands import of_pipeline
from pipelines.config.model import PipelineConfig
from pipelines.config.output_login import output_login
from pipelines.config.publish import PublishConfig
from pipelines.contracts.contract import DataContract
from pipelines.errors import ConfigError
from pipelines.publishing.kafka_records import RECORDS_VERSION
from pipelines.publishing.transactional_sink import TransactionalSink
from pipelines.registry.event_schema import AvroValues, avro_schema
from pipelines.registry.schema_registry import open_registry
from pipelines.spark.pipeline import Pipeline


def settings_of(config: PipelineConfig) -> PublishConfig:
    """Return what the configuration says of publishing.

    Raises:
        ConfigError: It has no section `publish`.
    """
    if config.publish is None:
        raise ConfigError(
            f"publish.topic: missing; name the topic to which {config.name} is published, e.g. --set"
            f" publish.topic={config.name}-events"
        )
    return config.publish


DAY_SINK: Final = ".day."
"""What follows the name of the stream's sink in the names of the sinks by which whole days are sent."""


def sink_of(config: PipelineConfig) -> TransactionalSink:
    """Return the sink of a pipeline, to ask its cluster; `writing_sink` is the one to write with.

    Raises:
        ConfigError: Nothing is said of publishing, or it is to log in as librdkafka cannot.
    """
    publish_config, login = settings_of(config), output_login(config)
    return TransactionalSink(
        name=f"oncelake.{config.env}.{config.name}",
        topic=publish_config.topic,
        slots=publish_config.slots,
        client={
            "bootstrap.servers": publish_config.bootstrap_servers or config.kafka.bootstrap_servers,
            **settings(SINK_TEMPLATES, publish_config.template),
            **login.options,
            **{key: value.get_secret_value() for key, value in login.secrets.items()},
        },
        rack_variable=config.kafka.rack.executor_variable,
        progress_topic=publish_config.progress_topic,
        timeout=config.kafka.connect_timeout,
        transaction_timeout=publish_config.transaction_timeout,
        # Coordinates name an event. Its value may get another column while a micro-batch is under way.
        identity=("key", "headers"),
        in_commands=of_pipeline(config),
        secrets=tuple(login.secrets),
        login_settings=login.settings,
    )


def writing_sink(
    config: PipelineConfig, contract: DataContract, avro: AvroValues | None
) -> TransactionalSink:
    """Return the sink of a pipeline that is about to write, which knows what decides its records.

    Args:
        config: The pipeline's configuration.
        contract: Its contract.
        avro: How values are written in Avro; None for JSON.

    Raises:
        ConfigError: Nothing is said of publishing.
    """
    return replace(sink_of(config), rules=_rules(config, contract, avro))


def _rules(config: PipelineConfig, contract: DataContract, avro: AvroValues | None) -> dict[str, str]:
    """Return what decides a pipeline's records beside its tables, as words by name."""
    return {
        "the contract's key": ", ".join(contract.key),
        "the contract's time zone": str(contract.zone),
        "publish.format": "avro" if avro else "json",
        "publish.retraction": settings_of(config).retraction,
        "batch.dedup_horizon_days": str(config.batch.dedup_horizon_days),
        "the version of the records": str(RECORDS_VERSION),
    }


def values_of(pipeline: Pipeline) -> AvroValues | None:
    """Return how values are written in Avro, by a schema that is in the registry then; None for JSON.

    Raises:
        ConfigError: Nothing is said of publishing, or the registry refuses the schema.
        InfrastructureError: The registry does not answer.
    """
    config = pipeline.config
    publish_config = settings_of(config)
    # Configuration has seen to it that Avro has a registry.
    if publish_config.format == "json" or config.registry is None:
        return None
    text = avro_schema(pipeline.spark, pipeline.contract, config.name)
    registry = open_registry(config.registry)
    schema_id = registry.register(publish_config.subject or registry.subject_of(publish_config.topic), text)
    return AvroValues(registry.wire_format.header(schema_id), text)
