"""What only a running JVM can tell before a job starts: of the cluster, the contract's rules, its limits."""

import re
from dataclasses import dataclass, replace
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import BooleanType

from pipelines.config import KafkaConfig
from pipelines.contract import DataContract
from pipelines.decode import with_conditions
from pipelines.errors import ConfigError, ContractError
from pipelines.ops.failures import first_line
from pipelines.ops.kafka_admin import admin_client
from pipelines.wire import AVRO_LIMITS

_CHANGING: Final = re.compile(
    r"\b(current_\w+|now|curdate|localtimestamp|unix_timestamp\s*\(\s*\)|raise_error|assert_true|select|over)\b",
    re.IGNORECASE,
)
_TEXT: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
# As dates and timestamps these texts mean another moment each time.
_MOMENTS: Final = {"now", "today", "tomorrow", "yesterday"}
_OTHER_ROWS: Final = re.compile(r"^\W*(Generate|Aggregate|Window)\b", re.MULTILINE)
_MISSING: Final = "UnknownTopicOrPartitionException"


@dataclass(frozen=True)
class Topic:
    """A topic as its cluster describes it.

    Attributes:
        name: its name.
        topic_id: the cluster's own identifier: a topic that is deleted and made anew gets another.
        partitions: how many partitions it has.
    """

    name: str
    topic_id: str
    partitions: int


def find_topic(
    spark: SparkSession, kafka: KafkaConfig, topic: str | None = None, setting: str = "kafka.topic"
) -> Topic:
    """Asks the cluster for the topic.

    Args:
        spark: the session, whose JVM has the Kafka client.
        kafka: the address, the topic and how long to wait.
        topic: another topic than `kafka.topic`.
        setting: where the user has named it, for messages.

    Raises:
        ConfigError: there is no such topic, or the client refuses its settings.
        InfrastructureError: the cluster does not answer in time, or its name is not found.
    """
    wanted = topic or kafka.topic
    with admin_client(spark, kafka) as admin:
        names = admin.jvm.java.util.Collections.singletonList(wanted)
        try:
            found = admin.answer(admin.client.describeTopics(names).allTopicNames()).get(wanted)
        except Py4JJavaError as error:
            if _MISSING in str(error.java_exception):
                raise ConfigError(
                    f"{setting}: there is no topic '{wanted}' at {kafka.bootstrap_servers};"
                    " create it, or name another"
                ) from None
            raise
        return Topic(wanted, found.topicId().toString(), found.partitions().size())


def check_patterns(spark: SparkSession, contract: DataContract) -> None:
    """Asks Java whether it can read the contract's regular expressions, which no Python can tell.

    Raises:
        ContractError: it cannot read one.
    """
    jvm: Any = spark.sparkContext._jvm
    for rule in contract.row_rules:
        if rule.kind == "pattern":
            try:
                jvm.java.util.regex.Pattern.compile(rule.value)
            except IllegalArgumentException as error:
                raise ContractError(
                    f"{contract.path}: schema.properties.{rule.column}: logicalTypeOptions.pattern:"
                    f" expected a regular expression of Java's kind, got {rule.value!r}:"
                    f" {first_line(str(error))}"
                ) from None


def check_conditions(spark: SparkSession, contract: DataContract) -> None:
    """Asks Spark whether the contract's conditions are ones: boolean, over its columns, the same every time.

    Raises:
        ContractError: one is not.
    """
    if not contract.conditions:
        return
    empty = spark.createDataFrame([], contract.schema)
    for condition in contract.conditions:
        place = f"{contract.path}: schema.quality: custom: {condition.name}"
        try:
            judged = with_conditions(empty, replace(contract, conditions=(condition,)))
        except PySparkException as error:
            raise ContractError(
                f"{place}: expected a condition in SQL over the contract's columns, got {condition.sql!r}:"
                f" {first_line(str(error))}"
            ) from None
        plan: Any = judged._jdf.queryExecution().analyzed()
        is_boolean = isinstance(judged.schema[-1].dataType, BooleanType)
        if not is_boolean or not plan.deterministic() or _asks_more(condition.sql, plan.toString()):
            raise ContractError(
                f"{place}: expected a condition that is true or false, and always the same for a record (no"
                f" clock, no random numbers, no query, no error of its own), got {condition.sql!r}"
            )


def _asks_more(sql: str, plan: str) -> bool:
    """Whether a condition looks at more than its record: the clock or other rows; or makes rows."""
    texts = [text[1:-1].strip().lower() for text in _TEXT.findall(sql)]
    return bool(_CHANGING.search(_TEXT.sub("''", sql)) or _MOMENTS & set(texts) or _OTHER_ROWS.search(plan))


def check_avro(spark: SparkSession, contract: DataContract) -> None:
    """Makes sure that no executor can be ended by a broken Avro payload; the driver has its limits already.

    Raises:
        ConfigError: executors have no limits.
    """
    context = spark.sparkContext
    options = context.getConf().get("spark.executor.extraJavaOptions") or ""
    if contract.value_format != "avro" or str(context.master).startswith("local"):
        return
    if lacking := [limit for limit in AVRO_LIMITS if limit not in options]:
        wanted = " ".join(f"-D{limit}={value}" for limit, value in AVRO_LIMITS.items())
        raise ConfigError(
            f"spark.executor.extraJavaOptions: {', '.join(lacking)} not found; a broken Avro payload could"
            f" end an executor. Add {wanted}, as conf/spark-defaults.conf has it"
        )
