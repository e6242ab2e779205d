"""What became of a record, in a word and a reason. Facts in, words out: nothing here touches a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from pipelines.contracts.contract import DataContract
from pipelines.ledger.layer_samples import Explanation, Explanations
from pipelines.records.redaction import leaves

OutcomeKind = Literal["winner", "duplicate", "conflict", Explanation, "missing"]
Place = Mapping[str, Any]

_WOULD_BE: Final = "would be the row of the batch layer"


@dataclass(frozen=True)
class Facts:
    """What the tables say of one record; see `pipelines.lineage.trace.traced`.

    Attributes:
        key: The parts of its key, as far as they can be read and may be shown.
        topic: Where it lies in Kafka.
        partition: Where it lies in Kafka.
        offset: Where it lies in Kafka.
        kafka_timestamp: Text, UTC.
        ingested_at: Text, UTC.
        event_time: Text, UTC; None if the record breaks its contract.
        event_day: Text; None if the record breaks its contract.
        payload: A hash of all columns that may be shown in some form; None likewise.
        valid: Whether it keeps the contract of today.
        reason: Why it does not.
        column: In which column it does not.
        in_speed: Whether the speed layer has it.
        in_batch: Whether the batch layer has it, at the certified version.
        quarantined_as: What the quarantine says of it: `_status`, `_reason`, `_column`, `_contract_version`.
        certified: Whether its event day is certified.
        reading: 1, or how many times it had been read from Kafka when it came into bronze once more.
        best: Whether it wins its key.
        winner: The coordinates of the copy that wins.
        differing: Which of the contract's values differ from the winner's, by their numbers.
        speed_copy: The coordinates of a copy that the speed layer has.
        key_in_speed: The coordinates of a record that the speed layer has of this key, on whatever day.
        watermark: Text, UTC: the latest that the speed layer's watermark can have been when it came.
        behind: Whether its event time is not after that.
        beyond: Whether it was ingested with or after the newest record of the speed layer.
        unread: Whether it was ingested after that, or the speed layer has no record.
    """

    key: Sequence[str | None]
    topic: str
    partition: int
    offset: int
    kafka_timestamp: str | None
    ingested_at: str
    event_time: str | None
    event_day: str | None
    payload: str | None
    valid: bool
    reason: str | None
    column: str | None
    in_speed: bool
    in_batch: bool
    quarantined_as: Mapping[str, Any] | None
    certified: bool
    reading: int
    best: bool
    winner: Place | None
    differing: Sequence[int] | None
    speed_copy: Place | None
    key_in_speed: Place | None
    watermark: str | None
    behind: bool
    beyond: bool
    unread: bool

    @property
    def layers(self) -> tuple[str, ...]:
        """The tables that hold the record."""
        holds = {
            "speed": self.in_speed,
            "batch": self.in_batch,
            "quarantine": self.quarantined_as is not None,
        }
        return ("bronze", *(layer for layer, has in holds.items() if has))


@dataclass(frozen=True)
class Outcome:
    """What became of a record: a verdict, why, and in which columns it differs from the copy that wins."""

    verdict: OutcomeKind
    reason: str
    differs_in: tuple[str, ...] = ()


def fate(facts: Facts, contract: DataContract) -> Outcome:
    """Decide what became of a record, as the audit would.

    Args:
        facts: What the tables say of it.
        contract: Names the columns.
    """
    if not facts.valid:
        return Outcome("quarantined", _broken(facts))
    if not facts.best or facts.reading > 1:
        return _copy(facts, contract)
    if facts.in_batch:
        dropped = facts.behind and facts.speed_copy is None
        reason = f"row of the batch layer{_dropped(facts) if dropped else ''}"
        return Outcome("late" if dropped else "winner", reason)
    speed_lacks_it = not facts.in_speed and facts.speed_copy is None
    if facts.certified and not (facts.quarantined_as and speed_lacks_it):
        reason = f"{facts.event_day} is certified without it: it came later, or a rule was changed"
        return Outcome("late", f"{reason}; the next rebuild of the day makes it the row")
    return _explained(facts) if speed_lacks_it else _in_speed(facts)


def _in_speed(facts: Facts) -> Outcome:
    copy = "it" if facts.in_speed else coordinates_text(facts.speed_copy)
    return Outcome("winner", f"{_WOULD_BE}; readers have {copy} from the speed layer")


def _explained(facts: Facts) -> Outcome:
    """Explain why the speed layer lacks the event, as the audit of its day would."""
    late = quarantined = pending = remembered = None
    # What the stream has refused, or has not read, it has not held against its watermark.
    if facts.behind and not facts.unread and not facts.quarantined_as:
        late = f"{_WOULD_BE}{_dropped(facts)}"
    if facts.quarantined_as:
        advice = "valid by the current contract: quarantine replay, or a rebuild"
        quarantined = f"{_refused(facts.quarantined_as)}; {advice}"
    if facts.beyond:
        pending = f"{_WOULD_BE}; the speed layer has not read that far"
    if facts.key_in_speed is not None:
        other = coordinates_text(facts.key_in_speed)
        remembered = f"{_WOULD_BE}; the speed layer had {other} of this key and took it for a copy"
    reasons = Explanations(late=late, quarantined=quarantined, pending=pending, remembered=remembered)
    for verdict, reason in reasons.by_precedence():
        if reason:
            return Outcome(verdict, reason)
    return Outcome("missing", f"{_WOULD_BE}; nothing explains why the speed layer lacks it")


def _copy(facts: Facts, contract: DataContract) -> Outcome:
    if facts.reading > 1:
        return Outcome(
            "duplicate", f"of {coordinates_text(_coordinates(facts))}: the same record, read from Kafka again"
        )
    shown = _still_shown(facts)
    if not facts.differing:
        return Outcome("duplicate", f"of {coordinates_text(facts.winner)}{shown}")
    paths = [path for path, _ in leaves(contract.schema)]
    differs_in = tuple(paths[number] for number in facts.differing)
    reason = f"with {coordinates_text(facts.winner)}, which wins; differs in {', '.join(differs_in)}{shown}"
    return Outcome("conflict", reason, differs_in)


def _still_shown(facts: Facts) -> str:
    if facts.in_batch:
        return "; row of the batch layer until its day is rebuilt"
    if facts.in_speed and not facts.certified:
        return "; readers have this copy from the speed layer until the day is certified"
    return ""


def _dropped(facts: Facts) -> str:
    return f"; the speed layer drops it: it came behind the watermark, {facts.watermark} UTC at the latest"


def _broken(facts: Facts) -> str:
    fault = f"{facts.reason}{f' {facts.column}' if facts.column else ''}"
    if facts.quarantined_as is None:
        return (
            f"{fault}; not in the quarantine table: the speed layer has not read that far, or rules changed"
        )
    status = facts.quarantined_as["_status"]
    return (
        f"{fault} ({status})"
        if facts.quarantined_as["_reason"] == facts.reason
        else f"{fault}; {_refused(facts.quarantined_as)}"
    )


def _refused(entry: Mapping[str, Any]) -> str:
    column = f" {entry['_column']}" if entry["_column"] else ""
    return f"{entry['_reason']}{column} by contract {entry['_contract_version']} ({entry['_status']})"


def _coordinates(facts: Facts) -> Place:
    return {"_topic": facts.topic, "_partition": facts.partition, "_offset": facts.offset}


def coordinates_text(coordinates: Place | None) -> str:
    """Return coordinates of a record as text."""
    place = coordinates or {}
    return f"{place['_topic']}-{place['_partition']} @ {place['_offset']}"
