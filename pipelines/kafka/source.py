"""Reading Kafka: options and DataFrames."""

import json
from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.config.client_templates import SOURCE_TEMPLATES, settings
from pipelines.config.clusters import micros_of
from pipelines.config.kafka import KafkaConfig
from pipelines.config.secret_masking import HIDDEN
from pipelines.durations import format_interval

_PROVIDER: Final = "oncelakerack"
# After each poll Spark asks for the offsets of the partition, on the connection on which the client has sent
# the next fetch. At the end of the partition a broker holds that one, by default for 0.5 s, and so what was
# asked after it. Larger fetches are waited for: see docs/decisions/0076-fetches-end-after-10-ms.md.
_FETCH_WAIT_MS: Final = "10"


def client_options(kafka: KafkaConfig, *, show_secrets: bool = True) -> dict[str, str]:
    """Return the Kafka client's own settings, by its own names.

    Args:
        kafka: The configuration.
        show_secrets: False replaces each secret by asterisks, for logs and plans.
    """
    secrets = {
        key: value.get_secret_value() if show_secrets else HIDDEN for key, value in kafka.secrets.items()
    }
    return {
        "bootstrap.servers": kafka.bootstrap_servers,
        "isolation.level": kafka.isolation_level,
        **kafka.options,
        **secrets,
    }


def source_format(kafka: KafkaConfig) -> str:
    """Return the name of the source; a checkpoint of one is read by the other, and by Spark's own `kafka`.

    Both are that one, which alone fails for ever on a timestamp that Spark cannot hold.
    """
    return "rack-aware-kafka" if kafka.rack.assigns_partitions else "any-timestamp-kafka"


def rack_options(kafka: KafkaConfig) -> dict[str, str]:
    """Return settings by which each executor's client takes its rack from its own environment.

    The client resolves them where it is built, which for Spark is inside the executor. Kafka's own
    `EnvVarConfigProvider` would send the text `${env:NODE_RACK}` where the variable is not set.
    """
    variable = kafka.rack.executor_variable
    if variable is None:
        return {}
    others = client_options(kafka).get("config.providers", "")
    return {
        "config.providers": ",".join(filter(None, [others, _PROVIDER])),
        f"config.providers.{_PROVIDER}.class": "oncelake.rack.RackProvider",
        "client.rack": f"${{{_PROVIDER}:{variable}}}",
    }


def source_options(kafka: KafkaConfig, *, show_secrets: bool = True) -> dict[str, str]:
    """Return the options of the source, by Spark's names."""
    client = {
        **settings(SOURCE_TEMPLATES, kafka.template),
        **client_options(kafka, show_secrets=show_secrets),
        **rack_options(kafka),
    }
    if client.get("fetch.min.bytes", "1") == "1":
        client.setdefault("fetch.max.wait.ms", _FETCH_WAIT_MS)
    options = {
        "subscribe": kafka.topic,
        "startingOffsets": kafka.starting_offsets,
        # Records that are gone before they were read are a loss; the stream stops instead of skipping.
        "failOnDataLoss": "true",
        "includeHeaders": "true",
        **{f"kafka.{key}": value for key, value in client.items()},
    }
    if kafka.max_offsets_per_trigger:
        options["maxOffsetsPerTrigger"] = str(kafka.max_offsets_per_trigger)
    return options


def read_envelopes(spark: SparkSession, kafka: KafkaConfig, starting: str | None = None) -> DataFrame:
    """Return a stream of Kafka records as they are.

    Args:
        spark: The session.
        kafka: The configuration.
        starting: Where a new checkpoint begins, in Spark's form, if not where the configuration says.

    Returns:
        The columns of `pipelines.delta.record_tables.BRONZE`; `_ingested_at` is the same for all records of a
        micro-batch.
    """
    options = source_options(kafka)
    if starting:
        options["startingOffsets"] = starting
    source = spark.readStream.format(source_format(kafka)).options(**options).load()
    return _envelopes(source, kafka).withColumn("_ingested_at", _ingested_at(kafka))


def _ingested_at(kafka: KafkaConfig) -> Column:
    micros = micros_of(kafka.cluster).microseconds
    now = F.current_timestamp()
    return now + F.expr(f"INTERVAL {micros} MICROSECONDS") if micros else now


def envelopes_between(spark: SparkSession, kafka: KafkaConfig, ranges: Mapping[int, range]) -> DataFrame:
    """Return Kafka records within some offsets as they are.

    Args:
        spark: The session.
        kafka: The configuration.
        ranges: The offsets of each partition that is asked for; Kafka must still cover them.

    Returns:
        The columns of `pipelines.delta.record_tables.BRONZE`, without `_ingested_at`.
    """
    return _envelopes(records_between(spark, kafka, ranges, headers=True), kafka)


def _envelopes(source: DataFrame, kafka: KafkaConfig) -> DataFrame:
    topic = F.col("topic") if kafka.cluster is None else F.lit(kafka.source_topic)
    return source.select(
        "key",
        "value",
        "headers",
        topic.alias("_topic"),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("timestamp").alias("_kafka_timestamp"),
        F.col("timestampType").alias("_kafka_timestamp_type"),
    )


def records_between(
    spark: SparkSession, kafka: KafkaConfig, ranges: Mapping[int, range], *, headers: bool = False
) -> DataFrame:
    """Return the records that Kafka gives within some offsets, as ingest would get them, at this moment.

    Args:
        spark: The session.
        kafka: The configuration.
        ranges: The offsets of each partition that is asked for; Kafka must still cover them.
        headers: Whether they come with their headers.

    Returns:
        The columns of the source: `key`, `value`, `partition`, `offset`, `timestamp` and others.
    """
    options = source_options(kafka)
    del options["subscribe"]
    options |= {
        "assign": json.dumps({kafka.topic: list(ranges)}),
        "startingOffsets": json.dumps(
            {kafka.topic: {str(p): offsets.start for p, offsets in ranges.items()}}
        ),
        "endingOffsets": json.dumps({kafka.topic: {str(p): offsets.stop for p, offsets in ranges.items()}}),
        "includeHeaders": str(headers).lower(),
    }
    if client := kafka.options.get("client.id"):
        # So that who looks at the groups of the cluster sees whose they are.
        options["groupIdPrefix"] = client
    return spark.read.format(source_format(kafka)).options(**options).load()


def offsets_between(spark: SparkSession, kafka: KafkaConfig, ranges: Mapping[int, range]) -> DataFrame:
    """Return the offsets under which `records_between` finds a record: `_partition int, _offset bigint`."""
    source = records_between(spark, kafka, ranges)
    return source.select(F.col("partition").alias("_partition"), F.col("offset").alias("_offset"))


def shown_options(kafka: KafkaConfig) -> dict[str, str]:
    """Return what a plan shows of the source.

    Its options without secrets, and the time allowed to connect.
    """
    return {
        "source": source_format(kafka),
        **source_options(kafka, show_secrets=False),
        "connect timeout": format_interval(kafka.connect_timeout),
    }
