"""The last number that a table has taken of an application, found without a Spark job.

Delta adds the numbers of all applications up over its whole log, by three jobs for each version of a table:
a fifth of what a small micro-batch cost. A query that writes all the time has its last number in one of the
newest commits. Of several commits with a number of the same application, the newest counts.

Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#transaction-identifiers
"""

import json
from typing import Final

from pyspark.sql import SparkSession

from pipelines.delta.time_travel import commit_file

_COMMITS: Final = 5
_BYTES: Final = 1_000_000


def newest_number(spark: SparkSession, table: str, version: int, application: str) -> int | None:
    """Return the last number of an application at a version, if one of the newest commits has it.

    Args:
        spark: the session.
        table: the path of a Delta table.
        version: the version.
        application: the application's id (`txnAppId`).

    Returns:
        The number; None if none of the newest commits has one, or one of them is too large to look at.
    """
    for at in range(version, max(version - _COMMITS, -1), -1):
        file = commit_file(spark, table, at)
        if not file.exists() or file.size() > _BYTES:
            return None
        lines = (file.text() or "").splitlines()
        actions = (json.loads(line).get("txn") for line in lines if '"txn"' in line)
        for taken in actions:
            if taken and taken["appId"] == application:
                return int(taken["version"])
    return None
