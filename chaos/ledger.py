"""What several runs came to, as a table: `python -m chaos.ledger REPORT...`."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from chaos.journal import NOT_DONE
from chaos.schedule import Kind

_NOT_FAULTS: Final = frozenset({Kind.NIGHTLY, Kind.MAINTAIN})


def table(reports: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a table of faults and their outcomes, in Markdown, and what was violated.

    Args:
        reports: as `chaos.report.Report.document` makes them.
    """
    done, undone = defaultdict[str, Counter[str]](Counter), Counter[str]()
    for report in reports:
        for each in report["faults"]:
            kind, outcome = each["fault"]["kind"], each["outcome"] or "no outcome"
            if outcome.startswith(NOT_DONE):
                undone[kind] += 1
            else:
                done[kind][_brief(outcome)] += 1
    faults = [str(kind) for kind in Kind if kind not in _NOT_FAULTS]
    yield "| fault | injected | outcomes |"
    yield "|---|---:|---|"
    for kind in [*faults, *map(str, _NOT_FAULTS)]:
        said = "; ".join(f"{count} {outcome}" for outcome, count in done[kind].most_common())
        yield f"| {kind} | {done[kind].total():,} | {said} |"
    violations = [violation for report in reports for violation in report["violations"]]
    injected = sum(done[kind].total() for kind in faults)
    yield ""
    yield f"{injected:,} faults in {len(reports)} runs; {sum(undone.values())} could not be injected"
    yield f"{_sent(reports):,} records sent; {_reads(reports):,} reads; {len(violations)} violations"
    yield from (f"- {violation['rule']}: {violation['examples'][0]}" for violation in violations)


def runs(reports: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a row for each run, in Markdown; the argument is that of `table`."""
    yield "| seed | pipelines | seconds of faults | injected | records | reads | violations | planted |"
    yield "|---:|---|---:|---:|---:|---:|---:|---|"
    for report in reports:
        names = ", ".join(report["sent"])
        injected = sum(
            each["fault"]["kind"] not in _NOT_FAULTS and not each["outcome"].startswith(NOT_DONE)
            for each in report["faults"]
        )
        planted = "; ".join(
            f"{name}: {', '.join(rules) or 'not found'}" for name, rules in report["planted"].items()
        )
        yield (
            f"| {report['seed']} | {names} | {report['seconds']:.0f} | {injected} | {_sent([report]):,} |"
            f" {_reads([report]):,} | {len(report['violations'])} | {planted} |"
        )


def _brief(outcome: str) -> str:
    return outcome.partition(":")[0] if outcome.startswith("not refused") else outcome


def _sent(reports: Sequence[Mapping[str, Any]]) -> int:
    return sum(count for report in reports for sorts in report["sent"].values() for count in sorts.values())


def _reads(reports: Sequence[Mapping[str, Any]]) -> int:
    return sum(polls for report in reports for polls, _ in report["polls"].values())


@click.command()
@click.argument("reports", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
def ledger(reports: tuple[Path, ...]) -> None:
    """Sum the reports of several runs, as --record writes them."""
    told = [json.loads(report.read_text(encoding="utf-8")) for report in reports]
    for line in (*runs(told), "", *table(told)):
        click.echo(line)


if __name__ == "__main__":
    ledger()
