"""All that is fuzzed, and the inputs that once failed."""

from pathlib import Path
from typing import Final

from tests.fuzz import people, registries, state
from tests.fuzz.target import Target

TARGETS: Final[dict[str, Target]] = {**people.TARGETS, **state.TARGETS, **registries.TARGETS}

CORPUS: Final = Path(__file__).parent / "corpus"
"""A folder for each target; a file for each input that once failed, named after what was wrong."""
