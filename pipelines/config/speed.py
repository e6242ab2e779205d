"""What a configuration may say of the real-time layer."""

from datetime import timedelta

from pydantic import BaseModel, ConfigDict, Field

from pipelines.config.values import Count, PositiveInterval


class SpeedConfig(BaseModel):
    """The real-time layer.

    Attributes:
        trigger_interval: how often a micro-batch is taken from bronze.
        watermark_delay: for how long behind the newest event time that was sent and read a key is
            remembered; a duplicate that is later than that is left to the nightly rebuild.
        state_partitions: into how many partitions the state is divided. Fixed at the first batch of
            a checkpoint: a later change has no effect until the checkpoint is made anew.
        max_bytes_per_trigger: about how much of bronze one micro-batch takes (`512m`, `2g`).
        late_warn_share: above which share of late records people are told.
        late_warn_records: among how many records at least such a share counts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    trigger_interval: PositiveInterval = timedelta(seconds=10)
    watermark_delay: PositiveInterval
    state_partitions: int = Field(default=8, ge=1, le=10_000)
    max_bytes_per_trigger: str | None = Field(default=None, pattern=r"^[1-9]\d*[bkmgt]$")
    late_warn_share: float = Field(default=0.1, ge=0, le=1)
    late_warn_records: Count = 100
