"""What the registry answers is kept also if it fails midway, and its failure is what is told."""

from collections.abc import Mapping
from typing import Any
from unittest.mock import Mock

import pytest

from pipelines.errors import InfrastructureError, SourceError
from pipelines.ledger import schema_lookup
from pipelines.ledger.schema_lookup import learn
from pipelines.ledger.writer_schemas import UNKNOWN, require_same
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
    monkeypatch.setattr(schema_lookup, "kept_elsewhere", lambda _: {})
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


def test_an_id_that_names_another_schema_in_another_registry_is_refused() -> None:
    old = '{"type": "record", "fields": [{"name": "a", "type": "int"}]}'
    same = '{"fields":[{"type":"int","name":"a"}],"type":"record"}'
    require_same(WriterSchema("7", "AVRO", same), "http://new", {"http://old": old})
    require_same(WriterSchema("7", "AVRO", same), "http://new", {})
    require_same(WriterSchema("7", "PROTOBUF", "syntax"), "http://new", {"http://old": "syntax"})
    said = (
        r"registry.url: http://new: its schema with the id 7 is another one than the lake keeps from"
        r" http://old, .* Set registry.url to http://old again"
    )
    for other in (same.replace("int", "long"), "syntax", "[" * 100_000):
        with pytest.raises(SourceError, match=said):
            require_same(WriterSchema("7", "AVRO", other), "http://new", {"http://old": old})
