"""What a pipeline's configuration says about the audit."""

from itertools import pairwise
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator


class KnownGap(BaseModel):
    """Offsets of the pipeline's topic that bronze lacks for good, and somebody knows it.

    Attributes:
        partition: the partition.
        first: the first of the offsets.
        last: the last of them.
        why: what was lost, for who reads it later.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    partition: int = Field(ge=0)
    first: int = Field(ge=0)
    last: int = Field(ge=0)
    why: str = Field(min_length=1)

    @property
    def offsets(self) -> range:
        """The offsets themselves."""
        return range(self.first, self.last + 1)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.last < self.first:
            raise ValueError(f"last: found {self.last}, expected first ({self.first}) or more")
        return self


class AuditConfig(BaseModel):
    """What the audit lets pass.

    Attributes:
        offset_gaps: `fail`, or `warn` for topics where gaps are lawful (compacted, transactional).
        known_gaps: what was lost and cannot be had any more; offsets that are missing elsewhere fail the
            audit as ever.
        layer_differences: `fail`, or `warn` where the speed layer was filled under other rules than
            today's, so that what it lacks cannot be explained any more.
        examples: how many offending rows or records a check and the report keep.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    offset_gaps: Literal["fail", "warn"] = "fail"
    known_gaps: tuple[KnownGap, ...] = ()
    layer_differences: Literal["fail", "warn"] = "fail"
    examples: int = Field(default=5, ge=0, le=100)

    @field_validator("known_gaps")
    @classmethod
    def _apart(cls, gaps: tuple[KnownGap, ...]) -> tuple[KnownGap, ...]:
        ordered = sorted(gaps, key=lambda gap: (gap.partition, gap.first))
        for gap, following in pairwise(ordered):
            if gap.partition == following.partition and following.first <= gap.last:
                raise ValueError(
                    f"partition {gap.partition}: found {gap.first}..{gap.last} and"
                    f" {following.first}..{following.last}, expected ranges that do not overlap"
                )
        return gaps
