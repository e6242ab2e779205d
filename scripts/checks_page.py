"""Write docs/checks.md, the integrity checks of an audit, from their registry: `make pages`."""

from pathlib import Path
from typing import Final

from pipelines.audit.integrity_checks import INTEGRITY_CHECKS

PAGE: Final = "docs/checks.md"
_HEAD: Final = """# Integrity checks

`nightly_batch` and `validate` ask these questions of each day. The answers are in
`ops/validation_results` with `kind = 'integrity'`, and in the report.
A check that fails keeps the day from being certified; one that warns does not.
What to do about either is in the [runbook](runbook.md#audit-failed).

Beside them Great Expectations checks the [rules of the contract](data-quality.md).
Days between which a rebuild moves events pass or fail together: `moves_with_its_neighbour`.

This page is generated from the registry in `pipelines/audit/integrity_checks.py` by `make pages`.

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
