"""`oncelake expectations`: the suites that contracts stand for, as files, without Spark."""

from pathlib import Path
from typing import Any

import click

from pipelines.cli.options import once, place_options
from pipelines.config.loader import load_config, require_pipelines
from pipelines.errors import ConfigError
from pipelines.expectations.suite_files import outdated_suites, write_suites
from pipelines.formats.contract_files import load_contract


@click.group()
def expectations() -> None:
    """Generate Great Expectations suites from contracts."""


@expectations.command()
@once("--pipeline", metavar="NAME", help="Pipeline, e.g. flights; default: all.")
@click.option("--check", is_flag=True, help="Write nothing; end with exit code 2 if a file is out of date.")
@place_options
def generate(pipeline: str | None, check: bool, **places: Any) -> None:
    """Update suites from their contracts; keep expectations that people added."""
    conf_dir, outdated = places["conf_dir"], list[Path]()
    for name in require_pipelines(conf_dir) if pipeline is None else [pipeline]:
        config = load_config(name, env=places["env"], conf_dir=conf_dir, settings=places["settings"])
        contract = load_contract(places["contracts_dir"] / config.contract)
        outdated += (outdated_suites if check else write_suites)(conf_dir, name, contract)
    if check and outdated:
        raise ConfigError(
            f"{', '.join(map(str, outdated))}: out of date with the contract;"
            " run `oncelake expectations generate`"
        )
    for path in outdated:
        click.echo(f"{path}: written")
    if not outdated:
        click.echo("all suites are up to date")
