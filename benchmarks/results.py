"""What came out, for people and for programs: the terminal, Markdown, a page, everything as JSON."""

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.page import page
from benchmarks.runner import Result
from benchmarks.summary import AtSize, Summary, label_of, summarize

HEADINGS = (
    "work",
    "µs CPU an event",
    "without compilers",
    "fixed CPU s",
    "events",
    "wall s",
    "CPU s",
    "compilers, CPU s",
    "records/s",
    "against raw, wall",
    "against raw, CPU",
    "bytes out/in",
    "peak MB",
)
"""The columns of a table of summaries."""
# What eighty columns of a terminal have room for.
_ON_A_TERMINAL = {
    "work": "work",
    "µs CPU an event": "µs/event",
    "without compilers": "warm µs",
    "events": "events",
    "wall s": "wall s",
    "CPU s": "CPU s",
    "against raw, wall": "wall",
    "against raw, CPU": "CPU",
}


@dataclass(frozen=True)
class Report:
    """Where the results of a benchmark go, as soon as there are any.

    Attributes:
        path: of the JSON; the page and the Markdown are beside it.
        setup: how it was measured, for the reader: names and values.
    """

    path: Path
    setup: dict[str, Any]

    def write(self, results: Sequence[Result]) -> None:
        """Write what was measured so far, in place of what was written before."""
        summaries = summarize(results)
        content = {
            "machine": machine(),
            "setup": self.setup,
            "summary": [asdict(summary) for summary in summaries],
            "results": [asdict(result) for result in results],
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        told = {**machine(), **self.setup}
        nights = night_lines(results)
        self.path.with_suffix(".md").write_text(markdown(told, summaries, nights), encoding="utf-8")
        html = page(told, HEADINGS, rows(summaries), summaries, nights)
        self.path.with_suffix(".html").write_text(html, encoding="utf-8")


def machine() -> dict[str, Any]:
    """Return what the figures depend on: processors, memory in gigabytes, system, Python."""
    return {
        "cpus": psutil.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def rows(summaries: Sequence[Summary]) -> list[list[str]]:
    """Return the cells of a table, a line for each item and size, under `HEADINGS`."""
    return [
        [
            summary.label if not number else "",
            _figure(summary.marginal_us) if not number else "",
            _figure(summary.warm_us) if not number else "",
            _figure(summary.fixed_s) if not number else "",
            *_cells(size),
        ]
        for summary in summaries
        for number, size in enumerate(summary.sizes)
    ]


def _cells(size: AtSize) -> list[str]:
    low, high = size.ratio_wall_range
    spread = "" if low == high else f" ({low:.2f}-{high:.2f})"
    return [
        f"{size.events:,}",
        f"{size.wall_s:.1f}",
        f"{size.cpu_s:.1f}",
        f"{size.compile_s:.1f}",
        f"{size.records_per_s:,}",
        f"{size.ratio_wall:.2f}{spread}",
        f"{size.ratio_cpu:.2f}",
        "" if size.written is None else f"{size.written:.2f}",
        f"{size.peak_mb:,}",
    ]


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def table(summaries: Sequence[Summary]) -> Table:
    """Return the summaries as a table for the terminal; the page has all columns."""
    made = Table(title="CPU of one more event; speed against a raw append of the same run (1.00)")
    for heading, short in _ON_A_TERMINAL.items():
        made.add_column(short, justify="left" if heading == "work" else "right")
    for cells in rows(summaries):
        told = dict(zip(HEADINGS, cells, strict=True))
        made.add_row(*(told[heading] for heading in _ON_A_TERMINAL))
    return made


def markdown(told: dict[str, Any], summaries: Sequence[Summary], nights: Sequence[str]) -> str:
    """Return everything that is told as a Markdown document."""
    lines = ["# Benchmark", "", *(f"- {name}: {value}" for name, value in told.items()), ""]
    lines += [f"| {' | '.join(HEADINGS)} |", f"|---{'|---:' * (len(HEADINGS) - 1)}|"]
    lines += [f"| {' | '.join(cells)} |" for cells in rows(summaries)]
    lines += ["", *(f"- {night}" for night in nights)]
    return "\n".join(lines).rstrip() + "\n"


def night_lines(results: Sequence[Result]) -> list[str]:
    """Tell what nightly runs consisted of: their steps, and the bytes they read and wrote."""
    lines = []
    for result in results:
        parts = result.details.get("steps")
        if not parts:
            continue
        audit = sum(part["seconds"] for part in parts if part["step"] == "audit")
        seconds = ", ".join(f"{part['step']} {part['seconds']} s" for part in parts)
        detail = next(part["detail"] for part in parts if part["step"] == "audit")
        mb = result.details["mb"]
        lines.append(
            f"{label_of(result.item)}, {result.events:,} events: {seconds}; the audit is"
            f" {audit / result.wall_s:.2f} of the run ({detail}); {mb['read']:,.1f} MB read,"
            f" {mb['written']:,.1f} MB written"
        )
    return lines


def show(console: Console, results: Sequence[Result]) -> None:
    """Print what was measured."""
    console.print(table(summarize(results)))
    for line in night_lines(results):
        console.print(line, highlight=False)
