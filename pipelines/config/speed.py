"""What a configuration may say of the speed layer."""

from datetime import timedelta

from pydantic import BaseModel, ConfigDict, Field

from pipelines.config.values import Bytes, Count, PositiveInterval, Real, Whole


class SpeedConfig(BaseModel):
    """The speed layer: deduplication and watermark.

    Attributes:
        trigger_interval: Time from one micro-batch to the next.
        watermark_delay: Delay of the watermark, which is the maximum of `least(event time, Kafka timestamp,
            read time)` over all valid records of earlier micro-batches, minus this delay. Records whose event
            time is not after it are late: the speed layer drops them, and the nightly rebuild adds them. See
            [Late](semantics.md#late-and-the-watermark). After a change, `speed_stream` ends with exit code 2
            until you [rebuild the speed layer](runbook.md#change-of-rules-watermark-or-state-partitions).
        state_partitions: Number of partitions of the deduplication state, and of shuffles
            (`spark.sql.shuffle.partitions`) in all jobs of the pipeline. `nightly_batch` chooses its own
            number for the records of its days. The state keeps the number that its checkpoint began with. To
            change it, rebuild the speed layer, see
            [the runbook](runbook.md#change-of-rules-watermark-or-state-partitions).
        state_eviction_share: How much longer than necessary a key may stay in the state, as a share of
            `watermark_delay`. The state is scanned for expired keys each time the watermark has moved by
            that much. `0` scans it in each micro-batch. This setting does not change the result.
        max_bytes_per_trigger: How much of bronze a micro-batch reads, approximately, such as `512m` or `2g`.
        late_warn_share: The stream and the audit warn if a larger share of the records is late.
        late_warn_records: Minimum number of records, late or not, from which a share is computed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    trigger_interval: PositiveInterval = timedelta(seconds=10)
    watermark_delay: PositiveInterval
    state_partitions: Whole = Field(default=8, ge=1, le=10_000)
    state_eviction_share: Real = Field(default=0.25, ge=0, le=1)
    max_bytes_per_trigger: Bytes | None = None
    late_warn_share: Real = Field(default=0.1, ge=0, le=1)
    late_warn_records: Count = 100

    @property
    def eviction_slack(self) -> timedelta:
        """How far the watermark moves from one scan of the state to the next, in whole milliseconds."""
        millisecond = timedelta(milliseconds=1)
        return self.watermark_delay * self.state_eviction_share // millisecond * millisecond
