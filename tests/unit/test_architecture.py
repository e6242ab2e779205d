"""Imports go one way, and modules and functions stay small enough to be read."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ORDER = {
    "cli": 4,
    "layers": 3,
    "session": 2,
    "sources": 1,
    "sinks": 1,
    "avro_schemas": 1,
    "corrections": 1,
    "decode": 1,
    "dedup": 1,
    "documents": 1,
    "exact_keys": 1,
    "faults": 1,
    "messages": 1,
    "quality": 1,
    "watermark": 1,
    "ops": 1,
    "avro_text": 0,
    "condition_text": 0,
    "contract": 0,
    "contract_change": 0,
    "contract_custom": 0,
    "contract_diff": 0,
    "contract_document": 0,
    "contract_quality": 0,
    "contract_fit": 0,
    "contract_rule_diff": 0,
    "contract_rules": 0,
    "contract_types": 0,
    "decimals": 0,
    "evolution": 0,
    "json_schema_columns": 0,
    "json_types": 0,
    "registry_columns": 0,
    "payloads": 0,
    "schema_paths": 0,
    "sql_text": 0,
    "wire": 0,
    "config": 0,
    "commands": 0,
    "config_audit": 0,
    "config_maintain": 0,
    "config_publish": 0,
    "config_speed": 0,
    "config_values": 0,
    "config_files": 0,
    "errors": 0,
    "intervals": 0,
    "resources": 0,
    "yaml_files": 0,
}
CODE = ("pipelines", "jobs", "demo", "benchmarks", "scripts")
MODULES = sorted(Path("pipelines").rglob("*.py"))


def part(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("pipelines"):
            yield from (
                [f"{node.module}.{name.name}" for name in node.names]
                if node.module in ("pipelines", "pipelines.layers")
                else [node.module]
            )
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.startswith("pipelines."))


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_imports_go_one_way(path: Path) -> None:
    here = part(".".join(path.with_suffix("").parts))
    if here in ("", "__init__"):
        return
    for module in imports(path):
        there = part(module)
        if there == "__version__":
            continue
        assert ORDER[there] <= ORDER[here], f"{path} imports {module}"
        if here == there == "layers":
            pytest.fail(f"{path} imports {module}: layers meet only in tables")


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_a_module_can_be_read_in_one_go(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 500


def lines_of_functions(path: Path) -> Iterator[tuple[str, int]]:
    """The lines of each function, from `def` to its last, the docstring among them."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


# Not those of tests, which may tell a longer story.
@pytest.mark.parametrize("path", sorted(path for name in CODE for path in Path(name).rglob("*.py")), ids=str)
def test_a_function_can_be_read_at_a_glance(path: Path) -> None:
    assert {name: lines for name, lines in lines_of_functions(path) if lines > 50} == {}


@pytest.mark.parametrize("path", sorted(Path("jobs").glob("*.py")), ids=str)
def test_a_job_is_a_thin_entry_point(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 30
