"""Writes what a report is made into: each file complete or not at all."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from pipelines.errors import InfrastructureError
from pipelines.report.model.report import ReportData
from pipelines.report.render.index import INDEX, entries, render_index
from pipelines.report.render.markdown import render_markdown

ReportFormat: TypeAlias = Literal["html", "markdown", "json"]
FORMATS: tuple[ReportFormat, ...] = get_args(ReportFormat)


def render_json(data: ReportData) -> str:
    """Render the report as JSON, in the structure of ``ReportData``.

    Args:
        data: the report.

    Returns:
        Indented JSON with a final newline; ``ReportData.model_validate_json`` reads it back.
    """
    return data.model_dump_json(indent=2) + "\n"


def write_report(data: ReportData, out: Path, report_format: ReportFormat = "html") -> dict[str, Path]:
    """Write a report in one of its formats.

    Args:
        data: the report.
        out: folder; made if it is not there.
        report_format: ``html`` writes ``PIPELINE-DAY.html``, the figures beside it, and recreates the index
            of the folder; ``json`` the figures alone, as ``PIPELINE-DAY.json``; ``markdown``
            ``PIPELINE-DAY.md``.

    Returns:
        The files by sort: ``html``, ``json``, ``index``, ``markdown``.

    Raises:
        InfrastructureError: the folder cannot be made or written.
    """
    stem = f"{data.pipeline}-{data.day.isoformat()}"
    match report_format:
        case "markdown":
            contents = {"markdown": (f"{stem}.md", render_markdown(data))}
        case "json":
            contents = {"json": (f"{stem}.json", render_json(data))}
        case "html":
            # The chart libraries take over a second to import, which the other formats need not wait for.
            from pipelines.report.render.html_page import render_html

            contents = {
                "html": (f"{stem}.html", render_html(data)),
                "json": (f"{stem}.json", render_json(data)),
            }
    what = f"report of {data.pipeline} {data.day}"
    written = write_files(out, dict(contents.values()), what)
    files = dict(zip(contents, written, strict=True))
    return {**files, "index": write_index(out)} if report_format == "html" else files


def write_index(out: Path) -> Path:
    """Write ``index.html`` over all reports whose JSON files lie in a folder.

    Args:
        out: the folder; made if it is not there.

    Raises:
        InfrastructureError: the folder cannot be made or written.
    """
    (path,) = write_files(out, {INDEX: render_index(entries(out))}, "index of the reports")
    return path


def write_files(out: Path, contents: Mapping[str, str], what: str) -> list[Path]:
    """Write text files into a folder, each complete or not at all; who reads meanwhile gets the old one.

    Args:
        out: the folder; made if it is not there.
        contents: the texts by name of the file.
        what: what is written, for the message.

    Returns:
        The paths, in the order of `contents`.

    Raises:
        InfrastructureError: the folder cannot be made or written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            _replace(out / name, content)
    except OSError as error:
        raise InfrastructureError(
            f"{what}: cannot write to {out}: {error.strerror or error}; "
            "expected a folder that this user may write to; name another one with --out"
        ) from error
    return [out / name for name in contents]


def _replace(path: Path, content: str) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files for their owner alone; a report is there to be read.
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
