"""Writes what a report is made into: each file complete or not at all."""

from pathlib import Path
from typing import Literal, TypeAlias, get_args

from pipelines.report.model.report import ReportData
from pipelines.report.render.index import INDEX, entries, render_index
from pipelines.report.render.markdown import render_markdown
from pipelines.runtime.atomic_files import write_files

ReportFormat: TypeAlias = Literal["html", "markdown", "json"]
FORMATS: tuple[ReportFormat, ...] = get_args(ReportFormat)


def render_json(data: ReportData) -> str:
    """Render the report as JSON, in the structure of ``ReportData``.

    Args:
        data: The report.

    Returns:
        Indented JSON with a final newline; ``ReportData.model_validate_json`` reads it back.
    """
    return data.model_dump_json(indent=2) + "\n"


def write_report(data: ReportData, out: Path, report_format: ReportFormat = "html") -> dict[str, Path]:
    """Write a report in one of its formats.

    Args:
        data: The report.
        out: Folder; made if it is not there.
        report_format: ``html`` writes ``PIPELINE-DAY.html``, the figures beside it, and recreates the index
            of the folder; ``json`` the figures alone, as ``PIPELINE-DAY.json``; ``markdown``
            ``PIPELINE-DAY.md``.

    Returns:
        The files by sort: ``html``, ``json``, ``index``, ``markdown``.

    Raises:
        InfrastructureError: The folder cannot be made or written.
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
        out: The folder; made if it is not there.

    Raises:
        InfrastructureError: The folder cannot be made or written.
    """
    (path,) = write_files(out, {INDEX: render_index(entries(out))}, "index of the reports")
    return path
