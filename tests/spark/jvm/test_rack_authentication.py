"""The source `rack-aware-kafka` asks the cluster with the delegation token that Spark's own would use."""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

CLUSTER = "spark.kafka.clusters.racks."
SERVERS = "broker.example:9092"


@pytest.fixture
def token(spark: SparkSession) -> Iterator[str]:
    """A token for the cluster, as Spark hands it to drivers and executors."""
    jvm: Any = spark.sparkContext._jvm
    settings = jvm.org.apache.spark.SparkEnv.get().conf()
    settings.set(f"{CLUSTER}auth.bootstrap.servers", SERVERS)
    settings.set(f"{CLUSTER}security.protocol", "SASL_PLAINTEXT")
    util = jvm.org.apache.spark.kafka010.KafkaTokenUtil
    text = jvm.org.apache.hadoop.io.Text
    new_token, name = jvm.org.apache.hadoop.security.token.Token, text(util.getTokenService("racks"))
    user = jvm.org.apache.hadoop.security.UserGroupInformation.getCurrentUser()
    assert user.addToken(name, new_token(b"token-id", b"hush", util.TOKEN_KIND(), name))
    yield "token-id"
    # A user's tokens can be replaced, but not removed. Streams of later tests look for one of their cluster.
    assert user.addToken(name, new_token(b"", b"", text("none"), text("none")))
    for key in ("auth.bootstrap.servers", "security.protocol"):
        settings.remove(f"{CLUSTER}{key}")


def settings_of(spark: SparkSession) -> dict[str, str]:
    """The settings of the admin client, as the source makes them; the class is its own."""
    jvm: Any = spark.sparkContext._jvm
    options = jvm.java.util.HashMap()
    options.put("kafka.bootstrap.servers", SERVERS)
    loader = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    internals = jvm.java.lang.Class.forName("oncelake.rack.SparkInternals", True, loader)
    for method in internals.getDeclaredMethods():
        if method.getName() == "driverSettings":
            method.setAccessible(True)
            arguments = spark.sparkContext._gateway.new_array(jvm.java.lang.Object, 1)  # type: ignore[union-attr]
            arguments[0] = options
            found = method.invoke(None, arguments)
            return {key: str(found[key]) for key in found}
    raise AssertionError("no driverSettings")


def test_the_token_of_the_cluster_is_used(spark: SparkSession, token: str) -> None:
    found = settings_of(spark)
    assert found["security.protocol"] == "SASL_PLAINTEXT"
    assert "tokenauth=true" in found["sasl.jaas.config"]
    assert token in found["sasl.jaas.config"]


def test_without_a_token_nothing_is_added(spark: SparkSession) -> None:
    assert "sasl.jaas.config" not in settings_of(spark)
