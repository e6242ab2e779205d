"""On what a micro-batch spends its time, as far as it can be told apart.

Spark knows its own phases, and one of them, `write`, has all that tasks do and all that our own code does. Of
that the job itself measures commits and the quarantine. The rest is divided as the tasks divide their time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Final, Literal, get_args

from pipelines.config.streams import Query
from pipelines.spark.stream_progress import BatchFigures

Phase = Literal["source", "planning", "decode", "state", "write", "quarantine", "commit", "log"]

PHASES: Final[tuple[Phase, ...]] = get_args(Phase)
"""All phases, in the order in which they are shown."""


@dataclass(frozen=True)
class LongestPhase:
    """The phase on which micro-batches spend most of their time.

    Attributes:
        phase: Which.
        share: Its share of the time of a micro-batch, from 0 to 1.
    """

    phase: Phase
    share: float


def longest_phase(batches: Sequence[BatchFigures], stage: Query) -> LongestPhase:
    """Return the phase that takes longest in most of some micro-batches; of equal phases the first.

    Args:
        batches: The micro-batches.
        stage: Whose they are.
    """
    divided = [(batch, phases_of(batch, stage)) for batch in batches]
    medians = {phase: median([each[phase] for _, each in divided] or [0.0]) for phase in PHASES}
    phase = max(PHASES, key=lambda each: medians[each])
    shares = [each[phase] / batch.seconds for batch, each in divided if batch.seconds]
    return LongestPhase(phase, mean(shares or [0.0]))


def phases_of(batch: BatchFigures, stage: Query) -> dict[Phase, float]:
    """Return the seconds of a micro-batch by phase.

    Args:
        batch: Its figures; those of an older version know less, and all that is not known apart is `write`.
        stage: Whose it is: only `speed` decodes before its rows go to other tasks.
    """
    quarantine, commit = (batch.parts.get(part, 0.0) for part in ("quarantine", "commit"))
    in_tasks = max(batch.phases.get("write", 0.0) - quarantine - commit, 0.0)
    decode = in_tasks * _decoding_share(batch) if stage == "speed" else 0.0
    state = min(in_tasks * _state_share(batch), in_tasks - decode)
    return {
        "source": batch.phases.get("source", 0.0),
        "planning": batch.phases.get("planning", 0.0),
        "decode": decode,
        "state": state,
        "write": in_tasks - decode - state,
        "quarantine": quarantine,
        "commit": commit,
        "log": batch.phases.get("log", 0.0),
    }


def _decoding_share(batch: BatchFigures) -> float:
    tasks = batch.tasks
    return min(tasks.handing_on_s / tasks.run_s, 1.0) if tasks and tasks.run_s > 0 else 0.0


def _state_share(batch: BatchFigures) -> float:
    tasks, state = batch.tasks, batch.state
    return min(state.seconds / tasks.run_s, 1.0) if state and tasks and tasks.run_s > 0 else 0.0
