"""The demo's bad contract: a limit that real flights break, fixed before the night."""

from pathlib import Path
from typing import Any

import yaml

from demo.replay import Plan

TOO_SHORT_MILES = 3000
"""Longer than any flight from New York to the mainland; Honolulu is 4,963 miles away."""


def write_strict_contract(sound: Path, folder: Path) -> None:
    """Write a contract as it may have been before somebody looked at the map.

    Args:
        sound: The contract that is right.
        folder: Where the stricter one goes, under the same name.
    """
    document: dict[str, Any] = yaml.safe_load(sound.read_text(encoding="utf-8"))
    document["version"] = "0.9.0"
    (distance,) = (item for item in document["schema"][0]["properties"] if item["name"] == "distance")
    distance["logicalTypeOptions"]["maximum"] = TOO_SHORT_MILES
    folder.mkdir(parents=True, exist_ok=True)
    (folder / sound.name).write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")


def refused(plan: Plan) -> int:
    """Count the records that the strict contract refuses and the right one takes.

    Args:
        plan: What is sent.

    Returns:
        Number of valid sends of flights that are too long for it, and come while it is in force.
    """
    flights = [send.flight for send in plan.before_first_night if send.flight is not None]
    return sum(flight.payload.distance > TOO_SHORT_MILES for flight in flights)
