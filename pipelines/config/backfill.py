"""What a configuration may say of `oncelake backfill`."""

from typing import Final

from pydantic import BaseModel, ConfigDict

from pipelines.config.values import Count, Group

_BURST_S: Final = 5


class BackfillConfig(BaseModel):
    """How `oncelake backfill` reads what bronze lacks.

    Attributes:
        chunk_offsets: Maximum number of offsets that it reads at once, over all partitions. Each chunk is one
            commit to bronze, and what a run repeats if it is killed.
        max_offsets_per_second: Maximum number of offsets that it reads per second, on average. Without it
            there is no limit. Chunks are then no larger than what is read in five seconds.
        client_id: `client.id` of its Kafka clients, and the prefix of the names of their consumer groups. A
            quota of the brokers for this `client.id` limits the command and not ingest. `{env}` and
            `{pipeline}` stand for the two names.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    chunk_offsets: Count = 500_000
    max_offsets_per_second: Count | None = None
    client_id: Group = "oncelake.{env}.{pipeline}.backfill"

    @property
    def most_at_once(self) -> int:
        """Maximum number of offsets of a chunk.

        With a limit on the rate a chunk is written within seconds, so that ingest commits no micro-batch at
        each attempt.
        """
        rate = self.max_offsets_per_second
        return min(self.chunk_offsets, rate * _BURST_S) if rate else self.chunk_offsets
