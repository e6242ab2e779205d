"""Whether a lake's store lets only one writer commit a version of a table, which is what Delta builds on.

Source: https://docs.delta.io/latest/delta-storage.html
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.errors import UnsupportedOperationException
from pyspark.sql import SparkSession

from pipelines.config.model import PipelineConfig
from pipelines.errors import ConfigError, InfrastructureError
from pipelines.spark.failures import cause, first_line
from pipelines.spark.files import HadoopFile
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.store_outages import SECTION as OUTAGE_SECTION
from pipelines.spark.store_outages import store_outage
from pipelines.spark.store_refusals import SECTION, may_pass, store_refusal

_S3: Final = ("s3", "s3a", "s3n")
_FOR_ALL: Final = "spark.delta.logStore.class"
_SHARED: Final = "oncelake.store.S3ConditionalLogStore"
_OF_LOCAL_FILES: Final = "spark.delta.logStore.file.impl"
_LINKED: Final = "oncelake.store.LinkedLogStore"
_NO_LINKS: Final = "no hard link can be made"
# Delta's own choice for S3: a lock within one JVM, and each job is a JVM of its own.
_ONE_JVM: Final = "S3SingleDriverLogStore"
# Of local files, these look whether one is there before they write it.
_LOOKING: Final = ("HDFSLogStore", "LocalLogStore")
_PROBE: Final = "ops/_put_if_absent/_delta_log/00000000000000000000.json"
_EXISTS: Final = "FileAlreadyExistsException"

_log = logging.getLogger(__name__)


def is_on_s3(root: str) -> bool:
    """Return whether a lake's root is on S3, or on a store that is addressed like it."""
    return root.partition("://")[0].lower() in _S3 and "://" in root


def require_log_store(config: PipelineConfig, settings: Mapping[str, str]) -> None:
    """Refuse a lake on S3, or on a local file system, whose commits are kept apart within one JVM only.

    Args:
        config: Says where the lake is.
        settings: Spark's, also those of spark-submit.

    Raises:
        ConfigError: Two jobs could commit the same version, and one of them would be lost.
    """
    if not is_on_s3(config.root):
        _require_links(config.root, settings)
        return
    key = f"spark.delta.logStore.{config.root.partition('://')[0].lower()}.impl"
    log_store = settings.get(key) or settings.get(_FOR_ALL) or ""
    if not log_store or log_store.endswith(_ONE_JVM):
        raise ConfigError(
            f"lake.root: {config.root}: on S3, Delta's default log store coordinates commits of one JVM only,"
            " and each job is a JVM of its own: if two jobs commit at once, one commit is lost. Found"
            f" {key}={log_store or 'not set'}; expected a log store for all jobs:"
            f" --set spark.conf.{key}={_SHARED}."
            " See docs/runbook.md, 'A lake on S3'"
        )


def _require_links(root: str, settings: Mapping[str, str]) -> None:
    key = next((key for key in (_OF_LOCAL_FILES, _FOR_ALL) if settings.get(key, "").endswith(_LOOKING)), None)
    if key and ("://" not in root or root.lower().startswith("file:")):
        raise ConfigError(
            f"lake.root: {root}: on a local file system, this log store coordinates commits of one JVM only,"
            f" and each job is a JVM of its own: if two jobs commit at once, one commit is lost. Found {key}="
            f"{settings[key]}; expected {_LINKED}, which jobs set themselves: remove the setting"
        )


def local_log_store(settings: Mapping[str, str]) -> Mapping[str, str]:
    """Return the setting by which no commit on a local file system overwrites one of another job.

    Delta's own store asks whether the file is there, and then renames another one to its name.

    Args:
        settings: Spark's. Where they name one log store for everything, Delta takes no other one beside it.
    """
    return {} if _FOR_ALL in settings else {_OF_LOCAL_FILES: _LINKED}


def check_put_if_absent(pipeline: Pipeline) -> None:
    """Try whether a version that is there is written over, by one small file that stays in the lake.

    What fails for another reason, such as a lake that may only be read, is left to the job itself.

    Raises:
        ConfigError: It is written over; or Delta's log store cannot be loaded, or is not for this store; or
            the store refuses the credentials of the job.
        InfrastructureError: The store does not answer; or there are no credentials, and a service that gives
            them may not answer.
    """
    config = pipeline.config
    try:
        # The first time the first one makes it.
        file = f"{config.root}/{_PROBE}"
        if put_if_absent(pipeline.spark, file) and put_if_absent(pipeline.spark, file):
            raise ConfigError(
                f"lake.root: {config.root}: an existing file was overwritten, where Delta writes only if"
                " absent: if two jobs commit at once, one commit is lost. Expected a store with conditional"
                " writes (put if absent), or one of Delta's log stores for it:"
                " --set spark.conf.spark.delta.logStore.SCHEME.impl=CLASS"
            )
    except UnsupportedOperationException as error:
        raise ConfigError(
            f"lake.root: {config.root}: {first_line(str(error))}. Expected hadoop-aws 3.4.2 or later, as"
            " `oncelake jars --list --s3` names it, or a log store that needs no conditional writes"
        ) from None
    except Py4JJavaError as error:
        if "ClassNotFoundException" in str(error) or "NoClassDefFoundError" in str(error):
            raise ConfigError(
                f"lake.root: {config.root}: a class is missing: {cause(error)}. Expected the jars of the"
                " store, and of Delta's log store for it, in spark.jars or spark.jars.packages"
            ) from None
        if _NO_LINKS in str(error):
            raise ConfigError(
                f"lake.root: {config.root}: {cause(error)}. Move the lake to such a file system, or to an"
                " object store"
            ) from None
        if outage := store_outage(str(error)):
            # Whatever else the job asks of the store would take as long.
            raise _outage(config.root, outage, error) from None
        _require_store_login(pipeline.spark, config.root)
        _log.warning("%s: put if absent was not tested: %s", config.root, cause(error))


def _outage(root: str, outage: str, error: Exception) -> InfrastructureError:
    return InfrastructureError(
        f"lake.root: {root}: {outage}. No table was changed. Start the job again once the store answers."
        f" {OUTAGE_SECTION}. The store says: {cause(error)}"
    )


def _require_store_login(spark: SparkSession, root: str) -> None:
    """Find out whether a request failed because the store refuses the credentials of the job.

    The lake is listed for that: S3 says why it refuses a list, and nothing if it refuses a HEAD.

    Args:
        spark: The session.
        root: The root of the lake.

    Raises:
        ConfigError: The store refuses the list.
        InfrastructureError: There are no credentials, and a service that gives them may not answer.
    """
    jvm: Any = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(root)
    try:
        path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()).listStatus(path)
    except Py4JJavaError as error:
        if refusal := store_refusal(str(error)):
            # Who is told of a mistake in the configuration does not start the job again.
            kind = InfrastructureError if may_pass(str(error)) else ConfigError
            raise kind(f"lake.root: {root}: {refusal}. Nothing was written. {SECTION}") from None


@dataclass(frozen=True)
class StoreProbe:
    """What a probe of a lake's store has shown.

    Attributes:
        takes_over: Whether a file that was there was written over, where Delta writes only if absent.
        is_clean: Whether what the probe wrote could be deleted.
        skew: By how much the store's clock is ahead of this machine's, as the time of the file shows.
    """

    takes_over: bool
    is_clean: bool
    skew: timedelta


def probe_store(pipeline: Pipeline) -> StoreProbe:
    """Write a commit into a folder of its own under `lake.root/ops`, once and again, and delete it.

    Raises:
        InfrastructureError: It cannot be written.
    """
    spark, folder = pipeline.spark, f"{pipeline.config.root}/ops/_probe-{uuid4().hex[:12]}"
    file = f"{folder}/_delta_log/{0:020d}.json"
    try:
        try:
            put_if_absent(spark, file)
            skew = HadoopFile(spark, file).modified_ms() - datetime.now(UTC).timestamp() * 1000
            takes_over = put_if_absent(spark, file)
        finally:
            HadoopFile(spark, folder).delete_folder()
        return StoreProbe(takes_over, not HadoopFile(spark, folder).exists(), timedelta(milliseconds=skew))
    except (Py4JJavaError, UnsupportedOperationException) as error:
        if outage := store_outage(str(error)):
            raise _outage(pipeline.config.root, outage, error) from None
        why = error.java_exception.toString() if isinstance(error, Py4JJavaError) else error
        why = store_refusal(str(error)) or why
        raise InfrastructureError(
            f"lake.root: {pipeline.config.root}: a commit under ops/ cannot be written:"
            f" {first_line(str(why))}; check lake.root, and whether this user may write there."
            " See docs/runbook.md, 'The store of the lake'"
        ) from None


def put_if_absent(spark: SparkSession, file: str) -> bool:
    """Write an empty file by Delta's log store, unless it is there.

    Args:
        spark: The session.
        file: The path of a version in a folder that Delta would call a log.

    Returns:
        Whether it was written.
    """
    jvm: Any = spark.sparkContext._jvm
    session: Any = spark._jsparkSession
    hadoop = session.sessionState().newHadoopConf()
    path = jvm.org.apache.hadoop.fs.Path(file)
    system = path.getFileSystem(hadoop)
    # Delta chooses its store by the scheme.
    path = system.makeQualified(path)
    system.mkdirs(path.getParent())
    store = jvm.org.apache.spark.sql.delta.storage.LogStore.apply(session)
    try:
        store.write(path, jvm.scala.collection.Iterator.empty(), False, hadoop)
    except Py4JJavaError as error:
        if error.java_exception.getClass().getSimpleName() == _EXISTS:
            return False
        raise
    return True
