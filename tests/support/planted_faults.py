"""The planted faults of each protocol of the simulation."""

from typing import Final

from simulation.planted import Planted
from simulation.planted_backfill import BACKFILL
from simulation.planted_index import INDEX
from simulation.planted_nightly import NIGHTLY
from simulation.planted_publishing import PUBLISHING
from simulation.planted_replay import REPLAY
from simulation.planted_retention import RETENTION, UPKEEP
from simulation.planted_sealing import SEALING

PLANTED: Final[dict[str, tuple[Planted, ...]]] = {
    "nightly": NIGHTLY,
    "publishing": PUBLISHING,
    "sealing": SEALING,
    "backfill": BACKFILL,
    "retention": RETENTION,
    "upkeep": UPKEEP,
    "index": INDEX,
    "replay": REPLAY,
}
