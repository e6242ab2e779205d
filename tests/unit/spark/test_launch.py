"""What Spark would take from the environment, and what is refused of it before Java starts."""

from pathlib import Path

import pytest

from pipelines.errors import ConfigError
from pipelines.spark.launch import require_usable_variables


def test_a_spark_home_without_spark_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"\$SPARK_HOME: found .*/none, and no Spark there; .* unset it"):
        require_usable_variables()


def test_a_spark_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bin/spark-submit", "jars/spark-core_2.12-3.5.1.jar"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"found .*, and spark-core_2\.12-3\.5\.1\.jar there; expected"):
        require_usable_variables()


def test_options_that_cannot_be_read_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--conf 'spark.x=1")
    with pytest.raises(ConfigError, match=r"\$PYSPARK_SUBMIT_ARGS: .*No closing quotation"):
        require_usable_variables()
