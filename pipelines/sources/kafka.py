"""The one place where options for reading Kafka are made."""

import json
from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.config import KafkaConfig
from pipelines.intervals import format_interval

_HIDDEN: Final = "******"


def client_options(kafka: KafkaConfig, *, show_secrets: bool = True) -> dict[str, str]:
    """The Kafka client's own settings, by its own names.

    Args:
        kafka: the configuration.
        show_secrets: False replaces each secret by asterisks, for logs and plans.
    """
    secrets = {
        key: value.get_secret_value() if show_secrets else _HIDDEN for key, value in kafka.secrets.items()
    }
    return {
        "bootstrap.servers": kafka.bootstrap_servers,
        "isolation.level": kafka.isolation_level,
        **kafka.options,
        **secrets,
    }


def source_options(kafka: KafkaConfig, *, show_secrets: bool = True) -> dict[str, str]:
    """The options of Spark's source `kafka`."""
    options = {
        "subscribe": kafka.topic,
        "startingOffsets": kafka.starting_offsets,
        # Records that are gone before they were read are a loss; the stream stops instead of skipping.
        "failOnDataLoss": "true",
        "includeHeaders": "true",
        **{f"kafka.{k}": v for k, v in client_options(kafka, show_secrets=show_secrets).items()},
    }
    if kafka.max_offsets_per_trigger:
        options["maxOffsetsPerTrigger"] = str(kafka.max_offsets_per_trigger)
    return options


def read_envelopes(spark: SparkSession, kafka: KafkaConfig) -> DataFrame:
    """A stream of Kafka records as they are.

    Returns:
        The columns of `pipelines.sinks.tables.BRONZE`; `_ingested_at` is the same for all records of a
        micro-batch.
    """
    source = spark.readStream.format("kafka").options(**source_options(kafka)).load()
    return source.select(
        "key",
        "value",
        "headers",
        F.col("topic").alias("_topic"),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("timestamp").alias("_kafka_timestamp"),
        F.col("timestampType").alias("_kafka_timestamp_type"),
        F.current_timestamp().alias("_ingested_at"),
    )


def offsets_between(spark: SparkSession, kafka: KafkaConfig, ranges: Mapping[int, range]) -> DataFrame:
    """The offsets under which Kafka gives a record, as ingest would get it, at this moment.

    Args:
        spark: the session.
        kafka: the configuration.
        ranges: the offsets of each partition that is asked for; Kafka must still cover them.

    Returns:
        `_partition int, _offset bigint`.
    """
    options = source_options(kafka)
    del options["subscribe"]
    options |= {
        "assign": json.dumps({kafka.topic: list(ranges)}),
        "startingOffsets": json.dumps({kafka.topic: {str(p): asked.start for p, asked in ranges.items()}}),
        "endingOffsets": json.dumps({kafka.topic: {str(p): asked.stop for p, asked in ranges.items()}}),
        "includeHeaders": "false",
    }
    source = spark.read.format("kafka").options(**options).load()
    return source.select(F.col("partition").alias("_partition"), F.col("offset").alias("_offset"))


def describe(kafka: KafkaConfig) -> dict[str, str]:
    """What a plan shows of the source: its options without secrets, and the time allowed to connect."""
    return {
        **source_options(kafka, show_secrets=False),
        "connect timeout": format_interval(kafka.connect_timeout),
    }
