"""What a pipeline's configuration may say of publishing its events to Kafka."""

from collections.abc import Set
from datetime import timedelta
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from pipelines.config.client_templates import TemplateName
from pipelines.config.values import (
    Bytes,
    Count,
    PositiveInterval,
    ProducerOptions,
    ProducerSecrets,
    Servers,
    Topic,
    parse_bytes,
)

PROGRESS_TOPIC: Final = "oncelake-progress"
Retraction = Literal["tombstone", "record"]
"""What is sent for a published event that is no longer in the certified day."""

_SHORTEST_ABSENCE: Final = timedelta(days=7)
_SHORTEST, _LONGEST = timedelta(seconds=1), timedelta(days=1)


class PublishConfig(BaseModel):
    """Where the events of the speed layer are published, each exactly once for `read_committed` consumers.

    Attributes:
        topic: Output topic. It must exist.
        format: Format of the values: `json`, or `avro`. `avro` registers a schema, made from the contract, in
            the registry (`registry.url`) when publishing starts.
        subject: Subject of that schema in the registry. Without it, `TOPIC-value`.
        bootstrap_servers: Cluster of the output topic. Without it, the address of `kafka`, and also its
            login, unless `publish.options` or `publish.secrets` has one. See [Logins](security.md#logins).
        slots: How many transactions, and tasks, publish a micro-batch. Partition p of the topic belongs to
            slot p modulo this number. You may change it while no micro-batch is in flight.
        progress_topic: Topic that keeps the publishing progress, a partition for each slot. All pipelines of
            a cluster may share it. If it is missing, it is created, compacted and with as many replicas as
            the output topic. If you create it yourself, set `cleanup.policy=compact`.
        trigger_interval: Time from one micro-batch to the next.
        max_bytes_per_trigger: How much of the speed layer a micro-batch reads, approximately, such as `64m`.
            Corrections and whole days are sent in parts of this size. It limits how long a transaction is
            open.
        transaction_timeout: Time after which the brokers abort an open transaction (the producer's
            `transaction.timeout.ms`). Set it longer than it takes to publish a micro-batch, and at most to
            the brokers' `transaction.max.timeout.ms`. 1 second to 1 day.
        retraction: What is sent for a published event that is not in the certified day: a `tombstone`, which
            deletes its key from a compacted topic, or a `record` with the event.
        keep_unread: How long `publish_stream` may be stopped. The speed layer and the table of verdicts keep
            their Delta logs for this time. At least 7 days.
        template: Settings of librdkafka for one way of publishing events: `realtime`, `backfill` or
            `nightly`, see [Client templates](#client-templates). `publish.options` overrides them.
        options: Other settings of librdkafka, by its own names, such as `compression.type`; many differ
            from those of Kafka's Java client.
        secrets: The same, for values that are never shown or logged.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    topic: Topic
    format: Literal["json", "avro"] = "json"
    subject: Annotated[str, Field(min_length=1)] | None = None
    bootstrap_servers: Servers | None = None
    slots: Count = Field(default=4, le=256)
    progress_topic: Topic = PROGRESS_TOPIC
    trigger_interval: PositiveInterval = timedelta(seconds=10)
    max_bytes_per_trigger: Bytes = "64m"
    transaction_timeout: PositiveInterval = timedelta(minutes=5)
    retraction: Retraction = "tombstone"
    keep_unread: PositiveInterval = timedelta(days=30)
    template: TemplateName | None = None
    options: ProducerOptions = {}
    secrets: ProducerSecrets = {}

    @property
    def max_bytes(self) -> int:
        """`max_bytes_per_trigger` as a number."""
        return parse_bytes(self.max_bytes_per_trigger)

    @field_validator("keep_unread")
    @classmethod
    def _long_enough(cls, interval: timedelta) -> timedelta:
        if interval < _SHORTEST_ABSENCE:
            raise ValueError("expected 7 days at least, for which Delta keeps removed files anyway")
        return interval

    @field_validator("transaction_timeout")
    @classmethod
    def _within_limits(cls, timeout: timedelta) -> timedelta:
        # If it is longer than the brokers allow, publishing refuses it when it starts.
        if not _SHORTEST <= timeout <= _LONGEST:
            raise ValueError("expected an interval from 1 second to 1 day; most brokers allow 15 minutes")
        return timeout


def check_publish(
    publish: PublishConfig, servers: str, taken: Set[str | None], *, has_registry: bool
) -> None:
    """Make sure that publishing has what it needs, and take nothing that others need.

    Args:
        publish: What is said of publishing.
        servers: Of the cluster that is read.
        taken: Its topics that are others'.
        has_registry: Whether there is a registry.

    Raises:
        ValueError: A topic is another's, or there is no registry for the schema.
    """
    own = {*(publish.bootstrap_servers or servers).split(",")}
    # One server in common makes it one cluster, however its other servers are named.
    others = taken if own & {*servers.split(",")} else set()
    if publish.topic in others or publish.progress_topic in {publish.topic, *others}:
        raise ValueError(
            "topic and progress_topic: expected topics of their own, beside kafka.topic and"
            f" quarantine.dead_letter_topic; got '{publish.topic}' and '{publish.progress_topic}'"
        )
    if publish.format == "avro" and not has_registry:
        raise ValueError(
            "format: avro needs registry.url, where its schema is registered; add it, e.g. --set"
            " registry.url=http://registry:8081"
        )
