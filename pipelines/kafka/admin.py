"""Kafka's own admin client, with the pipeline's options, and what it says in plain words."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pipelines.config.kafka import KafkaConfig
from pipelines.config.secret_masking import mask_values
from pipelines.errors import ConfigError, InfrastructureError
from pipelines.kafka.client_errors import advice, kafka_error_text, kinds
from pipelines.kafka.source import client_options
from pipelines.kafka.token_login import may_pass, token_failure
from pipelines.spark.failures import cluster_refusal

_UNRESOLVED: Final = "No resolvable bootstrap urls"


@dataclass(frozen=True)
class Admin:
    """An admin client in the session's JVM.

    Attributes:
        jvm: The JVM, for the client's arguments.
        client: The client, a Java object.
        timeout_ms: How long to wait for an answer.
    """

    jvm: Any
    client: Any
    timeout_ms: int

    def get(self, future: Any) -> Any:
        """Return what a question is answered with.

        Raises:
            Py4JJavaError: The cluster refuses, or does not answer in time.
        """
        return future.get(self.timeout_ms, self.jvm.java.util.concurrent.TimeUnit.MILLISECONDS)

    def describe_topic(self, topic: str, *options: Any) -> Any:
        """Return what the cluster says of a topic, as Kafka's own `TopicDescription`.

        Args:
            topic: The topic.
            options: Kafka's own `DescribeTopicsOptions`, if there are any.

        Raises:
            Py4JJavaError: There is no such topic, or the cluster refuses, or does not answer in time.
        """
        names = self.jvm.java.util.Collections.singletonList(topic)
        return self.get(self.client.describeTopics(names, *options).allTopicNames()).get(topic)


@contextmanager
def open_admin(spark: SparkSession, kafka: KafkaConfig) -> Iterator[Admin]:
    """Yield an admin client for a longer time; closed afterwards. What it raises is Kafka's own.

    Args:
        spark: The session, whose JVM has the Kafka client.
        kafka: The address, its options, and how long to wait.

    Raises:
        ConfigError: The client refuses its settings.
        InfrastructureError: The cluster's name is not found.
    """
    jvm: Any = spark.sparkContext._jvm
    timeout_ms = kafka.connect_timeout // timedelta(milliseconds=1)
    properties = jvm.java.util.Properties()
    for key, value in client_options(kafka).items():
        if key != "isolation.level":
            properties.setProperty(key, value)
    properties.setProperty("default.api.timeout.ms", str(timeout_ms))
    properties.setProperty("request.timeout.ms", str(timeout_ms))
    try:
        client = jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
    except Py4JJavaError as error:
        raise _no_client(spark, kafka, properties, error) from None
    try:
        yield Admin(jvm, client, timeout_ms)
    finally:
        client.close(jvm.java.time.Duration.ofSeconds(1))


def _no_client(
    spark: SparkSession, kafka: KafkaConfig, properties: Any, error: Py4JJavaError
) -> ConfigError | InfrastructureError:
    """Return why there is no client by these settings."""
    no_token = token_failure(spark, properties, error)
    # Kafka repeats what it cannot read of a login.
    secrets = [value.get_secret_value() for value in kafka.secrets.values()]
    said = mask_values(kafka_error_text(no_token or error), secrets)
    if no_token is None:
        message = f"{_where(kafka)}: the Kafka client refuses to start: {said}{advice(said)}"
        # A name that is not found today may be found again in a minute.
        return (InfrastructureError if _UNRESOLVED in message else ConfigError)(message)
    return (InfrastructureError if may_pass(no_token) else ConfigError)(
        f"{_where(kafka)}: the cluster was not asked: there is no token for the login. Check"
        f" sasl.oauthbearer.token.endpoint.url in {kafka.setting('options')}, and clientId and clientSecret"
        f" of sasl.jaas.config in {kafka.setting('secrets')}. Kafka's client says: {said}"
    )


@contextmanager
def admin_client(spark: SparkSession, kafka: KafkaConfig) -> Iterator[Admin]:
    """Yield an admin client for some questions, as `open_admin` does; what it raises is told in plain words.

    Args:
        spark: The session, whose JVM has the Kafka client.
        kafka: The address, its options, and how long to wait.

    Raises:
        ConfigError: The client refuses its settings; or the cluster refuses login, certificate or rights.
        InfrastructureError: A question was not answered, or the cluster's name is not found.
    """
    with open_admin(spark, kafka) as admin:
        try:
            yield admin
        except Py4JJavaError as error:
            said = kafka_error_text(error)
            if meaning := cluster_refusal(" ".join(kinds(error))):
                raise ConfigError(f"{_where(kafka)}: {meaning}. Kafka says: {said}") from None
            raise InfrastructureError(
                f"{_where(kafka)}: no answer within {admin.timeout_ms / 1000:g} s ({said});"
                " check that the cluster is up, that this machine can reach it, and security.protocol in"
                " kafka.options"
            ) from None


def _where(kafka: KafkaConfig) -> str:
    return f"{kafka.setting('bootstrap_servers')}: {kafka.bootstrap_servers}"
