"""What it means that an object store does not answer, and how long its client asks again.

Sources: https://hadoop.apache.org/docs/stable/hadoop-aws/tools/hadoop-aws/performance.html,
https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
"""

import re
from collections.abc import Mapping
from typing import Final

from pipelines.spark.store_refusals import is_of_s3, store_refusal

LIMITS: Final = {
    # The other one, which is Hadoop's default, does not try a read again that has failed.
    "spark.hadoop.fs.s3a.input.stream.type": "classic",
    # The client of Amazon asks again within each try of Hadoop's; both together multiply.
    "spark.hadoop.fs.s3a.attempts.maximum": "0",
    # A store that takes connections and says nothing: Hadoop's own 200 s are for each try.
    "spark.hadoop.fs.s3a.connection.timeout": "30s",
    # How long a part of 64 MB may take. A store that takes no more bytes is noticed by this alone.
    "spark.hadoop.fs.s3a.connection.part.upload.timeout": "5m",
    # Waits of 1, 2, 4 s and so on, each half as long or half as long again: about a minute in all.
    "spark.hadoop.fs.s3a.retry.limit": "6",
    "spark.hadoop.fs.s3a.retry.interval": "500ms",
    # The same if the store asks for fewer requests. Hadoop's own 20 waits, from 0.2 s on, take days.
    "spark.hadoop.fs.s3a.retry.throttle.limit": "6",
    "spark.hadoop.fs.s3a.retry.throttle.interval": "500ms",
}
"""How Hadoop's client tries again, as settings of a session."""

SECTION: Final = "See docs/runbook.md, 'The object store does not answer'"
# The way to an exception in Java; names on it, such as that of a class that keeps to a timeout, say nothing.
_FRAME: Final = re.compile(r"^\s+at .*$", re.MULTILINE)
_WHERE: Final = re.compile(r"\bs3[an]?://[^\s:,;'\"\])]+", re.IGNORECASE)
# What S3 or its client says, and what that is.
_OUTAGES: Final = {
    r"AWSServiceThrottledException|\bSlowDown\b|Status Code: (?:503|429)\b": (
        "it asks for fewer requests, or is overloaded (SlowDown, status 503)"
    ),
    r"AWSStatus500Exception|Status Code: 5\d\d\b": "it answers that it has failed (status 500 or above)",
    r"UnknownHostException": "the name of its host is not known: check fs.s3a.endpoint, and the name server",
    r"Connection refused|NoRouteToHostException": (
        "nothing takes connections there: check fs.s3a.endpoint, and whether the store runs"
    ),
    r"Timeout(?:Exception|Error)?\b|[Tt]imed out|AWSNoResponseException|HttpChannelEOFException"
    r"|Connection reset|Unable to execute HTTP request": "it was silent, or the connection broke",
}


def store_limits(given: Mapping[str, str]) -> Mapping[str, str]:
    """Return the settings by which requests to S3 are tried again for minutes, and not for days.

    Args:
        given: Settings of spark-submit and of the configuration, which stay as they are.
    """
    return {key: value for key, value in LIMITS.items() if key not in given}


def store_outage(text: str) -> str | None:
    """Return what it means that S3 does not answer, by the text of a failure; None if it has answered.

    Args:
        text: Names the exceptions of Hadoop's client, and mostly what it was asked for.
    """
    if not is_of_s3(text) or store_refusal(text):
        return None
    said = _FRAME.sub("", text)
    meaning = next((meaning for pattern, meaning in _OUTAGES.items() if re.search(pattern, said)), None)
    return meaning and f"the object store does not answer, also after retries: {meaning}"


def asked_for(text: str) -> str | None:
    """Return what on S3 a failure is about, the first that it names; None if it names nothing.

    Args:
        text: What `store_outage` was asked of.
    """
    where = _WHERE.search(_FRAME.sub("", text))
    return where and where[0]
