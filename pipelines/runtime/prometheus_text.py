"""Metrics in the text format that Prometheus' textfile collector reads."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pipelines.message_texts import number_text


@dataclass(frozen=True)
class Gauge:
    """One metric and its values.

    Attributes:
        name: The metric's name.
        help: What it counts, in one sentence.
        values: The value for each set of labels, given as pairs; `()` for none.
    """

    name: str
    help: str
    values: Mapping[tuple[tuple[str, str], ...], float]


def exposition(metrics: Iterable[Gauge], labels: Mapping[str, str]) -> str:
    """Return metrics in the text format, version 0.0.4.

    Args:
        metrics: The metrics; no name stands twice.
        labels: Labels that every value gets, before its own.
    """
    lines: list[str] = []
    for metric in metrics:
        text = metric.help.replace("\\", "\\\\").replace("\n", "\\n")
        lines += [f"# HELP {metric.name} {text}", f"# TYPE {metric.name} gauge"]
        for own, value in metric.values.items():
            pairs = ",".join(f'{name}="{_escaped(text)}"' for name, text in (*labels.items(), *own))
            lines.append(f"{metric.name}{{{pairs}}} {number_text(value)}")
    return "".join(f"{line}\n" for line in lines)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
