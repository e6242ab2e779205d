"""Imports go one way, and modules and functions stay small enough to be read."""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

CODE = ("pipelines", "jobs", "demo", "benchmarks", "simulation", "chaos", "testbed", "scripts")
MODULES = sorted(Path("pipelines").rglob("*.py"))
BY_PACKAGE = ("unit", "spark", "integration")
# By these a module reaches another one without a word that the linter reads.
BY_NAME = {"import_module", "__import__", "run_module", "run_path", "spec_from_file_location", "resolve_name"}


def test_imports_go_one_way() -> None:
    """The order of the packages is in pyproject.toml; nothing is excepted from it."""
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter, "--no-cache", "--no-logo"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_no_file_leads_back_to_itself() -> None:
    """Also not by way of its package, which the linter does not take for its sibling."""
    linter = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["importlinter"]
    graph = grimp.build_graph(*linter["root_packages"], cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(reversed(error.args[1])))


def names_in(path: Path) -> set[str]:
    """Every name that a file uses, or takes from another."""
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                found.add(name)
    return found


def test_modules_are_named_where_they_are_imported() -> None:
    """Commands alone are imported by name, and all of them from `pipelines.cli`, which is above all."""
    assert {str(path) for path in MODULES if names_in(path) & BY_NAME} == {"pipelines/cli/app.py"}


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


@pytest.mark.parametrize("needs", BY_PACKAGE)
def test_a_test_lies_under_the_package_that_it_tests(needs: str) -> None:
    """Or under another folder of the repository, such as `demo` and `jvm`, or above them all."""
    there = Path("tests", needs)
    folders = {path.parent.relative_to(there) for path in there.rglob("test_*.py")} - {Path()}
    assert len(folders) > 1
    assert {name for name in folders if not Path("pipelines", name).is_dir() and not name.is_dir()} == set()
