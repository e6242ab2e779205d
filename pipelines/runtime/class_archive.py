"""An archive of the classes that jobs load, so that a job's Java starts some ten seconds sooner.

Java maps the archive into memory instead of reading, checking and linking some twenty thousand classes each
time. It is Java's own class data sharing: https://openjdk.org/jeps/350. An archive is for one Java and one
class path; if there is none that fits, jobs start without it.
"""

import hashlib
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from pipelines.resources import home
from pipelines.runtime.java import Java

_CLASS_PATH: Final = "spark.driver.extraClassPath"
_OPTIONS: Final = "spark.driver.extraJavaOptions"


def archive_path(java: Java, jars: Sequence[Path]) -> Path:
    """Tell where the archive for a Java and a class path is kept; it need not exist.

    Args:
        java: The runtime.
        jars: What is on the class path beside Spark's own jars, in order.
    """
    release = java.home / "release"
    parts = [
        str(java.home.resolve()),
        release.read_text(encoding="utf-8") if release.exists() else str(java.executable.stat().st_mtime_ns),
        version("pyspark"),
        *(f"{jar} {jar.stat().st_size} {jar.stat().st_mtime_ns}" for jar in jars),
    ]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return home() / "classes" / f"{digest[:16]}.jsa"


def class_settings(java: Java, jars: Sequence[Path], settings: Mapping[str, str]) -> dict[str, str]:
    """Return Spark settings that put jars on a local session's class path and use the archive, if any.

    Args:
        java: The runtime.
        jars: The jars.
        settings: The session's other settings; a class path and options of Java in them are kept.
    """
    paths = [*map(str, jars), *filter(None, [settings.get(_CLASS_PATH)])]
    options = settings.get(_OPTIONS, "")
    archive = archive_path(java, jars)
    if archive.exists() and "-XX:ArchiveClassesAtExit" not in options:
        # Java would report an archive that does not fit on standard output, which is the summary's.
        options = f'"-XX:SharedArchiveFile={archive}" -Xlog:disable -Xlog:all=error:stderr {options}'.strip()
    return {_CLASS_PATH: ":".join(paths), **({_OPTIONS: options} if options else {})}
