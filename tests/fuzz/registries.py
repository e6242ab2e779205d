"""Schemas, and answers of a registry that may be none."""

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, ClassVar, Final

from hypothesis import strategies as st

from pipelines.config.model import RegistryConfig
from pipelines.errors import ContractError, InfrastructureError
from pipelines.formats.avro_to_json import as_json as json_of_avro
from pipelines.formats.avro_to_json import as_read, has_broken_text
from pipelines.formats.registered_formats import FORMATS
from pipelines.formats.schema_columns import columns_of
from pipelines.registry.avro_references import inlined
from pipelines.registry.confluent import ConfluentRegistry
from pipelines.registry.wire_format import WriterSchema
from tests.fuzz.target import Target, require_told

AVRO: Final = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "Id", "type": ["null", "long"], "default": None},
        {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}},
        {"name": "next", "type": ["null", "Colour", "string", {"type": "array", "items": "shop.Colour"}]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "time", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "tags", "type": {"type": "map", "values": ["int", "long"]}},
    ],
}
OF_JSON: Final = {
    "$id": "http://x/order.json",
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer", "minimum": 0, "maximum": 10**9},
        "item": {"$ref": "#/$defs/item"},
        "at": {"type": ["string", "null"], "format": "date-time"},
        "list": {"type": "array", "items": {"oneOf": [{"type": "null"}, {"$ref": "#/$defs/item"}]}},
        "any": {"allOf": [{"required": ["a"], "properties": {"a": {"enum": [None, 1]}}}]},
    },
    "$defs": {"item": {"$anchor": "item", "type": "object", "properties": {"next": {"$ref": "#item"}}}},
}
ANSWER: Final = {
    "subject": "s",
    "version": 1,
    "id": 7,
    "schemaType": "AVRO",
    "schema": json.dumps(AVRO),
    "references": [{"name": "other.Part", "subject": "s", "version": 1}],
}
_NOT_READABLE: Final = (ValueError, TypeError, AttributeError, RecursionError)
"""What `ValueFormat.require_readable` says that it raises, besides what Spark does."""


def check_schema(raw: bytes) -> None:
    text = raw.decode("utf-8", "replace")
    for kind in (*(each.schema_kind for each in FORMATS.values() if each.schema_kind), "OF_NO_FORMAT"):
        try:
            columns_of(WriterSchema("7", kind, text)).simpleString()
        except ContractError as refusal:
            require_told(refusal, "schema 7 of the registry")
    try:
        sql = as_read(text, "_value"), json_of_avro(text, "_r"), has_broken_text(text, "_r", "_t")
    except _NOT_READABLE:
        return
    assert all(sql)


def check_reference(raw: bytes) -> None:
    try:
        schema = json.loads(raw)
    except (ValueError, RecursionError):
        return
    for whole, definitions in ((schema, {"shop.Colour": AVRO}), (AVRO, {"shop.Order": schema, "x": schema})):
        try:
            found = inlined(whole, definitions)
        except (*_NOT_READABLE, KeyError):
            continue
        assert json.dumps(found)


class _Answers(BaseHTTPRequestHandler):
    answer: ClassVar[bytes] = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.answer)))
        self.end_headers()
        self.wfile.write(self.answer)

    def log_request(self, code: Any = "", size: Any = "") -> None:
        pass


_ASKS: Final[tuple[Callable[[ConfluentRegistry], WriterSchema | None], ...]] = (
    lambda registry: registry.schema("7"),
    lambda registry: registry.latest("s"),
)


def check_answer(raw: bytes) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Answers", (_Answers,), {"answer": raw})) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.001}, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        registry = ConfluentRegistry(RegistryConfig(url=address))
        for ask in _ASKS:
            try:
                schema = ask(registry)
            except InfrastructureError as refusal:
                require_told(refusal, "registry.url: ")
                continue
            assert schema is None or all(isinstance(part, str) for part in (schema.kind, schema.text))
            assert schema is None or schema.id.isdecimal()
        server.shutdown()


TARGETS: Final = {
    "schema": Target(check_schema, [AVRO, OF_JSON]),
    "reference": Target(check_reference, [AVRO]),
    "answer": Target(check_answer, [ANSWER], texts=st.just(b"<html>")),
}
