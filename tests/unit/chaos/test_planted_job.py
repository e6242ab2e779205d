"""Each fault of the jobs has names to take the place of, and is described."""

from importlib import import_module

import pytest

from chaos.planted import PATCHED
from chaos.planted_job import PATCHES


def test_each_fault_is_described() -> None:
    assert set(PATCHES) == set(PATCHED)


@pytest.mark.parametrize("name", sorted(PATCHES))
def test_what_a_fault_replaces_is_there(name: str) -> None:
    for place in PATCHES[name].where:
        owner, _, replaced = place.rpartition(".")
        package, _, part = owner.rpartition(".")
        try:
            there = import_module(owner)
        except ModuleNotFoundError:
            there = getattr(import_module(package), part)
        assert hasattr(there, replaced)
