"""The sink that a pipeline publishes to, by its configuration."""

from pipelines.config import PipelineConfig
from pipelines.config_publish import PublishConfig
from pipelines.errors import ConfigError
from pipelines.sinks.kafka_transactional import TransactionalSink


def settings_of(config: PipelineConfig) -> PublishConfig:
    """What the configuration says of publishing.

    Raises:
        ConfigError: nothing.
    """
    if config.publish is None:
        raise ConfigError(
            f"publish.topic: missing; name the topic to which {config.name} is published, e.g. --set"
            f" publish.topic={config.name}-events"
        )
    return config.publish


def sink_of(config: PipelineConfig) -> TransactionalSink:
    """The sink of a pipeline.

    Raises:
        ConfigError: nothing is said of publishing.
    """
    asked = settings_of(config)
    return TransactionalSink(
        name=f"oncelake.{config.env}.{config.name}",
        topic=asked.topic,
        slots=asked.slots,
        client={
            "bootstrap.servers": asked.bootstrap_servers or config.kafka.bootstrap_servers,
            **asked.options,
            **{key: value.get_secret_value() for key, value in asked.secrets.items()},
        },
        rack_variable=None if config.kafka.rack.mode == "off" else config.kafka.rack.variable,
        progress_topic=asked.progress_topic,
        timeout=config.kafka.connect_timeout,
        transaction_timeout=asked.transaction_timeout,
    )
