"""Asks Great Expectations of the days as written, by its checkpoints.

What holds of each row is asked of all days at once, and again only where it does not hold; so a month
costs about what a day does. What is asked of a day's rows together (a mean, a share of rows) needs a run for
each day.
"""

import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from difflib import get_close_matches
from inspect import signature
from typing import Final

import pandas as pd
from pyspark.sql import DataFrame

from pipelines.contracts.contract import DataContract
from pipelines.contracts.rules import SuiteName
from pipelines.delta.io import on_days
from pipelines.errors import ConfigError
from pipelines.expectations.argument_errors import refused_arguments
from pipelines.expectations.day_metrics import ROWS, metrics_by_day
from pipelines.expectations.outcomes import check_of, without_values
from pipelines.expectations.suites import Json, columns_named, suites_of
from pipelines.ledger.checks import Check
from pipelines.records.dedup import with_key_columns


@contextmanager
def _main_with_a_file() -> Iterator[None]:
    """Give the main module a file for a while.

    PySpark takes a main module without one (`python -c`, a worker of pytest) for a run of its own doctests,
    and ends the process, with exit code 0, when Great Expectations asks it for Spark Connect.
    """
    main = sys.modules["__main__"]
    if hasattr(main, "__file__"):
        yield
        return
    main.__file__ = "<command>"
    try:
        yield
    finally:
        del main.__file__


with warnings.catch_warnings(), _main_with_a_file():
    warnings.simplefilter("ignore")
    import great_expectations as gx
    from great_expectations.compatibility.pydantic import ValidationError
    from great_expectations.core import ExpectationSuite, ExpectationValidationResult
    from great_expectations.data_context import EphemeralDataContext
    from great_expectations.data_context.types.base import ProgressBarsConfig
    from great_expectations.exceptions import GreatExpectationsError
    from great_expectations.expectations.expectation import (
        ColumnMapExpectation,
        ColumnPairMapExpectation,
        MulticolumnMapExpectation,
    )
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
    from great_expectations.expectations.registry import (
        get_expectation_impl,
        list_registered_expectation_implementations,
    )

# It logs each metric at INFO and warns of its own internals; one of its modules sets a level of its own.
for _its_own in ("great_expectations", "great_expectations.data_context.types.base"):
    logging.getLogger(_its_own).setLevel(logging.ERROR)

_log = logging.getLogger(__name__)

Ask = Callable[[Sequence[date], Sequence[Json], bool], list[Json]]

_OF_ROWS: Final = (ColumnMapExpectation, ColumnPairMapExpectation, MulticolumnMapExpectation)


def refuse_unfit(contract: DataContract) -> None:
    """See to it that Great Expectations knows every expectation that people wrote, and its arguments.

    Raises:
        ConfigError: It does not; the message has the place.
    """
    refusals = [
        f"{own.place}: {reason}" for own in contract.expectations for reason in _unfit(dict(own.config))
    ]
    if refusals:
        raise ConfigError("\n".join(refusals))


def _unfit(config: Json) -> Iterator[str]:
    """Yield why Great Expectations does not take an expectation, each reason with its place in it."""
    kinds = list_registered_expectation_implementations()
    if config["type"] not in kinds:
        close = get_close_matches(config["type"], kinds, 1)
        hint = f"did you mean {close[0]!r}?" if close else "see docs/data-quality.md"
        yield f"type: expected an expectation of Great Expectations, got {config['type']!r}; {hint}"
        return
    known_keys = signature(ExpectationConfiguration).parameters
    if unknown := [key for key in config if key not in known_keys]:
        yield f"{', '.join(unknown)}: unknown; expected some of {', '.join(known_keys)}"
        return
    try:
        ExpectationConfiguration(**config).to_domain_obj()
    except ValidationError as error:
        known = get_expectation_impl(config["type"]).__fields__
        yield from refused_arguments(error.errors(), config, known)
        return
    except (GreatExpectationsError, TypeError, ValueError) as error:
        yield f"Great Expectations refuses it: {' '.join(str(error).split())}"
        return
    least, most = config["kwargs"].get("min_value"), config["kwargs"].get("max_value")
    if isinstance(least, int | float) and isinstance(most, int | float) and least > most:
        yield f"kwargs.min_value: expected max_value ({most}) or less, got {least}"


def expectation_checks(
    rows: DataFrame, pipeline: str, contract: DataContract, days: Sequence[date], examples: int
) -> list[Check]:
    """Validate the rows of some days against the pipeline's suites.

    Args:
        rows: Rows of the batch layer of these days.
        pipeline: The pipeline's name, after which suites and checkpoints are called.
        contract: The rules, and the expectations that people wrote.
        days: The days that get a verdict each. Of a day without rows only figures are asked.
        examples: How many unexpected values to keep; with 0 nothing that could be a value is kept.
    """
    began = time.monotonic()
    suites = suites_of(contract)
    named = [column for expectation in suites["days"] for column in columns_named(expectation)]
    numbers = metrics_by_day(rows, contract, days, named)
    checkpoints = _Checkpoints(pipeline, examples)

    def ask_rows(some: Sequence[date], expectations: Sequence[Json], brief: bool) -> list[Json]:
        frame = with_key_columns(rows, contract).where(on_days(some))
        if brief:
            return checkpoints.run("rows", frame, expectations, brief=True)
        # Each of them reads the rows.
        frame.persist()
        try:
            return checkpoints.run("rows", frame, expectations, brief=False)
        finally:
            frame.unpersist()

    def ask_days(some: Sequence[date], expectations: Sequence[Json], brief: bool) -> list[Json]:
        frame = pd.DataFrame([numbers[day] for day in some])
        return checkpoints.run("days", frame, expectations, brief=brief)

    checks = []
    filled = [day for day in days if numbers[day][ROWS]]
    for day, result in _by_day(ask_rows, suites["rows"], filled):
        _count(result, numbers[day][ROWS])
        shown = result if examples else without_values(result, contract)
        checks.append(check_of(day, f"{pipeline}.rows", shown))
    for day, result in _by_day(ask_days, suites["days"], days):
        _count(result, 1)
        # Of several columns Great Expectations says itself what it compared.
        if len(columns := columns_named(result["expectation_config"])) == 1:
            result["result"]["observed_value"] = numbers[day][columns[0]]
        checks.append(check_of(day, f"{pipeline}.days", result))
    number, took = sum(map(len, suites.values())), time.monotonic() - began
    _log.info("checked %d expectations on %d days in %.1f s", number, len(days), took)
    return checks


def in_memory() -> EphemeralDataContext:
    """Return a context of Great Expectations that keeps nothing in files and sends nothing anywhere."""
    context = gx.get_context(mode="ephemeral")
    context.enable_analytics(enable=False)
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    return context


class _Checkpoints:
    """Runs checkpoints of a pipeline's suites, in memory."""

    def __init__(self, pipeline: str, examples: int) -> None:
        self.pipeline = pipeline
        self.full = {"result_format": "SUMMARY", "partial_unexpected_count": examples}
        self.context = in_memory()
        # By default it persists all columns of all days, and never unpersists them.
        rows = self.context.data_sources.add_spark("spark", persist=False).add_dataframe_asset("rows")
        days = self.context.data_sources.add_pandas("pandas").add_dataframe_asset("days")
        self.batches = {
            "rows": rows.add_batch_definition_whole_dataframe("rows"),
            "days": days.add_batch_definition_whole_dataframe("days"),
        }

    def run(
        self, suite: SuiteName, frame: DataFrame | pd.DataFrame, expectations: Sequence[Json], *, brief: bool
    ) -> list[Json]:
        """Run one checkpoint.

        Args:
            suite: What is asked.
            frame: Of what.
            expectations: Which of the suite's.
            brief: Ask only whether they hold, which takes one pass for all together; else each that
                looks at single rows takes a pass of its own, to fetch what it did not expect.

        Returns:
            A result for each expectation, in their order, as JSON.
        """
        name = f"{self.pipeline}.{suite}"
        bare = [{key: value for key, value in item.items() if key != "id"} for item in expectations]
        stored = self.context.suites.add_or_update(ExpectationSuite(name=name, expectations=bare))
        definition = self.context.validation_definitions.add_or_update(
            gx.ValidationDefinition(name=name, data=self.batches[suite], suite=stored)
        )
        checkpoint = gx.Checkpoint(
            name=name,
            validation_definitions=[definition],
            result_format="BOOLEAN_ONLY" if brief else self.full,
        )
        outcome = self.context.checkpoints.add_or_update(checkpoint).run({"dataframe": frame})
        (whole,) = outcome.run_results.values()
        by_id = {
            result.expectation_config.id: result for result in whole.results if result.expectation_config
        }
        return [_plain(by_id[expectation.id]) for expectation in stored.expectations]


def _by_day(ask: Ask, expectations: Sequence[Json], days: Sequence[date]) -> Iterator[tuple[date, Json]]:
    """Ask of all days at once what can be, and of each day alone what is left or does not hold."""
    if not expectations or not days:
        return
    successes: dict[int, Json] = {}
    if together := [number for number, item in enumerate(expectations) if _holds_for_parts(item)]:
        answers = ask(days, [expectations[number] for number in together], True)
        successes = {
            number: result for number, result in zip(together, answers, strict=True) if result["success"]
        }
    left = [number for number in range(len(expectations)) if number not in successes]
    for day in days:
        apart = ask([day], [expectations[number] for number in left], False) if left else []
        results = successes | dict(zip(left, apart, strict=True))
        for number in range(len(expectations)):
            yield day, {**results[number], "result": {**results[number]["result"]}}


def _holds_for_parts(expectation: Json) -> bool:
    """Return whether what holds of the rows of all days holds of those of each day."""
    arguments = expectation.get("kwargs", {})
    kind = get_expectation_impl(expectation["type"])
    # A z-score compares a row with all others.
    of_rows = issubclass(kind, _OF_ROWS) and "z_score" not in expectation["type"]
    return of_rows and arguments.get("mostly", 1) == 1


def _plain(result: ExpectationValidationResult) -> Json:
    """Return a result as JSON, without what is of this run only: ids, and the traces of exceptions."""
    plain: Json = result.to_json_dict()
    config = plain["expectation_config"]
    config.pop("id", None)
    config["kwargs"].pop("batch_id", None)
    info = plain.get("exception_info") or {}
    # Great Expectations gives one such record, or one for each metric.
    records = [entry for entry in (info, *info.values()) if isinstance(entry, dict)]
    raised = next((r["exception_message"] for r in records if r.get("exception_message")), None)
    plain["exception_info"] = {
        "raised_exception": raised is not None,
        "exception_message": raised,
        "exception_traceback": "not kept",
    }
    return plain


def _count(result: Json, elements: float | None) -> None:
    """Put in the counts of an expectation that holds of every row, which a brief answer leaves out."""
    if result["success"] and not result["result"]:
        result["result"] |= {"element_count": elements, "unexpected_count": 0, "unexpected_percent": 0.0}
