"""The audit: reads what was written and decides, day by day, whether it is whole."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

from pipelines.audit.audited_days import AuditedDays
from pipelines.audit.integrity_checks import integrity_checks
from pipelines.audit.recount import BronzeFacts
from pipelines.ledger.checks import Check, record_checks, worst
from pipelines.ledger.layer_samples import LayerDifference, record_samples
from pipelines.spark.pipeline import Pipeline


@dataclass(frozen=True)
class Audit:
    """What an audit found.

    Attributes:
        checks: Every check on every day.
        bronze: What bronze says.
        rows: Rows of the batch layer on each day.
        differences: How the speed layer differs on each day.
        expectations_s: How many seconds of it Great Expectations took.
    """

    checks: tuple[Check, ...]
    bronze: BronzeFacts
    rows: dict[date, int]
    differences: dict[date, LayerDifference]
    expectations_s: float

    def failed_checks(self, day: date) -> list[Check]:
        """Return the checks that keep a day from being certified."""
        return [check for check in self.checks if check.day == day and check.status == "failed"]

    def passed(self, day: date) -> bool:
        """Return whether no check on the day failed."""
        return worst(check for check in self.checks if check.day == day) != "failed"

    def failure(self, days: Iterable[date], heading: str) -> str:
        """Return the message that says which checks failed on some days.

        Args:
            days: The days.
            heading: Its first line.
        """
        reasons = [
            f"{check.day} {check.name}: found {check.observed}; expected {check.expected}"
            + (f" ({check.detail})" if check.detail else "")
            for day in days
            for check in self.failed_checks(day)
        ]
        return "\n".join([heading, *reasons])


def audit(audited: AuditedDays) -> Audit:
    """Check days of the batch layer against bronze, the speed layer and the contract."""
    with audited.cached():
        checks = integrity_checks(audited)
        began = time.monotonic()
        checks += _expectation_checks(audited)
        return Audit(
            checks=tuple(checks),
            bronze=audited.bronze,
            rows={day: layer.rows for day, layer in audited.layer.items()},
            differences=audited.differences,
            expectations_s=time.monotonic() - began,
        )


def record_audit(pipeline: Pipeline, run_id: str, findings: Audit, bronze: int, batch: int) -> None:
    """Record the checks, and samples of the differences between the layers.

    Args:
        pipeline: The pipeline.
        run_id: The run.
        findings: What its audit found.
        bronze: The version of bronze.
        batch: The version of the batch table.
    """
    record_checks(pipeline, findings.checks, run_id=run_id, bronze_version=bronze, batch_version=batch)
    record_samples(pipeline, findings.differences, run_id)


def _expectation_checks(audited: AuditedDays) -> list[Check]:
    """Return what Great Expectations says of the rows, by the rules of the contract."""
    # It takes seconds to import, which streaming jobs and plans need not wait for.
    from pipelines.expectations.runner import expectation_checks

    pipeline, contract = audited.pipeline, audited.pipeline.contract
    examples = 0 if contract.personal else pipeline.config.audit.examples
    return expectation_checks(audited.rows, pipeline.name, contract, audited.span.days, examples)
