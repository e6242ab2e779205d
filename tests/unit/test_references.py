"""What docstrings and comments name of the code is there: nobody is sent to a name of former times."""

import ast
import builtins
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from pipelines.config.model import PipelineConfig

ROOTS = ("benchmarks", "chaos", "demo", "jobs", "pipelines", "scripts", "simulation", "testbed", "tests")
FILES = sorted(path for root in ROOTS for path in Path(root).rglob("*.py"))
REFERENCE = re.compile(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)`")
CONSTANT = re.compile(r"[a-z_]\w*(\.[a-z_]\w*)*\.[A-Z][A-Z_\d]+")


def by_suffix() -> dict[str, list[Path]]:
    """The files by each name that an import could give them, from the last part to all of them."""
    found = defaultdict(list)
    for path in FILES:
        parts = path.parent.parts if path.name == "__init__.py" else path.with_suffix("").parts
        for at in range(len(parts)):
            found[".".join(parts[at:])].append(path)
    return found


MODULES = by_suffix()


@cache
def names_of(path: Path) -> frozenset[str]:
    """What a module defines or imports, and what its classes define."""
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.ImportFrom(names=names) | ast.Import(names=names):
                found |= {each.asname or each.name for each in names}
    return frozenset(found)


def is_of_the_code(reference: str) -> bool:
    """Whether it can be nothing else: settings, columns and files are written with dots as well."""
    first, *others = reference.split(".")
    if first in ROOTS:
        return True
    if CONSTANT.fullmatch(reference):
        return first not in PipelineConfig.model_fields
    is_function = len(others) == 1 and "_" in others[0] and first in MODULES
    return is_function and first not in PipelineConfig.model_fields


def is_there(reference: str) -> bool:
    """Whether a module has the name, by as much of its path as the reference gives."""
    parts = reference.split(".")
    if parts[0] in ROOTS and (Path(*parts).is_dir() or reference in MODULES):
        return True
    return any(
        set(parts[at:]) <= names_of(path)
        for at in range(1, len(parts))
        for path in MODULES.get(".".join(parts[:at]), ())
    )


@pytest.mark.parametrize("root", ROOTS)
def test_names_of_modules_and_of_what_they_define_lead_somewhere(root: str) -> None:
    stale = [
        f"{path}:{number}: {reference}"
        for path in FILES
        if path.parts[0] == root
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for reference in REFERENCE.findall(line)
        if is_of_the_code(reference) and not is_there(reference)
    ]
    assert stale == []


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ("pipelines.records.dedup.winners", (True, True)),
        ("pipelines.records.dedup.losers", (True, False)),
        ("pipelines.records.nowhere", (True, False)),
        ("ledger.ops_tables.SAMPLE", (True, True)),
        ("catalog.BRONZE_INDEX", (True, False)),
        ("dedup.with_key_columns", (True, True)),
        ("dedup.with_columns", (True, False)),
        ("maintain.vacuum_after", (False, False)),
        ("conf.xml", (False, False)),
    ],
)
def test_what_is_a_reference_and_where_it_leads(reference: str, found: tuple[bool, bool]) -> None:
    is_reference, leads = found
    assert is_of_the_code(reference) is is_reference
    assert not is_reference or is_there(reference) is leads


@cache
def known_errors() -> frozenset[str]:
    """Names that may be an error's: of builtins, of our classes and constants, and of what is imported."""
    of_others = {
        node.attr
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
    }
    return frozenset({*dir(builtins), *of_others}.union(*map(names_of, FILES)))


def errors_of(docstring: str) -> list[str]:
    """The errors of `Raises:`, whether an entry has one, several, or `One of` a constant."""
    _, _, section = docstring.partition("\nRaises:\n")
    entries = re.findall(r"(?m)^    (\S[^:\n]*):", section.partition("\n\n")[0])
    return [name.removeprefix("One of ").strip("`") for entry in entries for name in entry.split(", ")]


@pytest.mark.patient
@pytest.mark.parametrize("root", ROOTS)
def test_each_error_that_a_docstring_says_is_raised_exists(root: str) -> None:
    stale = [
        f"{path}:{node.lineno}: {name}"
        for path in FILES
        if path.parts[0] == root
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        for name in errors_of(ast.get_docstring(node) or "")
        if name not in known_errors()
    ]
    assert stale == []
