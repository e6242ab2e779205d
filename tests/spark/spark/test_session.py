"""What a session is set to, whatever it does."""

import json
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession


def test_a_job_of_one_machine_listens_to_this_machine_alone(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._jvm
    java = psutil.Process(jvm.java.lang.ProcessHandle.current().pid())
    listening = {
        connection.laddr.ip.removeprefix("::ffff:")
        for connection in java.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}
    # Another user of this machine is asked for a secret.
    assert spark.conf.get("spark.authenticate") == "true"


@pytest.mark.parametrize(
    "setting",
    [
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.s3a.encryption.key",
        "spark.hadoop.fs.s3a.server-side-encryption.key",
        "spark.hadoop.fs.azure.sas.container.account.blob.core.windows.net",
        "spark.ssl.keyStorePassword",
    ],
)
def test_spark_hides_secrets_among_its_settings(spark: SparkSession, setting: str) -> None:
    jvm: Any = spark.sparkContext._jvm
    pattern = spark.conf.get("spark.redaction.regex")
    assert jvm.java.util.regex.Pattern.compile(pattern).matcher(setting).find()


def test_delta_lists_no_files_in_checksums(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(1).write.format("delta").save(str(tmp_path / "table"))
    checksum = json.loads((tmp_path / f"table/_delta_log/{0:020d}.crc").read_text())
    assert (checksum["numFiles"], checksum.get("allFiles")) == (1, None)
