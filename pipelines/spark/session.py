"""The Spark session that every job uses, started here or by spark-submit."""

import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, Final

import psutil
from py4j.java_gateway import JavaClass, JavaMember
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from pipelines.config.model import PipelineConfig
from pipelines.errors import ConfigError
from pipelines.formats.registered_formats import jar_classes, java_options
from pipelines.runtime.class_archive import class_settings
from pipelines.runtime.java import use_java
from pipelines.runtime.own_jar import PLUGIN, RACK_VARIABLE, spark_jars
from pipelines.spark.launch import launch
from pipelines.spark.log_store import is_on_s3, local_log_store, require_log_store
from pipelines.spark.state_store import PROVIDER, SPARKS_OWN
from pipelines.spark.store_outages import store_limits

_END_WITHIN_S: Final = 180

# The same settings stand in conf/spark-defaults.conf for people who start sessions of their own.
SETTINGS: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Instants are stored and compared in UTC; only the event day is local, to the contract's zone.
    "spark.sql.session.timeZone": "UTC",
    # INT96, which Spark writes by default, is slower, and other engines read it as nanoseconds, which end in
    # 2262.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # As Spark's own defaults; with others, moments before 1900 and names of columns mean something else.
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.caseSensitive": "false",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    # The deduplication has another one, see `pipelines.spark.state_store`.
    PROVIDER: SPARKS_OWN,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Counting rows costs a read for each write; the metric of state rows then says 0.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    # Contracts become SQL text; what looks like a variable in it is meant as it stands.
    "spark.sql.variable.substitute": "false",
    # A file that cannot be read stops a job. Passed over, it would be rows that nobody misses.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    # Parquet writes a checksum of each page, and by default compares none: what a disk has changed would be
    # read as data where no other checksum is kept, as on object stores and in copies.
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    # To pass over what has nothing that is asked for, Parquet reads dictionaries without comparing checksums.
    "spark.hadoop.parquet.filter.dictionary.enabled": "false",
    # Spark's own pattern, and names of keys that it does not know.
    "spark.redaction.regex": "(?i)secret|password|passphrase|token|(access|account|private|encryption)[.]?key"
    "|[.]azure[.]sas[.]",
    # Spark would show options of its Kafka source and sink in plans and event logs. Among them are secrets.
    "spark.sql.redaction.options.regex": "(?i)url|^kafka[.]",
    # Else each column that Python makes asks Java four times where it was made.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # A larger method is never compiled by the JVM; the limit makes Spark divide the stage instead.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # A nightly run has more generated classes than the 100 that Spark remembers.
    "spark.sql.codegen.cache.maxEntries": "1000",
    # To try how a column could be compressed costs more than what it saves: each frame is read a few times.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    # No table of ours has buckets. Else Spark clones the session for each frame that is kept in memory.
    "spark.sql.sources.bucketing.autoBucketedScan.enabled": "false",
    # Delta would list all files of a small table in the checksum of each commit, for which it replays the log
    # of a table that has no such list yet, by a job. Only Delta's checks of itself read the list.
    "spark.databricks.delta.allFilesInCrc.enabled": "false",
    # It puts a shuffle before each write, and Spark counts what tasks before a shuffle report once more
    # if an executor is lost: broken records would be in quarantine twice.
    "spark.databricks.delta.optimizeWrite.enabled": "false",
    # Old state is dropped with the next data instead of in an empty batch of its own.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}

# Java looks for a name in all packages that are imported, and for a package in all jars, each time.
_CLASSES: Final = (
    "io.delta.tables.DeltaTable",
    "java.net.URI",
    "java.util.ArrayList",
    "oncelake.dedup.KeptCopies",
    "oncelake.dedup.Terms",
    "oncelake.files.FewRows",
    "oncelake.files.ListedFiles",
    "oncelake.files.OldFiles",
    "org.apache.commons.codec.digest.DigestUtils",
    "org.apache.commons.io.IOUtils",
    "org.apache.hadoop.fs.Path",
    "org.apache.spark.sql.delta.DeltaLog",
    "org.apache.spark.sql.delta.actions.Action",
    "py4j.reflection.TypeUtil",
    "scala.Option",
    "scala.jdk.javaapi.CollectionConverters",
)
# PySpark asks for them at every call.
_NAMED_ALWAYS: Final = (
    "PythonSQLUtils",
    "PythonUtils",
    "functions",
    "org.apache.spark.sql.catalyst.trees.PySparkCurrentOrigin",
    "org.apache.spark.sql.classic.SparkSession",
    "org.apache.spark.sql.functions",
)

_ALONE: Final = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}

# Hadoop starts a program for each permission and each link of a local file: some twenty in a commit. On a
# cluster Spark asks for files before it has our jar.
_IN_ONE_JVM: Final = {
    "spark.hadoop.fs.file.impl": "oncelake.files.LocalFiles",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "oncelake.files.LocalContext",
    # No other machine asks the driver, and no other user of this one.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.authenticate": "true",
}


def spark_session(config: PipelineConfig, job: str, *, verbose: bool = False) -> SparkSession:
    """Start a session, or take the one that spark-submit has prepared.

    Without spark-submit, Java is looked for and the pinned jars are fetched if they are missing.

    Args:
        config: Its `spark` part decides the master and further settings.
        job: Names the application, with the pipeline.
        verbose: Whether Spark's log shows warnings, as Spark itself would have it, instead of errors alone.

    Raises:
        ConfigError: `spark-submit` was called without the jars that the jobs need; or the lake's store would
            lose commits.
        InfrastructureError: There is no usable Java, or the jars cannot be had.
    """
    submitted = is_submitted()
    given = {**(dict(SparkConf().getAll()) if submitted else {}), **config.spark.conf}
    require_log_store(config, given)
    settings = {
        **({} if submitted else {**_ALONE, "spark.master": _master(config)}),
        **(_IN_ONE_JVM if not submitted and _is_in_one_jvm(config) else {}),
        **SETTINGS,
        **_of_store(config, given),
        "spark.sql.shuffle.partitions": str(config.speed.state_partitions),
        **config.spark.conf,
        **({} if submitted else _class_path(config)),
        **_rack_settings(config, SparkConf().get("spark.plugins", "") if submitted else ""),
    }
    builder = SparkSession.builder.appName(f"oncelake-{job}-{config.name}")
    for key, value in settings.items():
        builder = builder.config(key, value)
    others = {child.pid for child in psutil.Process().children(recursive=True)}
    try:
        if not submitted:
            launch(settings, verbose=verbose)
        session = builder.getOrCreate()
    except Exception as error:
        if "io.delta" in str(error) or PLUGIN in str(error):
            raise _no_jars() from None
        raise
    except KeyboardInterrupt:
        _end_launched(others)
        raise
    session.sparkContext.setLogLevel("WARN" if verbose else "ERROR")
    _remember_classes(session)
    for option, value in java_options().items():
        session.sparkContext._jvm.java.lang.System.setProperty(option, value)  # type: ignore[union-attr]
    if submitted:
        _require_classes(session)
    return session


class _KnownClass(JavaClass):  # type: ignore[misc]  # Py4J has no types
    """A class of Java that looks each of its methods up once."""

    def __getattr__(self, name: str) -> Any:
        member = super().__getattr__(name)
        # The value of a static field may change.
        if isinstance(member, JavaMember):
            setattr(self, name, member)
        return member


def _remember_classes(session: SparkSession) -> None:
    """Keep what Java answers for common names as attributes, which are then not asked for."""
    jvm: Any = session.sparkContext._jvm
    for name in _NAMED_ALWAYS:
        setattr(jvm, name, _known(getattr(jvm, name)))
    for path in _CLASSES:
        *packages, name = path.split(".")
        parent = jvm
        for package in packages:
            setattr(parent, package, getattr(parent, package))
            parent = getattr(parent, package)
        setattr(parent, name, _known(getattr(parent, name)))


def _known(found: JavaClass) -> _KnownClass:
    return _KnownClass(found._fqn, found._gateway_client)


def _master(config: PipelineConfig) -> str:
    return config.spark.master or "local[*]"


def _of_store(config: PipelineConfig, given: Mapping[str, str]) -> dict[str, str]:
    """Return settings of the lake's store, unless they are given."""
    return {**local_log_store(given), **(store_limits(given) if is_on_s3(config.root) else {})}


def _is_in_one_jvm(config: PipelineConfig) -> bool:
    return _master(config) == "local" or _master(config).startswith("local[")


def _class_path(config: PipelineConfig) -> dict[str, str]:
    """Return settings by which driver and executors find the pinned jars, unless spark-submit sets them."""
    java, jars = use_java(), spark_jars(s3=is_on_s3(config.root))
    # Workers, where there are any, run in the same environment as the driver.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if _is_in_one_jvm(config):
        return class_settings(java, jars, config.spark.conf)
    others = filter(None, [config.spark.conf.get("spark.jars")])
    return {"spark.jars": ",".join([*map(str, jars), *others])}


def _rack_settings(config: PipelineConfig, submitted: str | None) -> dict[str, str]:
    """Return settings of the plugin that counts bytes, beside the plugins that were named and submitted."""
    variable = config.kafka.rack.executor_variable
    if variable is None:
        return {}
    # What the builder sets wins over what spark-submit was given.
    named = [*config.spark.conf.get("spark.plugins", "").split(","), *(submitted or "").split(","), PLUGIN]
    return {
        "spark.plugins": ",".join(dict.fromkeys(filter(None, named))),
        RACK_VARIABLE: variable,
    }


def stop_session() -> None:
    """Stop the session, if there is one, and its application; its Java ends with this process."""
    # Java may have died, and then does not answer which session is the active one.
    with suppress(Exception):
        if session := SparkSession.getActiveSession():
            session.stop()


def forget_tables() -> None:
    """Let go of what Spark and Delta keep of tables that were read, plans of queries above all.

    Delta keeps ten thousand tables for an hour. A driver that serves many pipelines one after the other would
    have its heap full of them.
    """
    # What cannot be let go of costs memory, and must not cost the run its outcome.
    with suppress(Exception):
        if session := SparkSession.getActiveSession():
            # What a run that failed has left there names its tables, too.
            session.catalog.clearCache()
            java: Any = session.sparkContext._jvm
            java.org.apache.spark.sql.delta.DeltaLog.clearCache()


def end_application() -> None:
    """Stop the session and end its Java, so that the next session starts from nothing.

    Under spark-submit nothing is done: application and Java are those of the submission.
    """
    if is_submitted():
        return
    stop_session()
    gateway: Any = SparkContext._gateway
    # PySpark would go on with a Java that has died.
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    if gateway is None:
        return
    with suppress(Exception):
        gateway.shutdown()
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(_END_WITHIN_S)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()


def is_submitted() -> bool:
    """Return whether spark-submit started this process, with an application whose settings are fixed."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _end_launched(others: Collection[int]) -> None:
    """End the JVM that was being started.

    PySpark removes the file by which the two would have met; the JVM then fails to write it, and stays.

    Args:
        others: The processes that this one had started before, by their ids.
    """
    for child in psutil.Process().children(recursive=True):
        if child.pid not in others:
            with suppress(psutil.Error):
                child.kill()


def _no_jars() -> ConfigError:
    *jars, last = ("Delta", "Kafka", *jar_classes())
    return ConfigError(
        f"spark-submit: the {', '.join(jars)} and {last} jars and Oncelake's own are not all on the class"
        " path; add --jars $(oncelake jars --list)"
    )


def _require_classes(session: SparkSession) -> None:
    loader = session.sparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr]
    for path in (
        "io/delta/sql/DeltaSparkSessionExtension.class",
        "org/apache/spark/sql/kafka010/KafkaSourceProvider.class",
        *jar_classes().values(),
        "oncelake/dedup/KeptCopies.class",
        "oncelake/files/FewRows.class",
        "oncelake/rack/RackProvider.class",
        "oncelake/publish/KafkaPartition.class",
    ):
        if loader.getResource(path) is None:
            raise _no_jars()
