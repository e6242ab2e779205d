"""The lag of a pipeline's stages as metrics, with the cause that was found."""

from collections.abc import Callable, Sequence
from typing import Final

from pipelines.lag.alerts import status_of
from pipelines.lag.diagnosis import LagCause
from pipelines.lag.stage_facts import StageFacts
from pipelines.lag.texts import least_retention
from pipelines.runtime.prometheus_text import Gauge

Labels = tuple[tuple[str, str], ...]

_ASKED: Final = "asked_timestamp_seconds"
_FIGURES: Final[dict[str, tuple[str, Callable[[StageFacts], float | None]]]] = {
    "records": ("Records that the stage has not processed.", lambda facts: facts.records),
    "seconds": ("Age of the oldest of these records; left out if unknown.", lambda facts: facts.behind_s),
    "rate_in": ("Records that come each second.", lambda facts: facts.rate_in),
    "rate_out": ("Records that the stage processes each second.", lambda facts: facts.rate_out),
    "catch_up_seconds": (
        "Time until nothing is left at these rates; left out if that is never.",
        lambda facts: facts.catch_up_s,
    ),
    "retention_seconds": (
        "Time until Kafka deletes the first record that was not read; left out if there is none.",
        lambda facts: least_retention(facts) if facts.records else None,
    ),
    _ASKED: ("When this was found out.", lambda facts: facts.at.timestamp()),
}


def lag_gauges(stages: Sequence[tuple[StageFacts, LagCause]]) -> list[Gauge]:
    """Return the lag of stages as metrics, labelled by `stream`, and `cluster` if it is a further one.

    Args:
        stages: What is known of each stage, and the cause of its lag.

    Returns:
        Those that are known. `oncelake_lag_cause` is 1 under the labels `cause` and `status` of each stage;
        the status is `bad`, `good`, or `neither`, as for alerts.
    """
    found = [
        Gauge(f"oncelake_lag_{name}", text, values)
        for name, (text, of) in _FIGURES.items()
        if (
            values := {
                _labels(facts): value
                for facts, _ in stages
                if (_is_known(facts) or name == _ASKED) and (value := of(facts)) is not None
            }
        )
    ]
    causes = {
        (*_labels(facts), ("cause", cause), ("status", status_of(cause))): 1.0 for facts, cause in stages
    }
    return [*found, Gauge("oncelake_lag_cause", "1 for the cause of the lag of each stage.", causes)]


def _is_known(facts: StageFacts) -> bool:
    """Return whether the figures of a stage say anything: without an answer, or a table, all are 0."""
    return facts.unreachable is None and facts.missing_table is None


def _labels(facts: StageFacts) -> Labels:
    return (("stream", facts.stage), *((("cluster", facts.cluster),) if facts.cluster else ()))
