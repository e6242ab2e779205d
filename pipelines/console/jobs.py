"""What is at work on a pipeline: its streams, and the runs that hold a lease of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from pipelines.config.streams import STREAMS
from pipelines.console.view import ConcernSeverity, LakeView, PipelineView
from pipelines.lag.stage_facts import StageFacts
from pipelines.ledger.overview import LeaseState

LeaseName = Literal["pipeline", "backfills"]
LEASES: Final[Mapping[LeaseName, str]] = {"pipeline": "the pipeline", "backfills": "its backfills"}
"""The leases of a pipeline, in words."""


@dataclass(frozen=True)
class StreamState:
    """How a stream is.

    Attributes:
        severity: How much that needs a person.
        words: The same for people.
        is_at_work: Whether its process lives, as far as it is known.
    """

    severity: ConcernSeverity
    words: str
    is_at_work: bool = False


@dataclass(frozen=True)
class HeldByRun:
    """A lease that a run holds.

    Attributes:
        pipeline: The pipeline.
        lease: Which of its leases.
        state: Who holds it, and since when.
    """

    pipeline: PipelineView
    lease: LeaseName
    state: LeaseState

    @property
    def job(self) -> str:
        """The command that the run is of."""
        return self.state.job or "a run that did not tell its command"


def stream_state(facts: StageFacts, now: datetime) -> StreamState:
    """Return how a stream is, by the files beside its checkpoint.

    Args:
        facts: What they say.
        now: The time.
    """
    stream = facts.stream
    if stream is None:
        return StreamState("open", "never ran")
    if stream.failure or facts.refusal:
        return StreamState("failed", "failed")
    if stream.ended_at:
        return StreamState("open", "ended")
    if facts.is_alive is False:
        return StreamState("failed", "process is gone")
    if stream.silent_s(now):
        return StreamState("failed", "silent", is_at_work=True)
    return StreamState("passed", "running", is_at_work=True)


def streams_at_work(pipeline: PipelineView, now: datetime) -> list[StageFacts]:
    """Return the streams of a pipeline whose processes live, in the order of the data.

    Args:
        pipeline: The pipeline.
        now: The time.
    """
    figures = pipeline.lake.value
    return [each for each in figures.streams if stream_state(each, now).is_at_work] if figures else []


def stream_command(facts: StageFacts) -> str:
    """Return the command that runs a stream, without its pipeline."""
    job = STREAMS[facts.stage].job
    return f"{job} --cluster {facts.cluster}" if facts.cluster else job


def held_leases(pipeline: PipelineView, now: datetime) -> list[HeldByRun]:
    """Return the leases of a pipeline that are held, also by runs that have died.

    Args:
        pipeline: The pipeline.
        now: The time.
    """
    return [HeldByRun(pipeline, name, state) for name, state in leases(pipeline) if state.is_held(now)]


def leases(pipeline: PipelineView) -> Iterator[tuple[LeaseName, LeaseState]]:
    """Yield the leases of a pipeline that any run ever held."""
    ledger = pipeline.ledger.value
    if ledger and ledger.lease:
        yield "pipeline", ledger.lease
    if ledger and ledger.backfill_lease:
        yield "backfills", ledger.backfill_lease


def all_held_leases(view: LakeView | None, now: datetime) -> Sequence[HeldByRun]:
    """Return the leases of all pipelines that are held: first those of the dead, then the oldest first.

    Args:
        view: What is known of the lake; None before anything is.
        now: The time.
    """
    held = [each for pipeline in (view.pipelines if view else ()) for each in held_leases(pipeline, now)]
    return sorted(held, key=lambda each: (not each.state.is_gone, each.state.since, each.pipeline.name))
