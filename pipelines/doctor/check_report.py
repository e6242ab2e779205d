"""All checks of a pipeline, made on what is known of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, get_args

from pipelines.doctor import (
    cluster_checks,
    configuration_checks,
    environment_checks,
    lake_checks,
    publishing_checks,
)
from pipelines.doctor.check_list import CHECKS, CheckResult, DoctorCheck, Group
from pipelines.doctor.findings import SEVERITIES, Finding, FindingSeverity, is_at_least
from pipelines.doctor.pipeline_facts import PipelineFacts

# They register themselves when they are imported.
_MODULES: Final = (
    configuration_checks,
    environment_checks,
    cluster_checks,
    lake_checks,
    publishing_checks,
)
_GROUPS: Final[tuple[Group, ...]] = get_args(Group)
ALL_CHECKS: Final = tuple(sorted(CHECKS, key=lambda check: _GROUPS.index(check.group)))
"""All checks, by their groups, in the order in which they are made."""


@dataclass(frozen=True)
class CheckReport:
    """What came of all checks.

    Attributes:
        results: Of each check, in their order; of those that look at clusters, one for each.
    """

    results: tuple[CheckResult, ...]

    def findings(self) -> Iterator[tuple[DoctorCheck, Finding]]:
        """Yield all findings with their checks, the gravest first."""
        every = [(result.check, finding) for result in self.results for finding in result.findings]
        for severity in SEVERITIES:
            yield from ((check, finding) for check, finding in every if finding.severity == severity)

    def count(self, severity: FindingSeverity) -> int:
        """Return how many findings have a severity."""
        return sum(finding.severity == severity for _, finding in self.findings())

    def at_least(self, level: FindingSeverity) -> list[str]:
        """Return the names of the checks with findings that are as grave as a level, or graver."""
        found = (check.name for check, finding in self.findings() if is_at_least(finding.severity, level))
        return list(dict.fromkeys(found))


def run_checks(facts: PipelineFacts) -> CheckReport:
    """Make all checks."""
    return CheckReport(tuple(result for check in ALL_CHECKS for result in check.run(facts)))
