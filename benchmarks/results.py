"""What came out: a table for the terminal, everything as JSON."""

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any, Final

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.items import ITEMS
from benchmarks.runner import Result, Setup

Run = Sequence[Result]
_LABELS: Final = {**{name: item.label for name, item in ITEMS.items()}, "build": "rebuild alone"}


def summarize(runs: Sequence[Run], records: int) -> list[dict[str, Any]]:
    """Return medians over the repetitions.

    Args:
        runs: the results of each repetition; each begins with the item `raw`.
        records: how many records the topic holds.

    Returns:
        For each item: `item`, `label`, `wall_s`, `cpu_s`, `peak_mb`, `records_per_s`, and how fast it is
        against the raw append of as many records in the same repetition: `ratio_wall` and `ratio_cpu`
        (medians; more is faster) with `ratio_wall_range` (least and greatest).
    """
    rows = []
    for place, first in enumerate(runs[0]):
        same = [run[place] for run in runs]
        share = ITEMS[first.item].share if first.item in ITEMS else 1.0
        wall = [run[0].wall_s * share / one.wall_s for run, one in zip(runs, same, strict=True)]
        cpu = [run[0].cpu_s * share / one.cpu_s for run, one in zip(runs, same, strict=True)]
        wall_s = median(one.wall_s for one in same)
        rows.append(
            {
                "item": first.item,
                "label": _LABELS[first.item],
                "wall_s": round(wall_s, 2),
                "cpu_s": round(median(one.cpu_s for one in same), 2),
                "peak_mb": round(median(one.peak_mb for one in same)),
                "records_per_s": round(records * share / wall_s),
                "ratio_wall": round(median(wall), 3),
                "ratio_wall_range": [round(min(wall), 3), round(max(wall), 3)],
                "ratio_cpu": round(median(cpu), 3),
            }
        )
    return rows


def show(console: Console, summary: Sequence[dict[str, Any]]) -> None:
    """Print the summary as a table."""
    table = Table(title="Against a raw append of the same run (1.00; more is faster)")
    table.add_column("work")
    for title in ("wall s", "CPU s", "records/s", "ratio wall", "ratio CPU"):
        table.add_column(title, justify="right")
    for row in summary:
        low, high = row["ratio_wall_range"]
        spread = "" if low == high else f" ({low:.2f}-{high:.2f})"
        table.add_row(
            row["label"],
            f"{row['wall_s']:.1f}",
            f"{row['cpu_s']:.1f}",
            f"{row['records_per_s']:,}",
            f"{row['ratio_wall']:.2f}{spread}",
            f"{row['ratio_cpu']:.2f}",
        )
    console.print(table)


def show_nights(console: Console, run: Run) -> None:
    """Print what nightly runs consisted of: their steps, and the bytes they read and wrote."""
    for result in run:
        parts = result.details.get("steps")
        if not parts:
            continue
        audit = sum(part["seconds"] for part in parts if part["step"] == "audit")
        told = ", ".join(f"{part['step']} {part['seconds']} s" for part in parts)
        asked = next(part["detail"] for part in parts if part["step"] == "audit")
        mb = result.details["mb"]
        console.print(
            f"{_LABELS[result.item]}: {told}; the audit is {audit / result.wall_s:.2f} of the run ({asked});"
            f" {mb['read']:,.1f} MB read, {mb['written']:,.1f} MB written",
            highlight=False,
        )


def write(path: Path, setup: Setup, runs: Sequence[Run], summary: Sequence[dict[str, Any]]) -> None:
    """Write everything as JSON: where and how it was measured, the summary, each repetition."""
    content = {
        "machine": {
            "cpus": psutil.cpu_count(),
            "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
            "system": platform.platform(),
            "python": platform.python_version(),
        },
        "setup": {
            "cores": setup.cores,
            "batch_records": setup.batch_records,
            "settings": setup.settings,
            "truth": asdict(setup.truth),
        },
        "summary": list(summary),
        "runs": [[asdict(result) for result in run] for run in runs],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")
