"""The checks of `oncelake doctor`, in one list.

To add one, write a function that takes `PipelineFacts` and yields findings, and register it by `check`. If it
needs facts that nobody asks for yet, add them to a part of the facts, and to its probe in
`pipelines.steps.probes`.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

from pipelines.config.risks import RiskName
from pipelines.doctor.findings import ClusterLabel, Finding, FindingSeverity
from pipelines.doctor.pipeline_facts import Part, PipelineFacts, Scope

Group = Literal[
    "configuration", "environment", "cluster", "racks", "store", "tables", "nights", "data", "publishing"
]
Status = Literal["passed", "found", "skipped", "not_applicable"]
"""`skipped`: what it looks at could not be asked for; `not_applicable`: the pipeline has no such thing."""
RUNBOOK: Final = "docs/runbook.md"
PUBLISHING: Final = "docs/publishing.md"
CLUSTERS: Final = "docs/clusters.md"

_Find = Callable[[PipelineFacts], Iterable[Finding]]


@dataclass(frozen=True)
class DoctorCheck:
    """A check.

    Attributes:
        name: Its name.
        group: What it is about.
        question: What it asks.
        severity: How grave its findings are at most.
        runbook: The heading of the page that says what to do.
        find: Answers it.
        needs: The parts of the facts without which it is not made.
        risk: The risk that its findings are about; if that is accepted, they are for information.
        page: The page with that heading.
        scope: What it looks at.
        asks: The parts whose failures it tells.
    """

    name: str
    group: Group
    question: str
    severity: FindingSeverity
    runbook: str
    find: _Find
    needs: tuple[Part, ...] = ()
    risk: RiskName | None = None
    page: str = RUNBOOK
    scope: Scope = "pipeline"
    asks: tuple[Part, ...] = ()

    @property
    def link(self) -> str:
        """The page and the heading, as a link within the repository."""
        anchor = re.sub(r"[^\w\- ]", "", self.runbook.lower()).replace(" ", "-")
        return f"{self.page}#{anchor}"

    def lacks(self, facts: PipelineFacts) -> list[Part]:
        """Return the parts that it needs and that are not known."""
        return [part for part in self.needs if getattr(facts, part) is None]

    def run(self, facts: PipelineFacts) -> Iterator["CheckResult"]:
        """Answer the question, of the pipeline or of each of its clusters."""
        yield from map(self._run, facts.of(self.scope))

    def _run(self, facts: PipelineFacts) -> "CheckResult":
        if lacking := self.lacks(facts):
            is_lost = not {*facts.failures, *facts.left_out}.isdisjoint(lacking)
            return CheckResult(self, "skipped" if is_lost else "not_applicable", (), facts.cluster)
        findings = tuple(replace(each, cluster=facts.cluster) for each in self.find(facts))
        if self.risk is not None and self.risk in facts.config.accept_risks:
            accepted = f"; accept_risks has {self.risk}"
            findings = tuple(replace(each, severity="info", found=each.found + accepted) for each in findings)
        # Of what nobody asked for nothing is known.
        is_open = self.asks and facts.left_out.issuperset(self.asks)
        status: Status = "found" if findings else "skipped" if is_open else "passed"
        return CheckResult(self, status, findings, facts.cluster)


@dataclass(frozen=True)
class CheckResult:
    """What came of a check.

    Attributes:
        check: The check.
        status: Whether it found something.
        findings: What it found.
        cluster: The cluster that was looked at, where there are several; None if it was the pipeline.
    """

    check: DoctorCheck
    status: Status
    findings: tuple[Finding, ...]
    cluster: ClusterLabel | None = None


CHECKS: Final[list[DoctorCheck]] = []
"""The checks that have registered; `pipelines.doctor.check_report` has them all."""


@dataclass(frozen=True)
class CheckRegistrar:
    """Where the checks of a module belong.

    Attributes:
        group: What they are about.
        needs: The parts of the facts that all of them need.
        page: The page that says what to do.
        scope: What they look at.
    """

    group: Group
    needs: tuple[Part, ...] = ()
    page: str = RUNBOOK
    scope: Scope = "pipeline"

    def check(
        self, name: str, question: str, severity: FindingSeverity, runbook: str, risk: RiskName | None = None
    ) -> Callable[[_Find], _Find]:
        """Register a function as a check, see `DoctorCheck`."""

        def register(find: _Find) -> _Find:
            found = DoctorCheck(name, self.group, question, severity, runbook, find, self.needs, risk)
            CHECKS.append(replace(found, page=self.page, scope=self.scope))
            return find

        return register

    def register_probe_failure(self, name: str, question: str, runbook: str, fix: str, *parts: Part) -> None:
        """Register the check that finds that parts of the facts could not be asked for."""

        def find(facts: PipelineFacts) -> Iterable[Finding]:
            for failure in (facts.failures[part] for part in parts if part in facts.failures):
                how = "see the message" if failure.is_ours else fix
                yield Finding("error", failure.words, "an answer", how)

        found = DoctorCheck(name, self.group, question, "error", runbook, find, asks=parts)
        CHECKS.append(replace(found, page=self.page, scope=self.scope))
