"""What a pipeline's configuration says about the audit."""

from itertools import pairwise
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from pipelines.config.clusters import ClusterName
from pipelines.config.values import Whole


class KnownGap(BaseModel):
    """A range of offsets that are missing from bronze for good, and accepted.

    Attributes:
        partition: Partition of the topic.
        first: First offset.
        last: Last offset.
        why: What was lost, for whoever reads it later.
        cluster: Cluster of the topic; the first one, without it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    partition: Whole = Field(ge=0, le=2**31 - 1)
    first: Whole = Field(ge=0, le=2**63 - 1)
    last: Whole = Field(ge=0, le=2**63 - 1)
    why: str = Field(min_length=1)
    cluster: ClusterName | None = None

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
    """What the audit accepts.

    Attributes:
        offset_gaps: `fail`, or `warn` for topics that have gaps by design (compacted, transactional).
        known_gaps: Offsets that are lost for good and accepted, each with `partition`, `first`, `last` and
            `why`; of a further cluster also with its name, `cluster`. Other missing offsets still fail the
            audit.
        layer_differences: `fail`, or `warn` while the speed layer contains rows that were written by other
            rules than the current ones.
        examples: How many rows or records a failed check and the report show as samples.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    offset_gaps: Literal["fail", "warn"] = "fail"
    known_gaps: tuple[KnownGap, ...] = ()
    layer_differences: Literal["fail", "warn"] = "fail"
    examples: Whole = Field(default=5, ge=0, le=100)

    @field_validator("known_gaps")
    @classmethod
    def _apart(cls, gaps: tuple[KnownGap, ...]) -> tuple[KnownGap, ...]:
        ordered = sorted(gaps, key=lambda gap: (gap.cluster or "", gap.partition, gap.first))
        for gap, following in pairwise(ordered):
            is_same = (gap.cluster, gap.partition) == (following.cluster, following.partition)
            if is_same and following.first <= gap.last:
                raise ValueError(
                    f"partition {gap.partition}: found {gap.first}..{gap.last} and"
                    f" {following.first}..{following.last}, expected ranges that do not overlap"
                )
        return gaps
