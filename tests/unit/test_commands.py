"""Commands in messages can be copied: they name the pipeline and its environment."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click

from pipelines.cli.app import oncelake
from tests.support.click_groups import commands_in

ROOT = Path(__file__).resolve().parents[2]


def of_a_pipeline(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[str]:
    """The commands that take `--pipeline`, as they are called."""
    if any("--pipeline" in option.opts for option in command.params):
        yield " ".join(words)
    if isinstance(command, click.Group):
        for name, inner in commands_in(command).items():
            yield from of_a_pipeline(inner, (*words, name))


def bare() -> re.Pattern[str]:
    """What names such a command, and not the pipeline."""
    names = sorted({*of_a_pipeline(oncelake), "publish"}, key=len, reverse=True)
    called, jobs = "|".join(names), "|".join(name for name in names if "_" in name)
    return re.compile(rf"\b(?:{called}) --(?!pipeline)|\b(?:run|by|with) (?:{jobs})\b")


def no_messages(tree: ast.AST) -> set[int]:
    """Nodes that are docstrings, words of click's help, or parts of a longer text."""
    found = set[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            found.add(id(node.value))
        elif isinstance(node, ast.keyword) and node.arg in {"help", "epilog", "short_help"}:
            found |= {id(inner) for inner in ast.walk(node.value)}
        elif isinstance(node, ast.JoinedStr):
            found |= {id(part) for part in node.values}
    return found


def literals(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of a module as they are said, each with `…` where a value is put in."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    passed_over = no_messages(tree)
    for node in ast.walk(tree):
        if id(node) in passed_over:
            continue
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def test_every_command_in_a_message_names_its_pipeline() -> None:
    wanted, found = bare(), list[str]()
    for path in sorted((ROOT / "pipelines").rglob("*.py")):
        module = str(path.relative_to(ROOT))
        found += [f"{module}:{line}: {said}" for line, said in literals(path) if wanted.search(said)]
    assert not found, "\n".join(["go through `command`:", *found])
