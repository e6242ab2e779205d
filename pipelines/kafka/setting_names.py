"""Names of settings of a topic, as Kafka spells them."""

from typing import Final

CLEANUP: Final = "cleanup.policy"
IN_SYNC: Final = "min.insync.replicas"
LARGEST: Final = "max.message.bytes"
RETENTION: Final = "retention.ms"
RETENTION_BYTES: Final = "retention.bytes"
STAMPS: Final = "message.timestamp.type"
UNCLEAN: Final = "unclean.leader.election.enable"
