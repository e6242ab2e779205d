"""The end of a demo: what was replayed beside what the lake holds, and the times."""

from typing import NamedTuple

from rich.table import Table

from demo.compare import Findings
from demo.health import Health
from demo.narration import Narrator
from demo.replay import Plan
from demo.sends import Sort
from demo.strict_contract import refused


class Nights(NamedTuple):
    """What only nightly runs brought in.

    Attributes:
        late: Events too late for the speed layer.
        repaired: Rows added to days that were certified before.
    """

    late: int
    repaired: int


class Counts(NamedTuple):
    """What the lake holds.

    Attributes:
        bronze: Rows in bronze.
        put_back: Records that a replay took out of quarantine.
        nights: What only nightly runs brought in.
    """

    bronze: int
    put_back: int
    nights: Nights


def show_health(narrator: Narrator, health: Health) -> None:
    """Print what lag and doctor say."""
    for command, lines in (("oncelake lag", health.lag), ("oncelake doctor", health.doctor)):
        narrator.console.print(f"\n[bold]{command}[/bold]")
        for line in lines:
            # A table is wider than some terminals, which wrap better than it would be wrapped here.
            narrator.console.print(f"  {line}", markup=False, soft_wrap=True)


def show_verdict(narrator: Narrator, plan: Plan, findings: Findings, counts: Counts) -> None:
    """Print the counts, the differences, examples of them, and the wall times.

    Args:
        narrator: Where to.
        plan: What was replayed.
        findings: How the lake differs from it.
        counts: What the lake holds.
    """
    console = narrator.console
    console.print()
    console.print(_counts(plan, findings, counts))
    for example in findings.examples:
        narrator.say(example)
    console.print(narrator.times())
    verdict = " · ".join(f"{name} {count}" for name, count in findings.differences.items())
    console.print(f"\n[bold {_colour(not findings.sound)}]{verdict}[/]")


def _counts(plan: Plan, findings: Findings, counts: Counts) -> Table:
    truth, sorts = plan.truth, plan.sorts
    in_quarantine = sum(findings.quarantined.values())
    rows: list[tuple[str, int, int | None]] = [
        ("sent", truth.sent, counts.bronze),
        ("unique", len(truth.events), findings.rows),
        ("duplicates removed", truth.duplicates, counts.bronze - findings.rows - in_quarantine),
        ("  retried soon", sorts[Sort.RETRY], None),
        ("  retried after hours", sorts[Sort.LONG_GAP_RETRY], None),
        ("  retried to another partition", sorts[Sort.OTHER_PARTITION_RETRY], None),
        ("  conflicts", truth.conflicts, None),
        ("quarantined", sum(truth.quarantined.values()), in_quarantine),
    ]
    for reason in sorted(truth.quarantined.keys() | findings.quarantined.keys()):
        rows.append((f"  {reason}", truth.quarantined.get(reason, 0), findings.quarantined.get(reason, 0)))
    rows.append(("replayed after the contract was fixed", refused(plan), counts.put_back))
    rows.append(("late, added by nightly runs", truth.late, counts.nights.late))
    rows.append(("  after their day was certified", sorts[Sort.OVERDUE], counts.nights.repaired))
    table = Table("", "expected", "in the lake", title="Expected, and found in the lake")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, expected, found in rows:
        table.add_row(name, f"{expected:,}", "" if found is None else f"{found:,}")
    table.add_section()
    for name, count in findings.differences.items():
        table.add_row(name, "0", f"[{_colour(bool(count))}]{count:,}[/]")
    return table


def _colour(bad: bool) -> str:
    return "red" if bad else "green"
