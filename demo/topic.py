"""The topic of a demo, on whatever cluster there is."""

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pipelines.errors import InfrastructureError
from pipelines.kafka.setting_names import RETENTION, RETENTION_BYTES, STAMPS

_SECONDS = 30.0
_ERRORS = 3  # without the farewell of its background thread


def create_topic(bootstrap_servers: str, topic: str, partitions: int) -> None:
    """Make a topic that keeps everything: the flights' timestamps are of 2013, far beyond any retention.

    Args:
        bootstrap_servers: Where the cluster is.
        topic: A topic that does not exist.
        partitions: How many it gets.

    Raises:
        InfrastructureError: The cluster does not answer, or refuses.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": _ERRORS})
    wanted = NewTopic(
        topic,
        num_partitions=partitions,
        replication_factor=-1,  # the cluster's own default
        config={RETENTION: "-1", RETENTION_BYTES: "-1", STAMPS: "CreateTime"},
    )
    try:
        admin.create_topics([wanted], operation_timeout=_SECONDS)[topic].result(_SECONDS)
    except (KafkaException, TimeoutError) as refusal:
        raise InfrastructureError(
            f"topic {topic} at {bootstrap_servers}: cannot be created: {refusal}; expected a cluster that "
            "answers and lets this client create topics"
        ) from refusal


def delete_topic(bootstrap_servers: str, topic: str) -> None:
    """Remove a topic that `create_topic` made.

    Args:
        bootstrap_servers: Where the cluster is.
        topic: Its name.

    Raises:
        InfrastructureError: The cluster does not answer, or refuses.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": _ERRORS})
    try:
        admin.delete_topics([topic], operation_timeout=_SECONDS)[topic].result(_SECONDS)
    except (KafkaException, TimeoutError) as refusal:
        raise InfrastructureError(
            f"topic {topic} at {bootstrap_servers}: cannot be deleted: {refusal}; delete it by hand"
        ) from refusal
