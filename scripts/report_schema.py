"""Write docs/report.schema.json, the shape of a report's JSON, made from the models: `make pages`."""

import json
import re
from pathlib import Path
from typing import Any, Final

from pipelines.report.model.report import ReportData

SCHEMA: Final = "docs/report.schema.json"
"""Where the repository keeps it."""

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_ATTRIBUTE: Final = re.compile(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)


def schema_text() -> str:
    """Return the schema as indented JSON with a final newline; each field is described as in its model."""
    schema = ReportData.model_json_schema(mode="serialization")
    for part in (schema, *schema["$defs"].values()):
        _describe_fields(part)
    return json.dumps({"$schema": _DIALECT, **schema}, indent=2, ensure_ascii=False) + "\n"


def _describe_fields(part: dict[str, Any]) -> None:
    """Move what a model's docstring says of its attributes to the fields of these names."""
    part["description"], _, attributes = part["description"].partition("\n\nAttributes:\n")
    for name, text in _ATTRIBUTE.findall(attributes):
        part["properties"][name]["description"] = " ".join(text.split())


if __name__ == "__main__":
    (Path(__file__).resolve().parent.parent / SCHEMA).write_text(schema_text(), encoding="utf-8")
