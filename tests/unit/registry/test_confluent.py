"""What a registry answers is taken apart, and what is no registry's answer is told from silence."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from pipelines.config.model import RegistryConfig
from pipelines.errors import ConfigError, InfrastructureError
from pipelines.formats.schema_columns import columns_of
from pipelines.registry.avro_references import inlined
from pipelines.registry.confluent import ConfluentRegistry
from pipelines.registry.wire_format import WriterSchema


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields.items()]}


COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED"]}
ITEM = {**record("Item", colour=COLOUR, next=["null", "int"]), "namespace": "shop"}
HOLDS = "struct<colour:string,next:int>"


def answer(text: str, *references: str) -> str:
    listed = [{"name": name, "subject": name, "version": 1} for name in references]
    return json.dumps({"subject": "s", "version": 1, "id": 1, "schema": text, "references": listed})


ANSWERS = {
    "page": "<html>Please log in</html>",
    "empty": "",
    "list": "[]",
    "no-schema": json.dumps({"subject": "s", "version": 1, "id": 1}),
    "no-text": json.dumps({"subject": "s", "version": 1, "id": 1, "schema": {"type": "string"}}),
    "empty-text": answer(""),
    "circle": answer(json.dumps(record("A", x="int")), "circle", "other"),
    "other": answer(json.dumps(record("B", x="int")), "circle"),
    "broken": answer(json.dumps(record("A", x="int")), "no-json"),
    "no-json": answer("{"),
}


class Answers(BaseHTTPRequestHandler):
    asked: list[str]
    knows_ids: bool

    def do_GET(self) -> None:
        _, _, subject, rest = self.path.split("/", 3)
        self.asked.append(subject)
        if subject != "ids":
            self._send(200, ANSWERS[subject])
        elif self.knows_ids and int(rest.partition("?")[0]) < 2**31:
            self._send(404, json.dumps({"error_code": 40403, "message": "Schema not found"}))
        else:
            self._send(404, "<html>Not Found</html>")

    def _send(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: Any = "", size: Any = "") -> None:
        pass


@pytest.fixture
def registry() -> Iterator[ConfluentRegistry]:
    Answers.asked = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield ConfluentRegistry(RegistryConfig(url=f"http://127.0.0.1:{server.server_address[1]}"))
        server.shutdown()


@pytest.mark.parametrize("subject", ["page", "empty", "list", "no-schema", "no-text", "empty-text"])
def test_an_answer_that_is_no_registry_s_is_told_from_silence(
    registry: ConfluentRegistry, subject: str
) -> None:
    with pytest.raises(InfrastructureError, match="answers, but not as a registry does; is it a page to log"):
        registry.latest(subject)
    assert Answers.asked == [subject]


@pytest.mark.parametrize("number", [7, 2**32 - 1])
def test_only_a_registry_can_say_that_a_schema_is_not_there(registry: ConfluentRegistry, number: int) -> None:
    Answers.knows_ids = True
    assert registry.schema(str(number)) is None
    Answers.knows_ids = False
    with pytest.raises(InfrastructureError, match="answers 404"):
        registry.schema(str(number))


def test_a_circle_of_references_is_asked_once(registry: ConfluentRegistry) -> None:
    found = registry.latest("circle")
    assert found
    assert columns_of(found).simpleString() == "struct<x:int>"
    assert sorted(Answers.asked) == ["circle", "circle", "other"], "the newest, and both by their versions"


def test_a_reference_to_what_is_no_schema_ends_nothing(registry: ConfluentRegistry) -> None:
    found = registry.latest("broken")
    assert found
    assert found.text == json.dumps(record("A", x="int"))


@pytest.mark.parametrize(
    ("fields", "definitions", "expected"),
    [
        ({"i": "shop.Item"}, {"shop.Item": ITEM}, f"i:{HOLDS}"),
        ({"i": "Item"}, {"shop.Item": ITEM}, f"i:{HOLDS}"),
        ({"i": "Item", "j": ["null", "Item"]}, {"shop.Item": ITEM}, f"i:{HOLDS},j:{HOLDS}"),
        ({"c": "shop.Colour", "i": "Item"}, {"shop.Item": ITEM}, f"c:string,i:{HOLDS}"),
        ({"i": "Item", "c": "Colour"}, {"shop.Item": ITEM}, f"i:{HOLDS},c:string"),
        ({"i": "Item"}, {"a label": ITEM}, f"i:{HOLDS}"),
        ({"i": "Item"}, {"shop.Item": ["null", ITEM]}, f"i:{HOLDS}"),
        ({"i": "Item", "j": "Item"}, {"shop.Item": {**ITEM, "namespace": None}}, f"i:{HOLDS},j:{HOLDS}"),
        ({"c": {**COLOUR, "namespace": None}, "d": "Colour"}, {}, "c:string,d:string"),
        ({"c": COLOUR, "d": "Colour"}, {"shop.Item": ITEM}, "c:string,d:string"),
        (
            {"i": "Item", "j": "other.Item", "k": {"type": "map", "values": "Plain"}},
            {
                "Item": record("Item", x="int"),
                "shop.Item": record("Item", y="int"),
                "other.Item": record("Item", z="int"),
                "Plain": record("Plain", p="Item"),
            },
            "i:struct<y:int>,j:struct<z:int>,k:map<string,struct<p:struct<x:int>>>",
        ),
    ],
)
def test_types_of_other_schemas_are_defined_where_they_are_first_named(
    fields: dict[str, Any], definitions: dict[str, Any], expected: str
) -> None:
    whole = inlined({**record("Whole", **fields), "namespace": "shop"}, definitions)
    assert columns_of(WriterSchema("1", "AVRO", json.dumps(whole))).simpleString() == f"struct<{expected}>"


def test_options_that_the_client_wants_as_numbers_may_be_set() -> None:
    options = {"max.retries": "1", "retries.wait.ms": "1", "retries.max.wait.ms": "1"}
    nobody = ConfluentRegistry(RegistryConfig(url="http://127.0.0.1:9", options=options))
    with pytest.raises(InfrastructureError, match="does not answer after 2 tries"):
        nobody.schema("1")
    with pytest.raises(
        ConfigError, match=r"registry\.options\.max\.retries: expected a whole number, got 'x'"
    ):
        ConfluentRegistry(RegistryConfig(url="http://127.0.0.1:9", options={"max.retries": "x"}))
