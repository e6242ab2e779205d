"""A store that writes over what another job has committed is refused when a job starts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.errors import ConfigError
from pipelines.spark import log_store
from pipelines.spark.log_store import check_put_if_absent
from tests.support.lakes import Lake


def test_a_store_that_keeps_the_first_file_passes_again_and_again(lake: Lake) -> None:
    for _ in range(2):
        check_put_if_absent(lake.pipeline)
    (probe,) = Path(lake.config.root).rglob("*.json")
    assert probe.relative_to(lake.config.root).as_posix().startswith("ops/_put_if_absent/")


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


def test_a_lake_that_cannot_be_written_is_left_to_the_job(
    make_lake: Callable[..., Lake], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    lake = make_lake(f"lake.root={tmp_path}/file/lake")
    check_put_if_absent(lake.pipeline)
    assert "put if absent was not tested" in caplog.text
