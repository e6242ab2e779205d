"""`oncelake jars`: fetch the jars ahead of time, and name them for spark-submit."""

import click

from pipelines.ops.jars import USES, ensure_jars, jars_folder


@click.command()
@click.option(
    "--list", "as_list", is_flag=True, help="Print Spark's jars, comma-separated, for spark-submit --jars."
)
def jars(as_list: bool) -> None:
    """Fetch the jars that Spark and the embedded broker need, unless they are there, and check them."""
    if as_list:
        click.echo(",".join(map(str, ensure_jars("spark"))))
        return
    for use in USES:
        paths = ensure_jars(use)
        megabytes = sum(path.stat().st_size for path in paths) / 1e6
        click.echo(f"{use}: {len(paths)} jars, {megabytes:.0f} MB, checked, in {jars_folder(use)}")
