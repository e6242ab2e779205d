"""Where ingest first began with each partition, and what was lost before: noted beside its checkpoint."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, Final

from pipelines.spark.checkpoints import BEGAN, damaged_file_error, note_path, offsets_by_partition

PASSED: Final = "passed"
"""In the note: by partition, up to where the checkpoint that was reset had read, as JSON."""

LOST: Final = "lost"
"""In the note: by partition, what was lost, as JSON; see `Loss`."""


@dataclass(frozen=True)
class Loss:
    """Records of a partition that Kafka had deleted before they came into bronze.

    Bronze says itself from which day on it is complete. A `RESTORE` to an earlier version, or a copy that a
    query made, takes that back.

    Attributes:
        offset: The first offset of the loss.
        day: The first complete day that bronze was told for it.
        before: What bronze had said before that; None for nothing.
    """

    offset: int
    day: date
    before: date | None = None

    def is_forgotten(self, said: date | None) -> bool:
        """Return whether bronze says again what it had said before.

        Another day is the choice of a person, who knows better.

        Args:
            said: What bronze says of the first complete day.
        """
        return said is None or (self.before is not None and said <= self.before and said < self.day)


@dataclass(frozen=True)
class Beginning:
    """What is noted beside ingest's checkpoint.

    Attributes:
        began: Where ingest first began, by partition, as far as the checkpoint does not know it.
        lost: By partition, what was lost.
        passed: By partition, up to where the checkpoint that was reset had read, if bronze has all of that:
            offsets below it that bronze lacks were no records.
    """

    began: Mapping[int, int] = field(default_factory=dict)
    lost: Mapping[int, Loss] = field(default_factory=dict)
    passed: Mapping[int, int] = field(default_factory=dict)

    def forgotten(self, said: date | None) -> dict[int, Loss]:
        """Return the losses that bronze has forgotten, see `Loss.is_forgotten`."""
        return {n: loss for n, loss in self.lost.items() if loss.is_forgotten(said)}

    def having_lost(self, offsets: Mapping[int, int], day: date, before: date | None) -> "Beginning":
        """Return the same after a further loss, from these offsets on."""
        losses = {n: Loss(min(at, self._first_lost(n, at)), day, before) for n, at in offsets.items()}
        return replace(self, lost={**self.lost, **losses})

    def _first_lost(self, number: int, otherwise: int) -> int:
        return self.lost[number].offset if number in self.lost else otherwise

    def entries(self) -> dict[str, str]:
        """Return it as entries of the note."""
        entries = {BEGAN: json.dumps(dict(self.began))} if self.began else {}
        if self.passed:
            entries[PASSED] = json.dumps(dict(self.passed))
        if self.lost:
            losses = {
                n: [loss.offset, str(loss.day), str(loss.before or "")] for n, loss in self.lost.items()
            }
            entries[LOST] = json.dumps(losses)
        return entries


def first_began(own: Mapping[int, int], noted: Beginning, forgotten: Mapping[int, Loss]) -> dict[int, int]:
    """Return where ingest first began, by partition; one may be unknown.

    Of a loss that bronze has forgotten, it is where that begins.

    Args:
        own: Where the checkpoint began.
        noted: What is noted beside it.
        forgotten: The losses that bronze has forgotten.
    """
    return {**own, **noted.began, **{n: loss.offset for n, loss in forgotten.items()}}


def beginning_in(note: Mapping[str, Any], path: str) -> Beginning:
    """Return what a note says.

    Args:
        note: What is noted beside the checkpoint.
        path: Of the checkpoint, for messages.

    Raises:
        SourceError: The note is damaged.
    """
    began = offsets_by_partition(str(note.get(BEGAN, "{}")), note_path(path))
    passed = offsets_by_partition(str(note.get(PASSED, "{}")), note_path(path))
    try:
        losses = json.loads(str(note.get(LOST, "{}")))
        lost = {int(number): _loss(*parts) for number, parts in losses.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise damaged_file_error(note_path(path), f"losses by partition under {LOST!r}, in JSON") from None
    return Beginning(began, lost, passed)


def _loss(offset: int, day: str, before: str) -> Loss:
    return Loss(int(offset), date.fromisoformat(day), date.fromisoformat(before) if before else None)
