"""Kafka's own admin client, with the pipeline's options, and what it says in plain words."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pipelines.config.hiding import without_secrets
from pipelines.config.model import KafkaConfig
from pipelines.errors import ConfigError, InfrastructureError
from pipelines.kafka.source import client_options
from pipelines.spark.failures import cluster_refusal, first_line

_UNRESOLVED: Final = "No resolvable bootstrap urls"


@dataclass(frozen=True)
class Admin:
    """An admin client in the session's JVM.

    Attributes:
        jvm: the JVM, for the client's arguments.
        client: the client, a Java object.
        timeout_ms: how long to wait for an answer.
        where: the cluster, for messages.
    """

    jvm: Any
    client: Any
    timeout_ms: int
    where: str

    def answer(self, future: Any) -> Any:
        """Return what a question is answered with.

        Raises:
            Py4JJavaError: the cluster refuses, or does not answer in time.
        """
        return future.get(self.timeout_ms, self.jvm.java.util.concurrent.TimeUnit.MILLISECONDS)

    @contextmanager
    def asked(self) -> Iterator[None]:
        """Ask questions of the cluster, and nothing else, while the block runs.

        Raises:
            ConfigError: the cluster refuses login, certificate or rights.
            InfrastructureError: a question was not answered.
        """
        try:
            yield
        except Py4JJavaError as error:
            if meaning := cluster_refusal(" ".join(_kinds(error))):
                raise ConfigError(f"{self.where}: {meaning}. Kafka says: {kafka_error_text(error)}") from None
            raise InfrastructureError(
                f"{self.where}: no answer within {self.timeout_ms / 1000:g} s ({kafka_error_text(error)});"
                " check that the cluster is up, that this machine can reach it, and security.protocol in"
                " kafka.options"
            ) from None


@contextmanager
def admin_client(spark: SparkSession, kafka: KafkaConfig) -> Iterator[Admin]:
    """Yield an admin client for some questions, and nothing else; closed afterwards.

    Args:
        spark: the session, whose JVM has the Kafka client.
        kafka: the address, its options, and how long to wait.

    Raises:
        ConfigError: the client refuses its settings; or the cluster refuses login, certificate or rights.
        InfrastructureError: a question was not answered, or the cluster's name is not found.
    """
    with lasting_admin_client(spark, kafka) as admin, admin.asked():
        yield admin


@contextmanager
def lasting_admin_client(spark: SparkSession, kafka: KafkaConfig) -> Iterator[Admin]:
    """Yield an admin client for questions between other work, each within `Admin.asked`; closed afterwards.

    Args:
        spark: the session, whose JVM has the Kafka client.
        kafka: the address, its options, and how long to wait.

    Raises:
        ConfigError: the client refuses its settings.
        InfrastructureError: the cluster's name is not found.
    """
    jvm: Any = spark.sparkContext._jvm
    timeout_ms = kafka.connect_timeout // timedelta(milliseconds=1)
    properties = jvm.java.util.Properties()
    for key, value in client_options(kafka).items():
        if key != "isolation.level":
            properties.setProperty(key, value)
    properties.setProperty("default.api.timeout.ms", str(timeout_ms))
    properties.setProperty("request.timeout.ms", str(timeout_ms))
    where = f"kafka.bootstrap_servers: {kafka.bootstrap_servers}"
    try:
        client = jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
    except Py4JJavaError as error:
        # Kafka repeats what it cannot read of a login.
        secrets = [value.get_secret_value() for value in kafka.secrets.values()]
        said = without_secrets(kafka_error_text(error), secrets)
        message = f"{where}: the Kafka client refuses to start: {said}"
        # A name that is not found today may be found again in a minute.
        raise (InfrastructureError if _UNRESOLVED in message else ConfigError)(message) from None
    try:
        yield Admin(jvm, client, timeout_ms, where)
    finally:
        client.close(jvm.java.time.Duration.ofSeconds(1))


def kafka_error_text(error: Py4JJavaError) -> str:
    """Return what lies at the bottom of a failure of the client."""
    *_, cause = _causes(error)
    return first_line(str(cause.toString()))


def _kinds(error: Py4JJavaError) -> Iterator[str]:
    """Yield the classes of a failure of the client and of what it came from."""
    return (str(cause.getClass().getName()) for cause in _causes(error))


def _causes(error: Py4JJavaError) -> Iterator[Any]:
    cause = error.java_exception
    while cause is not None:
        yield cause
        cause = cause.getCause()
