"""`oncelake contract`: check contracts, and say what a change of one breaks, without Spark."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

import click

from pipelines.cli.contract_git import gone, in_use
from pipelines.cli.contract_registry import REGISTRY, against_producers, refuse_half
from pipelines.cli.options import once, place_options
from pipelines.cli.terminal import harmless
from pipelines.contracts.diff import BOTH, Change, contract_changes
from pipelines.errors import ConfigError, ContractError
from pipelines.formats.contract_files import load_contract

_FILE: Final = click.Path(dir_okay=False, path_type=Path)
_FOLDER: Final = Path("data_contracts")
_format = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Output format.",
)
Form = Literal["text", "json"]


@click.group()
def contract() -> None:
    """Check data contracts, and compare their versions."""


@contract.command()
@click.argument("files", nargs=-1, type=_FILE)
def lint(files: tuple[Path, ...]) -> None:
    """Check contract files; default: all in data_contracts."""
    for path in _or_all(files):
        valid = load_contract(path)
        said = f"{path}: valid: {valid.id} {valid.version}, key {', '.join(valid.key)}"
        click.echo(harmless(said))


@contract.command()
@click.argument("old", type=_FILE)
@click.argument("new", type=_FILE)
@_format
def diff(old: Path, new: Path, form: Form) -> None:
    """Show what changes from contract OLD to NEW, and whom each change breaks."""
    changes = contract_changes(load_contract(old), load_contract(new))
    _show(changes, str(new), form)


@contract.command()
@click.argument("files", nargs=-1, type=_FILE)
@click.option(
    "--against",
    required=True,
    metavar="GITREF|FILE|registry",
    help="Contract in use: a git revision, a file, or `registry` for the schema that producers registered.",
)
@once("--pipeline", metavar="NAME", help="With --against registry: the pipeline, e.g. flights.")
@place_options
@_format
@click.pass_context
def check(
    context: click.Context, /, files: tuple[Path, ...], against: str, form: Form, **pipeline: Any
) -> None:
    """Check that contracts are compatible with those in use.

    FILES are the contracts to check. Default: all in data_contracts. A breaking change ends with exit code 2.
    """
    refuse_half(context, against)
    broken = []
    compared = (
        [against_producers(files, **pipeline)]
        if against == REGISTRY
        else _against_contracts(files, against, form)
    )
    for path, changes in compared:
        _show(changes, str(path), form)
        broken += [f"{path}: {change.place}: {change.what}" for change in changes if change.is_breaking]
    if broken:
        raise ContractError(
            "\n".join(broken) + f"\nexpected no breaking change against {against}: keep what was promised,"
            " or see docs/runbook.md, 'A breaking change of a contract'"
        )


def _against_contracts(
    files: tuple[Path, ...], against: str, form: Form
) -> Iterator[tuple[Path, list[Change]]]:
    paths, ids = _or_all(files), set()
    for path in paths:
        new = load_contract(path)
        ids.add(new.id)
        old = in_use(path, new.id, against)
        if not old and form == "text":
            click.echo(f"{path}: new contract; {against} does not have it")
        yield path, contract_changes(old, new) if old else []
    # Files that were named need not be all that there are.
    for path in gone(_FOLDER, ids, against) if not files else []:
        what = "removed: no pipeline can read the topic with it, and its tables get no more rows"
        yield path, [Change("contract", what, BOTH)]


def _or_all(files: tuple[Path, ...]) -> list[Path]:
    paths = list(files) or sorted(_FOLDER.glob("*.odcs.yaml"))
    if not paths:
        raise ConfigError(
            f"{_FOLDER}: found no contract (*.odcs.yaml); name files, or run this in the project's folder"
        )
    return paths


def _show(changes: list[Change], name: str, form: Form) -> None:
    if form == "json":
        listed = [
            {"place": c.place, "what": c.what, "verdict": _verdict(c), "breaks": list(c.breaks)}
            for c in changes
        ]
        breaking = sum(change.is_breaking for change in changes)
        click.echo(json.dumps({"contract": name, "breaking": breaking, "changes": listed}))
        return
    if not changes:
        click.echo(f"{name}: no relevant change")
    for change in changes:
        for_whom = f" for {' and '.join(change.breaks)}" if change.breaks else ""
        click.echo(harmless(f"{name}: {_verdict(change)}{for_whom}: {change.place}: {change.what}"))


def _verdict(change: Change) -> str:
    return "breaking" if change.is_breaking else "compatible"
