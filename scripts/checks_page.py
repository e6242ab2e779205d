"""Write docs/checks.md, the integrity checks of an audit, from their registry: `make pages`."""

from pathlib import Path
from typing import Final

from pipelines.audit.integrity_checks import INTEGRITY_CHECKS

PAGE: Final = "docs/checks.md"
_HEAD: Final = """# Integrity checks

This page lists the integrity checks that `nightly_batch` and `validate` run on each day. The results
are in the report, and in `ops/validation_results` with `kind = 'integrity'`.
If a check fails, the day is not certified. A check that only warns does not prevent certification.
The runbook explains what to do about a [failed check](runbook.md#audit-failed) or a
[warning](runbook.md#a-check-has-warned).

The audit also validates the [rules of the contract](data-quality.md) with Great Expectations.

This page is generated from `pipelines/audit/integrity_checks.py`. To change it, edit that file or
`scripts/checks_page.py`, and run `make pages`.

| check | question | severity |
|---|---|---|
"""


def page_text() -> str:
    """Return the page: a row for each check, in the order in which an audit makes them."""
    return _HEAD + "".join(
        f"| `{check.name}` | {check.question} | {check.severity} |\n" for check in INTEGRITY_CHECKS
    )


if __name__ == "__main__":
    Path(PAGE).write_text(page_text(), encoding="utf-8")
