"""What it means that an object store refuses a client.

Source: https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
"""

import re
from typing import Final

_OF_S3: Final = re.compile(r"fs\.s3a|awssdk")
_KEYS: Final = "access key, secret key and session token"
# What S3 or its client says if it refuses, and what to look at.
_REFUSED: Final = {
    r"NoA(?:uth|ws)\w*Exception|No AWS Credentials|Unable to load credentials": (
        "there are no credentials for it: give this job those of a user or a role"
    ),
    r"\bInvalidAccessKeyId\b": "it does not know the access key: check whether it was deleted or rotated",
    r"\bSignatureDoesNotMatch\b": "the secret key is not the one of the access key: check both",
    r"\b(?:ExpiredToken|TokenRefreshRequired)\b": "the session token has expired: get new credentials",
    r"\bInvalidToken\b": (
        f"the session token is not the one of the access key, or is missing: check {_KEYS}"
    ),
    r"\bRequestTimeTooSkewed\b": "the clock of this machine is wrong: set it",
    r"\bAccessDenied\b": (
        "the user or role of this job may not do that: check the policies of both, user and bucket"
    ),
    # An answer to HEAD has no code. Other codes say nothing of who asks, such as `RequestTimeout`.
    r"S3Exception: (?:null|Forbidden|Bad Request) \(Service: S3, Status Code: 40[03]\b": (
        f"it does not say why: check {_KEYS}, and the policies of user and bucket"
    ),
}
# Providers that ask a service for credentials. Hadoop says the same if it does not answer as if it has none.
_OF_SERVICE: Final = re.compile(
    r"No AWS Credentials provided by [^:]*(?:IAMInstance|InstanceProfile|Container|WebIdentity|AssumedRole)"
)
SECTION: Final = "See docs/runbook.md, 'The object store refuses the job'"


def is_of_s3(text: str) -> bool:
    """Return whether the text of a failure names Hadoop's client of S3, or Amazon's below it."""
    return bool(_OF_S3.search(text))


def store_refusal(text: str) -> str | None:
    """Return what it means that S3 refuses a client, by the text of a failure; None if it does not.

    Args:
        text: Names the exceptions of Hadoop's client, with the code of S3 if there is one.
    """
    if not is_of_s3(text):
        return None
    meaning = next((meaning for pattern, meaning in _REFUSED.items() if re.search(pattern, text)), None)
    return meaning and f"the object store refuses the request: {meaning}"


def may_pass(text: str) -> bool:
    """Return whether a refusal may end without a change: who gives the credentials may just not answer.

    Args:
        text: What `store_refusal` was asked of.
    """
    return bool(_OF_SERVICE.search(text))
