"""Whether Kafka still has the log that bronze was read from.

A cluster that loses records (an election of an unclean leader, a disk that was wiped) gives their offsets to
others. Topic and offsets then look as before, and ingest, which goes on behind what it has read, never reads
what stands there now.
"""

from collections.abc import Mapping
from typing import Final

from pipelines.config.model import PipelineConfig
from pipelines.errors import SourceError
from pipelines.kafka.bronze_offsets import Ingestion
from pipelines.kafka.ingest_state import IngestState

_NEAREST_WITHIN: Final = 100
_LOOKED_BACK: Final = (1_000, 100_000)


def last_offsets(state: IngestState) -> dict[int, int]:
    """Return the last offset of each partition in bronze.

    The records of the micro-batches that ingest's checkpoint still knows are looked at first. Only of a
    partition without any among them the offsets in all of bronze are; records that a backfill brought from
    before these micro-batches do not count.
    """
    oldest = state.oldest()
    plan = None if oldest is None else state.plan(oldest)
    came = state.last_offsets(Ingestion(since=plan.at)) if plan else {}
    before = (plan.ends if plan else {}) if oldest else state.began() or {}
    recent = {number: last for number, last in came.items() if last >= before.get(number, 0) - 1}
    others = [number for number in range(state.topic.partitions) if number not in recent]
    return recent | (dict(state.last_offsets(partitions=others)) if others else {})


def require_same_log(state: IngestState, last: Mapping[int, int]) -> None:
    """Compare the last record of each partition in bronze with the one that Kafka has under its offset.

    Kafka is asked for this one record. Where it was compacted, the nearest before it is compared, if there is
    one; of a partition that Kafka has deleted up to there nothing can be said.

    Args:
        state: What is known of ingest.
        last: The last offset of each partition in bronze.

    Raises:
        SourceError: They are not the same, or Kafka ends before.
        InfrastructureError: The cluster does not answer.
    """
    name, available = state.config.kafka.source_topic, state.bounds()
    for number, offset in sorted(last.items()):
        end = available.get(number, range(0)).stop
        if offset >= end:
            raise SourceError(
                f"{state.config.table('bronze')} has {name}-{number} up to offset {offset}, but Kafka's end"
                f" offset is {end}: the topic has lost records. Nothing was read or"
                " certified. See docs/runbook.md, 'Kafka has lost what bronze has'"
            )
    accepted = {each.strip() for each in state.accepted_divergences().split(",")}
    compared_offsets = {
        number: offset
        for number, offset in last.items()
        if offset in available.get(number, range(0)) and f"{name}-{number}@{offset}" not in accepted
    }
    comparisons = dict(state.compared({number: range(at, at + 1) for number, at in compared_offsets.items()}))
    before = {
        n: _up_to(at, available[n], _NEAREST_WITHIN)
        for n, at in compared_offsets.items()
        if n not in comparisons
    }
    comparisons |= state.compared(before)
    others = {
        number: compared_offsets[number] for number, compared in comparisons.items() if compared.differs
    }
    if others:
        raise SourceError(_divergence_message(state.config, _since(state, available, others), others))


def _since(state: IngestState, available: Mapping[int, range], others: Mapping[int, int]) -> dict[int, int]:
    """Return the first offset from which on records differ, as far back as it is looked for."""
    since: dict[int, int] = {}
    for width in _LOOKED_BACK:
        windows = {n: _up_to(at, available[n], width) for n, at in others.items() if n not in since}
        for number, compared in state.compared(windows).items():
            window = windows[number]
            if (
                compared.same is not None
                or window.start == available[number].start
                or width == _LOOKED_BACK[-1]
            ):
                since[number] = window.start if compared.same is None else compared.same + 1
    return since


def _up_to(last: int, available: range, width: int) -> range:
    return range(max(available.start, last - width + 1), last + 1)


def _divergence_message(config: PipelineConfig, since: Mapping[int, int], others: Mapping[int, int]) -> str:
    ranges = ", ".join(
        f"{config.kafka.source_topic}-{number} @ {since.get(number, last)}..{last}"
        for number, last in sorted(others.items())
    )
    return (
        f"Kafka has lost records and reused their offsets: its records differ from those of"
        f" {config.table('bronze')} at {ranges}, expected the same. The records that Kafka has there now"
        " are in no table. Nothing was read or certified. See docs/runbook.md,"
        " 'Kafka has lost what bronze has'"
    )
