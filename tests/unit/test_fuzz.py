"""A text from people, from a registry or from a damaged file is read as what it says, or refused in words.

`make fuzz` tries more of it.
"""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz.targets import CORPUS, TARGETS

pytestmark = pytest.mark.patient

# Slow ones get fewer, so that all together take some seconds.
EXAMPLES = {"yaml": 20, "contract": 30, "configuration": 50, "answer": 15}
ONE_OF = {"contract": 16, "configuration": 9, "answer": 60, "yaml": 200}
VALUES: tuple[Any, ...] = (None, True, 0, -1, 0.5, "", "yes", "\0", [], {}, 10**400)


@pytest.mark.parametrize("name", TARGETS)
def test_any_text_is_read_as_what_it_says_or_refused(name: str) -> None:
    @settings(
        max_examples=EXAMPLES.get(name, 150),
        database=None,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(TARGETS[name].inputs)
    def play(raw: bytes) -> None:
        TARGETS[name].check(raw)

    play()


@pytest.mark.parametrize("name", [name for name, target in TARGETS.items() if target.documents])
def test_a_document_of_which_one_part_is_another_is_read_as_what_it_says_or_refused(name: str) -> None:
    for raw in TARGETS[name].cases(VALUES, ONE_OF.get(name, 1)):
        TARGETS[name].check(raw)


@pytest.mark.parametrize(
    "path", sorted(CORPUS.glob("*/*")), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_what_once_failed_is_read_or_refused(path: Path) -> None:
    TARGETS[path.parent.name].check(path.read_bytes())
