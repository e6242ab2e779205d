"""Great Expectations' Data Docs of one day, made from what the audit has recorded."""

import html
import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final

from pipelines.errors import InfrastructureError
from pipelines.report.render.text import visible

_VIEWS: Final = "pipelines.report.render.data_docs_view"


@dataclass(frozen=True)
class Audited:
    """The audit whose results are shown.

    Attributes:
        pipeline: The pipeline's name.
        day: The event day.
        run_id: The run that audited it.
        checked_at: When, with a zone.
        results: What Great Expectations said, as `Check.result` has it.
    """

    pipeline: str
    day: date
    run_id: str
    checked_at: datetime
    results: Sequence[str]

    @property
    def folder(self) -> str:
        """The site's folder, beside the report."""
        return f"data_docs/{self.pipeline}-{self.day.isoformat()}"


def write_data_docs(audited: Audited, out: Path) -> Path:
    """Write a site of static pages as `OUT/data_docs/PIPELINE-DAY`, complete or not at all.

    The pages load nothing from elsewhere and run no script.

    Args:
        audited: What was found.
        out: The folder of the report.

    Returns:
        The site's first page.

    Raises:
        InfrastructureError: The folder cannot be written, or a page cannot be made.
    """
    target = out / audited.folder
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as name:
            site = Path(name) / "site"
            # Great Expectations takes no relative path.
            _build(audited, site.resolve())
            shutil.rmtree(target, ignore_errors=True)
            site.rename(target)
    except OSError as error:
        raise InfrastructureError(
            f"Data Docs of {audited.pipeline} {audited.day}: cannot write to {target}:"
            f" {error.strerror or error}; name another folder with --out"
        ) from error
    return target / "index.html"


def _build(audited: Audited, folder: Path) -> None:
    # It takes seconds to import.
    from pipelines.expectations.runner import in_memory

    context = in_memory()
    suites = sorted({json.loads(text)["suite"] for text in audited.results})
    for suite in suites:
        results = [_shown(each) for each in map(json.loads, audited.results) if each["suite"] == suite]
        _store(context, suite, audited, results)
    section = {"view": {"module_name": _VIEWS, "class_name": "PageView"}}
    site: Any = {
        "class_name": "SiteBuilder",
        "show_how_to_buttons": False,
        "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(folder)},
        "site_index_builder": {
            "class_name": "DefaultSiteIndexBuilder",
            "view": {"module_name": _VIEWS, "class_name": "IndexView"},
        },
        "site_section_builders": {"expectations": section, "validations": section, "profiling": "None"},
    }
    title = f"{audited.pipeline} {audited.day}"
    context.add_data_docs_site(site_name=title, site_config=site)
    context.build_data_docs(site_names=[title])
    # Fonts, pictures and styles of pages that look otherwise.
    shutil.rmtree(folder / "static", ignore_errors=True)
    pages = len(list(folder.rglob("*.html")))
    if pages != 1 + 2 * len(suites):
        raise InfrastructureError(
            f"Data Docs of {title}: Great Expectations made {pages} of {1 + 2 * len(suites)} pages;"
            " its log says why"
        )


def _store(context: Any, suite: str, audited: Audited, results: list[dict[str, Any]]) -> None:
    """Put a day's results where Great Expectations looks for those of a checkpoint."""
    from great_expectations import __version__
    from great_expectations.core import (
        ExpectationSuite,
        ExpectationSuiteValidationResult,
        ExpectationValidationResult,
        RunIdentifier,
    )
    from great_expectations.data_context.types.resource_identifiers import (
        ExpectationSuiteIdentifier,
        ValidationResultIdentifier,
    )
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    context.suites.add(
        ExpectationSuite(name=suite, expectations=[each["expectation_config"] for each in results])
    )
    run = RunIdentifier(run_name=audited.run_id, run_time=audited.checked_at)
    batch = f"{audited.pipeline}-{audited.day}"
    passed = sum(each["success"] for each in results)
    result = ExpectationSuiteValidationResult(
        success=passed == len(results),
        results=[
            ExpectationValidationResult(
                **{**each, "expectation_config": ExpectationConfiguration(**each["expectation_config"])}
            )
            for each in results
        ],
        suite_name=suite,
        statistics={
            "evaluated_expectations": len(results),
            "successful_expectations": passed,
            "unsuccessful_expectations": len(results) - passed,
            "success_percent": 100 * passed / len(results),
        },
        meta={
            "great_expectations_version": __version__,
            "run_id": run.to_json_dict(),
            "validation_time": audited.checked_at.isoformat(),
            "batch_parameters": {"pipeline": audited.pipeline, "day": audited.day.isoformat()},
            "batch_spec": {"data_asset_name": batch},
        },
        batch_id=batch,
    )
    key = ValidationResultIdentifier(ExpectationSuiteIdentifier(suite), run, batch)
    context.validation_results_store.set(key, result)


def _shown(stored: dict[str, Any]) -> dict[str, Any]:
    """Return a result of which no text from the data or a suite can act on the page or hide in it.

    Great Expectations escapes most arguments of an expectation and the message of an exception; it puts
    what was observed, descriptions and distributions into its pages as they are.
    """
    parts = {key: value for key, value in stored.items() if key != "suite"}
    config = dict(parts["expectation_config"])
    description = config.get("description")
    if query := config["kwargs"].get("unexpected_rows_query"):
        # Great Expectations cannot show one without a description.
        description = description or f"No row is expected of: {query}"
    if description:
        config["description"] = _safe(description)
    if distribution := config["kwargs"].get("partition_object"):
        config["kwargs"] = config["kwargs"] | {"partition_object": _safe(distribution)}
    info = {key: visible(value) for key, value in parts["exception_info"].items()}
    return parts | {"expectation_config": config, "result": _safe(parts["result"]), "exception_info": info}


def _safe(value: Any) -> Any:
    match value:
        case str():
            return html.escape(str(visible(value)), quote=True)
        case dict():
            return {str(_safe(key)): _safe(item) for key, item in value.items()}
        case list():
            return [_safe(item) for item in value]
        case _:
            return value
