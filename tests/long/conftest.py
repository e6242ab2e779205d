"""The environment of schedulers that `make test-long` makes."""

from pathlib import Path

import pytest

ENVIRONMENT = Path(__file__).resolve().parents[2] / ".venv-schedulers"


@pytest.fixture(scope="session")
def schedulers() -> Path:
    """The folder of its programs."""
    if not (ENVIRONMENT / "bin/airflow").exists():
        pytest.fail(f"there is no {ENVIRONMENT.name}: run these tests by make test-long")
    return ENVIRONMENT / "bin"
