"""What the registry answers is kept also if it fails midway, and its failure is what is told."""

from collections.abc import Mapping
from typing import Any
from unittest.mock import Mock

import pytest

from pipelines.errors import InfrastructureError
from pipelines.ledger import schema_lookup
from pipelines.ledger.schema_lookup import learn
from pipelines.ledger.writer_schemas import UNKNOWN
from pipelines.registry.wire_format import WriterSchema


class Registry:
    """Has no schema, and does not answer from id 2 on."""

    def schema(self, schema_id: str) -> None:
        if int(schema_id) > 1:
            raise InfrastructureError("the registry does not answer")


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> dict[str, WriterSchema]:
    """What the lake has; a registry that fails at the second question is asked."""
    lake = dict[str, WriterSchema]()

    def keep(pipeline: Any, schemas: Mapping[str, WriterSchema]) -> None:
        lake.update(schemas)

    monkeypatch.setattr(schema_lookup, "registry_of", Mock())
    monkeypatch.setattr(schema_lookup, "open_registry", lambda _: Registry())
    monkeypatch.setattr(schema_lookup, "kept_schemas", lambda _: lake)
    monkeypatch.setattr(schema_lookup, "keep", keep)
    return lake


def test_answers_before_a_failure_of_the_registry_are_kept(kept: dict[str, WriterSchema]) -> None:
    with pytest.raises(InfrastructureError, match="the registry does not answer"):
        learn(Mock(), ["1", "2"])
    assert kept == {"1": WriterSchema("1", UNKNOWN, "")}


def test_a_lake_that_takes_nothing_does_not_hide_why_the_registry_fails(
    kept: dict[str, WriterSchema], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(schema_lookup, "kept_schemas", Mock(side_effect=RuntimeError("no space left")))
    with pytest.raises(InfrastructureError, match="the registry does not answer"):
        learn(Mock(), ["1", "2"])
    assert "what the registry answered is not kept: no space left" in caplog.text
    assert kept == {}
