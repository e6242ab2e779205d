"""Why Oncelake's own state store cannot be used is told in words."""

from types import SimpleNamespace
from typing import Any

import pytest

from pipelines.spark.state_store import missing


class _Package:
    """What py4j gives for a class that is not there."""

    def __getattr__(self, name: str) -> "_Package":
        return _Package()


def session(version: str, package: Any) -> Any:
    return SimpleNamespace(version=version, sparkContext=SimpleNamespace(_jvm=package))


def saying(answer: str) -> Any:
    capability = SimpleNamespace(missing=lambda: answer)
    return SimpleNamespace(oncelake=SimpleNamespace(state=SimpleNamespace(Capability=capability)))


@pytest.mark.parametrize(
    ("version", "package", "why"),
    [
        ("4.3.0", saying(""), "Oncelake's is made for Spark 4.2.*, and this is 4.3.0"),
        ("4.2.0", _Package(), "add --jars $(oncelake jars --list)"),
        ("4.2.1", saying("its StateStore has a method that is not known: x"), "is not known: x"),
    ],
)
def test_missing_spark_capability_is_reported(version: str, package: Any, why: str) -> None:
    told = missing(session(version, package))
    assert told is not None
    assert why in told


def test_a_spark_that_has_everything_lacks_nothing() -> None:
    assert missing(session("4.2.1", saying(""))) is None
