"""What a check has found, and how grave it is."""

from dataclasses import dataclass
from typing import Final, Literal

FindingSeverity = Literal["error", "warning", "info"]
"""`error`: data are lost, or a job does not run; `warning`: that can happen; `info`: good to know."""
FailOn = Literal["error", "warning"]

SEVERITIES: Final[tuple[FindingSeverity, ...]] = ("error", "warning", "info")
"""The gravest first."""


@dataclass(frozen=True)
class ClusterLabel:
    """Which of several clusters something is about.

    Attributes:
        name: Its name in `kafka.clusters`; None for the first cluster, which has none.
        servers: Its address.
    """

    name: str | None
    servers: str

    @property
    def words(self) -> str:
        """The cluster, for people."""
        return f"{self.name or 'the first'} ({self.servers})"


@dataclass(frozen=True)
class Finding:
    """What a check has found.

    Attributes:
        severity: How grave it is.
        found: What was found, in words.
        expected: What ought to be found, in words.
        fix: What to do about it.
        cluster: The cluster that it is about, where there are several; None if it is about none of them.
    """

    severity: FindingSeverity
    found: str
    expected: str
    fix: str
    cluster: ClusterLabel | None = None


def is_at_least(severity: FindingSeverity, level: FindingSeverity) -> bool:
    """Return whether a severity is as grave as another, or graver."""
    return SEVERITIES.index(severity) <= SEVERITIES.index(level)
