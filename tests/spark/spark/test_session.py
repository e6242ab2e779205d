"""What a session is set to, whatever it does."""

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
