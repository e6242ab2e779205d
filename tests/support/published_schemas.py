"""Published schemas, cut down to what the deployment files use.

    python -m tests.support.published_schemas FOLDER

The folder holds, as they are published under the Apache License 2.0:

- the CRDs of KEDA and of the Spark Operator: `config/crd/bases/*.yaml` of kedacore/keda 2.20.2 and of
  kubeflow/spark-operator 2.5.2;
- `kubernetes_definitions.json`: `_definitions.json` of Kubernetes 1.33, in the package kubernetes-validate;
- `databricks_jobs.py` and `databricks_compute.py`: `databricks/sdk/service/*.py` of the package
  databricks-sdk 0.162.0.

Of each object all names of fields are kept, and the schemas of the fields that the deployment files use. A
field that they do not use may be anything.
"""

import ast
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.deployments import EVERYTHING, described, documents

FOLDER: Final = Path(__file__).with_name("schemas")
JOB: Final = "JobSettings"
_KEPT: Final = ("type", "enum", "required", "minimum", "maximum", "pattern", "minLength", "oneOf", "anyOf")
_METADATA: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_NOTE: Final = "{kind}, cut down by tests/support/published_schemas.py, which names the source; Apache-2.0"
_PLAIN: Final = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "bool": {"type": "boolean"},
    "float": {"type": "number"},
}


def kind_of(document: Mapping[str, Any]) -> str:
    """The kind of a document; a job of Databricks has none."""
    return str(document.get("kind", JOB))


def unchecked(schema: Any, value: Any, place: str = "") -> Iterator[str]:
    """Where a value has fields of which the cut-down schema says nothing."""
    if schema is True:
        yield place
    elif isinstance(value, dict):
        for key, inner in value.items():
            known = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
            if known not in (None, False):
                yield from unchecked(known, inner, f"{place}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from unchecked(schema.get("items", True), inner, f"{place}[]")


def _cut(schema: Mapping[str, Any], values: Sequence[Any], definitions: Mapping[str, Any]) -> Any:
    """A schema with what some values need of it; names that are not in it are refused."""
    while "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    kept = {key: schema[key] for key in _KEPT if key in schema}
    objects = [value for value in values if isinstance(value, dict)]
    if "properties" in schema:
        used = {
            name: [value[name] for value in objects if name in value] for name in sorted(schema["properties"])
        }
        kept["properties"] = {
            name: _cut(schema["properties"][name], found, definitions) if found else True
            for name, found in used.items()
        }
        kept["additionalProperties"] = False
    elif isinstance(schema.get("additionalProperties"), dict):
        inner = [each for value in objects for each in value.values()]
        kept["additionalProperties"] = _cut(schema["additionalProperties"], inner, definitions)
    if "items" in schema:
        inner = [each for value in values if isinstance(value, list) for each in value]
        kept["items"] = _cut(schema["items"], inner, definitions)
    return kept


def _crds(folder: Path) -> Iterator[tuple[str, Any]]:
    for path in sorted(folder.glob("*.yaml")):
        spec = yaml.safe_load(path.read_text())["spec"]
        schema = spec["versions"][0]["schema"]["openAPIV3Schema"]
        # The server checks this part of every object.
        schema["properties"]["metadata"] = {"$ref": _METADATA}
        yield spec["names"]["kind"], schema


def _kubernetes(definitions: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for schema in definitions.values():
        for each in schema.get("x-kubernetes-group-version-kind", ()):
            if each["version"] == "v1" and each["group"] in ("", "apps", "batch", "networking.k8s.io"):
                yield each["kind"], schema


def _databricks(folder: Path) -> dict[str, Any]:
    """The data classes of Databricks' client as definitions."""
    definitions: dict[str, Any] = {}
    for path in sorted(folder.glob("databricks_*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and node.name not in definitions:
                definitions[node.name] = _of_class(node)
    return definitions


def _of_class(node: ast.ClassDef) -> dict[str, Any]:
    fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
    if not fields:
        values = [ast.literal_eval(each.value) for each in node.body if isinstance(each, ast.Assign)]
        return {"type": "string", "enum": values} if values else {"type": "object"}
    names = {
        each.target.id: _of_type(each.annotation) for each in fields if isinstance(each.target, ast.Name)
    }
    needed = [each.target.id for each in fields if isinstance(each.target, ast.Name) and each.value is None]
    return {"type": "object", "properties": names, **({"required": needed} if needed else {})}


def _of_type(annotation: ast.expr) -> dict[str, Any]:
    match ast.unparse(annotation).replace("'", ""):
        case text if text.startswith("Optional["):
            return _of_type(ast.parse(text[9:-1], mode="eval").body)
        case text if text.startswith("List["):
            return {"type": "array", "items": _of_type(ast.parse(text[5:-1], mode="eval").body)}
        case text if text.startswith("Dict["):
            return {"type": "object", "additionalProperties": _PLAIN["str"]}
        case text if text in _PLAIN:
            return _PLAIN[text]
        case text:
            return {"$ref": text.rpartition(".")[2]}


def main(folder: Path) -> None:
    """Write the cut-down schemas."""
    definitions = json.loads((folder / "kubernetes_definitions.json").read_text())["$defs"]
    clients = _databricks(folder)
    schemas = {**dict(_kubernetes(definitions)), **dict(_crds(folder)), JOB: clients[JOB]}
    with tempfile.TemporaryDirectory() as place:
        used = [*documents(described()), *documents(described(Path(place), EVERYTHING))]
    FOLDER.mkdir(exist_ok=True)
    for kind in sorted({kind_of(each) for each in used}):
        of_kind = [each for each in used if kind_of(each) == kind]
        cut = _cut(schemas[kind], of_kind, {**definitions, **clients})
        noted = {"$comment": _NOTE.format(kind=kind), **cut}
        (FOLDER / f"{kind}.json").write_text(json.dumps(noted, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
