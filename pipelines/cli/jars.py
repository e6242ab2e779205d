"""`oncelake jars`: fetch the jars ahead of time, and name them for spark-submit."""

from typing import Final

import click

from pipelines.runtime.jars import Use, ensure_jars, jars_folder
from pipelines.runtime.own_jar import own_jar, spark_jars

_FETCHED: Final[tuple[Use, ...]] = ("spark", "broker")
_S3: Final[tuple[Use, ...]] = ("s3",)


@click.command()
@click.option(
    "--list", "as_list", is_flag=True, help="Print Spark's jars, comma-separated, for spark-submit --jars."
)
@click.option("--s3", is_flag=True, help="Include the jars for a lake on s3a://.")
def jars(as_list: bool, s3: bool) -> None:
    """Download and verify the jars.

    These are the jars that Spark and the local broker need.
    """
    if as_list:
        click.echo(",".join(map(str, spark_jars(s3=s3))))
        return
    for use in (*_FETCHED, *_S3) if s3 else _FETCHED:
        paths = ensure_jars(use)
        megabytes = sum(path.stat().st_size for path in paths) / 1e6
        click.echo(f"{use}: {len(paths)} jars, {megabytes:.0f} MB, checked, in {jars_folder(use)}")
    click.echo(f"Oncelake's own classes: {own_jar()}")
