"""A store that writes over what another job has committed is refused when a job starts."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any, Final

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pipelines.errors import ConfigError
from pipelines.spark import log_store
from pipelines.spark.log_store import check_put_if_absent, put_if_absent
from tests.support.lakes import Lake

WRITERS: Final = 3
COMMITS: Final = 80


def test_a_store_that_keeps_the_first_file_passes_again_and_again(lake: Lake) -> None:
    for _ in range(2):
        check_put_if_absent(lake.pipeline)
    (probe,) = Path(lake.config.root).rglob("*.json")
    assert probe.relative_to(lake.config.root).as_posix().startswith("ops/_put_if_absent/")


def test_of_writers_at_once_one_writes_each_commit(lake: Lake, tmp_path: Path) -> None:
    # Delta lets writers of one JVM wait for each other only where Hadoop has its own class for local files.
    jvm: Any = lake.spark.sparkContext._jvm
    session: Any = lake.spark._jsparkSession
    hadoop = session.sessionState().newHadoopConf()
    store = jvm.org.apache.spark.sql.delta.storage.LogStore.apply(session)
    names = [f"{number:020d}.json" for number in range(COMMITS)]
    paths = [jvm.org.apache.hadoop.fs.Path(f"file:{tmp_path}/{name}") for name in names]
    meet = Barrier(WRITERS)

    def write_all(writer: int) -> list[bool]:
        written = []
        for path in paths:
            actions = jvm.scala.collection.Iterator.single(str(writer))
            meet.wait()
            try:
                store.write(path, actions, False, hadoop)
                written.append(True)
            except Py4JJavaError as error:
                if "FileAlreadyExistsException" not in str(error):
                    raise
                written.append(False)
        return written

    with ThreadPoolExecutor(WRITERS) as writers:
        written = [*writers.map(write_all, range(WRITERS))]
    first = [
        "".join(str(writer) for writer in range(WRITERS) if written[writer][number])
        for number in range(COMMITS)
    ]
    assert [(tmp_path / name).read_text().strip() for name in names] == first
    assert {path.name for path in tmp_path.iterdir()} == {*names, *(f".{name}.crc" for name in names)}


def test_a_checksum_that_an_earlier_commit_has_left_is_replaced(lake: Lake, tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    (log / ".0.json.crc").write_bytes(b"of another commit")
    assert put_if_absent(lake.spark, f"{log}/0.json")
    assert lake.spark.read.text(f"{log}/0.json").count() == 0


def test_a_store_that_overwrites_is_refused(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    # None of Delta's stores does on a local disk, so the answer of one that does is given here.
    def overwrites(spark: SparkSession, file: str) -> bool:
        return True

    monkeypatch.setattr(log_store, "put_if_absent", overwrites)
    with pytest.raises(ConfigError, match="an existing file was overwritten"):
        check_put_if_absent(lake.pipeline)


def test_a_store_without_its_jars_is_refused(make_lake: Callable[..., Lake]) -> None:
    lake = make_lake("lake.root=s3a://bucket/lake")
    with pytest.raises(ConfigError, match=r"a class is missing: .*S3AFileSystem"):
        check_put_if_absent(lake.pipeline)


def test_a_file_system_without_conditional_writes_is_refused(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As an older hadoop-aws: the local file system does not know the condition either.
    def conditional(spark: SparkSession, file: str) -> bool:
        jvm: Any = spark.sparkContext._jvm
        hadoop = jvm.org.apache.hadoop.conf.Configuration()
        nothing = jvm.java.util.ArrayList().iterator()
        store = jvm.oncelake.store.S3ConditionalLogStore(hadoop)
        store.write(jvm.org.apache.hadoop.fs.Path(file), nothing, False, hadoop)
        return True

    monkeypatch.setattr(log_store, "put_if_absent", conditional)
    with pytest.raises(ConfigError, match=r"cannot put a file only if it is absent.*hadoop-aws 3\.4\.2"):
        check_put_if_absent(lake.pipeline)


def test_a_file_system_without_hard_links_is_refused(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(spark: SparkSession, file: str) -> bool:
        # None is at hand on which a link cannot be made.
        jvm: Any = spark.sparkContext._jvm
        error = jvm.java.io.IOException("0.json: no hard link can be made there (Operation not permitted)")
        jvm.java.util.concurrent.CompletableFuture.failedFuture(error).get()
        return True

    monkeypatch.setattr(log_store, "put_if_absent", fails)
    with pytest.raises(ConfigError, match=r"no hard link can be made.*Move the lake"):
        check_put_if_absent(lake.pipeline)


def test_a_lake_that_cannot_be_written_is_left_to_the_job(
    make_lake: Callable[..., Lake], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    lake = make_lake(f"lake.root={tmp_path}/file/lake")
    check_put_if_absent(lake.pipeline)
    assert "put if absent was not tested" in caplog.text
