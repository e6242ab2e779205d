"""A session in one JVM sets permissions and finds links of local files by Java itself."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession


def hadoop(spark: SparkSession, place: Path) -> tuple[Any, Any, Any]:
    """Hadoop's packages, its configuration, and a place as it names it."""
    java: Any = spark.sparkContext._jvm
    packages = java.org.apache.hadoop.fs
    return packages, spark.sparkContext._jsc.hadoopConfiguration(), packages.Path(str(place))


@pytest.mark.parametrize("mode", ["640", "1777"])
def test_permissions_are_set(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    packages, settings, path = hadoop(spark, tmp_path / "folder")
    system = path.getFileSystem(settings)
    assert system.getClass().getName() == "oncelake.files.LocalFiles"
    system.mkdirs(path)
    # The sticky bit is none of those that Java knows.
    system.setPermission(path, packages.permission.FsPermission(mode))
    assert oct((tmp_path / "folder").stat().st_mode)[-len(mode) :] == mode


def test_links_are_found_and_files_are_renamed(spark: SparkSession, tmp_path: Path) -> None:
    packages, settings, plain = hadoop(spark, tmp_path / "plain")
    (tmp_path / "plain").write_text("content")
    (tmp_path / "link").symlink_to(tmp_path / "plain")
    link, renamed = (packages.Path(str(tmp_path / name)) for name in ("link", "renamed"))
    context = packages.FileContext.getFileContext(settings)
    assert context.getDefaultFileSystem().getClass().getName() == "oncelake.files.LocalContext"
    assert context.getFileLinkStatus(link).isSymlink()
    assert not context.getFileLinkStatus(plain).isSymlink()
    nothing = spark.sparkContext._gateway.new_array(packages.Options.Rename, 0)  # type: ignore[union-attr]
    context.rename(plain, renamed, nothing)
    assert (tmp_path / "renamed").read_text() == "content"
