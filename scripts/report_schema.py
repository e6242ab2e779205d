"""Write docs/report.schema.json, the shape of a report's JSON: `make pages`."""

from pathlib import Path

from pipelines.report.model.json_schema import SCHEMA, schema_text

if __name__ == "__main__":
    (Path(__file__).resolve().parent.parent / SCHEMA).write_text(schema_text(), encoding="utf-8")
