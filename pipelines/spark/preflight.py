"""What only a running JVM can check before a job starts: the contract's rules, and the JVM's limits."""

from dataclasses import replace
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import BooleanType

from pipelines.contracts.confinement import EXPECTED
from pipelines.contracts.contract import DataContract
from pipelines.errors import ConfigError, ContractError
from pipelines.formats.registered_formats import format_of
from pipelines.records.decode import with_conditions
from pipelines.spark.condition_bounds import grows
from pipelines.spark.condition_purity import asks_more, reaches_out
from pipelines.spark.failures import cause, first_line
from pipelines.spark.query_reach import BATCH, reaches_beyond_rows

_SQL_ARGUMENTS: Final = {
    "unexpected_rows_query": reaches_beyond_rows,
    "base_query": reaches_beyond_rows,
    "comparison_query": reaches_beyond_rows,
    "row_condition": reaches_out,
}
"""The arguments of expectations that are SQL, each with what judges it."""


def check_patterns(spark: SparkSession, contract: DataContract) -> None:
    """Ask Java whether it can read the contract's regular expressions, which Python cannot check.

    Raises:
        ContractError: It cannot read one.
    """
    jvm: Any = spark.sparkContext._jvm
    for rule in contract.row_rules:
        if rule.kind == "pattern":
            try:
                jvm.java.util.regex.Pattern.compile(rule.value)
            except IllegalArgumentException as error:
                raise ContractError(
                    f"{contract.path}: schema.properties.{rule.column}: logicalTypeOptions.pattern:"
                    f" expected a regular expression in Java's syntax, got {rule.value!r}:"
                    f" {first_line(str(error))}"
                ) from None


def check_zone(spark: SparkSession, contract: DataContract) -> None:
    """Ask Java whether it knows the zone in which event days begin, since its list may be the older one.

    Java itself, not Spark, which knows abbreviations besides: nightly runs read the zone's rules from Java.

    Raises:
        ContractError: It does not.
    """
    jvm: Any = spark.sparkContext._jvm
    try:
        jvm.java.time.ZoneId.of(contract.day_time_zone).getRules()
    except (PySparkException, Py4JJavaError):
        raise ContractError(
            f"{contract.path}: schema.customProperties.dayTimeZone: expected a time zone that Java"
            f" {jvm.java.lang.System.getProperty('java.version')} knows, got {contract.day_time_zone!r};"
            " use a newer Java, or a region with the same rules, such as America/New_York"
        ) from None


def check_conditions(spark: SparkSession, contract: DataContract) -> None:
    """Ask Spark whether the contract's conditions are ones: boolean, over its columns, the same every time.

    No record may take a task's memory by them, or its time.

    Raises:
        ContractError: One is not.
    """
    if not contract.conditions:
        return
    # Not a local one: of that Spark makes no code.
    empty = spark.createDataFrame(spark.sparkContext.emptyRDD(), contract.schema)
    for condition in contract.conditions:
        place = f"{contract.path}: schema.quality: custom: {condition.name}"
        try:
            outside = reaches_out(spark, condition.sql)
            if outside:
                raise ContractError(
                    f"{place}: expected {EXPECTED}, got {condition.sql!r}, which has {outside}"
                )
            judged = with_conditions(empty, replace(contract, conditions=(condition,)))
        except PySparkException as error:
            raise ContractError(
                f"{place}: expected a condition in SQL over the contract's columns, got {condition.sql!r}:"
                f" {first_line(str(error))}"
            ) from None
        plan: Any = judged._jdf.queryExecution().analyzed()
        is_boolean = isinstance(judged.schema[-1].dataType, BooleanType)
        impurity = asks_more(condition.sql, plan)
        if impurity or not is_boolean:
            why = f", which asks for {impurity}" if impurity else ""
            raise ContractError(
                f"{place}: expected a condition that is true or false, and always the same for a record (no"
                " clock, no user, no random numbers, no query, no error of its own), got"
                f" {condition.sql!r}{why}"
            )
        if growing := grows(spark, plan):
            raise ContractError(
                f"{place}: expected a condition that takes memory and time in proportion to its record, got"
                f" {condition.sql!r}, which has {growing}"
            )
        try:
            # What cannot be made into code, such as an invalid format, fails whatever the record is.
            judged._jdf.queryExecution().toRdd()
        except (PySparkException, Py4JJavaError) as error:
            raise ContractError(
                f"{place}: expected a condition that Spark can compute, got {condition.sql!r}: {cause(error)}"
            ) from None


def check_queries(spark: SparkSession, contract: DataContract) -> None:
    """Ask Spark what the queries of the suites read: the rows, and nothing else.

    Raises:
        ConfigError: One is no query, or reads more.
    """
    for own in contract.expectations:
        for argument, reaches in _SQL_ARGUMENTS.items():
            sql = own.config.get("kwargs", {}).get(argument)
            if not isinstance(sql, str):
                continue
            try:
                outside = reaches(spark, sql)
            except PySparkException as error:
                raise ConfigError(
                    f"{own.place}: kwargs.{argument}: expected SQL, got {sql!r}: {first_line(str(error))}"
                ) from None
            if outside:
                raise ConfigError(
                    f"{own.place}: kwargs.{argument}: expected SQL over {BATCH} alone, got {sql!r}, which has"
                    f" {outside}"
                )


def check_executors(spark: SparkSession, contract: DataContract) -> None:
    """Make sure that no executor can be ended by a broken value; the driver has its limits already.

    Raises:
        ConfigError: Executors have no limits.
    """
    context = spark.sparkContext
    options = context.getConf().get("spark.executor.extraJavaOptions") or ""
    limits = format_of(contract).java_options
    if str(context.master).startswith("local"):
        return
    if lacking := [limit for limit in limits if limit not in options]:
        missing_options = " ".join(f"-D{limit}={value}" for limit, value in limits.items())
        raise ConfigError(
            f"spark.executor.extraJavaOptions: {', '.join(lacking)} not found; a broken value could"
            f" end an executor. Add {missing_options}, as in conf/spark-defaults.conf"
        )
