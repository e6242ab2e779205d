"""What Great Expectations said of an expectation: as a check, and as far as a contract lets it be shown."""

import json
from datetime import date
from typing import Final

from pipelines.contracts.contract import DataContract
from pipelines.expectations.day_metrics import unknown_figure
from pipelines.expectations.suites import Json, columns_named
from pipelines.ledger.checks import Check, CheckStatus
from pipelines.records.decode import EVENT_DATE, ORIGIN
from pipelines.spark.failures import first_line

_COUNTS: Final = (
    "element_count",
    "missing_count",
    "missing_percent",
    "unexpected_count",
    "unexpected_percent",
    "unexpected_percent_nonmissing",
    "unexpected_percent_total",
)
_LONGEST: Final = 200


def without_values(outcome: Json, contract: DataContract) -> Json:
    """Return an outcome with counts, but with nothing that might be a value of the data.

    A number is kept that was found of columns without personal data.
    """
    result = {key: value for key, value in outcome["result"].items() if key in _COUNTS}
    observed = outcome["result"].get("observed_value")
    columns = columns_named(outcome["expectation_config"])
    if isinstance(observed, int | float) and not any(_is_hidden(column, contract) for column in columns):
        result["observed_value"] = observed
    info = outcome["exception_info"]
    if info["raised_exception"]:
        info = info | {"exception_message": "the reason may hold values, which are not kept"}
    return {**outcome, "result": result, "exception_info": info}


def _is_hidden(column: str, contract: DataContract) -> bool:
    """Return whether values of a column may be personal data: of one that is gone nobody knows."""
    path = dict(zip(contract.key_names, contract.key, strict=True)).get(column, column)
    is_known = path.partition(".")[0] in {*contract.columns, EVENT_DATE, *ORIGIN}
    return not is_known or contract.treatment(path) is not None


def as_shown(stored: str, contract: DataContract) -> str:
    """Return what an audit has stored, as far as the contract lets it be shown.

    The contract may call a column personal that an earlier one, by which the day was audited, did not.

    Args:
        stored: `Check.result` of an expectation.
        contract: Says which columns hold personal data.
    """
    outcome: Json = json.loads(stored)
    if not contract.personal:
        return stored
    columns = columns_named(outcome["expectation_config"])
    is_of_days = outcome["suite"].endswith(".days")
    if is_of_days and not any(unknown_figure(column, contract) for column in columns):
        return stored
    return json.dumps(without_values(outcome, contract))


def stored_check(day: date, stored: str, contract: DataContract) -> Check:
    """Return the check that `as_shown` leaves of a stored outcome."""
    outcome: Json = json.loads(as_shown(stored, contract))
    return check_of(day, outcome.pop("suite"), outcome)


def check_of(day: date, suite: str, outcome: Json) -> Check:
    """Return an outcome as a check.

    Args:
        day: The event day that was asked.
        suite: The name of the suite, `PIPELINE.rows` or `PIPELINE.days`.
        outcome: What Great Expectations said.
    """
    config, result = outcome["expectation_config"], outcome["result"]
    arguments = dict(config["kwargs"])
    about = ", ".join(columns_named(config)) or config.get("description") or ""
    for column in ("column", "column_list"):
        arguments.pop(column, None)
    unexpected = result.get("unexpected_count") or 0
    if outcome["exception_info"]["raised_exception"]:
        # Spark prints its whole plan after the first line.
        reason = first_line(str(outcome["exception_info"]["exception_message"]))
        observed = f"could not be evaluated: {reason}"
    elif result.get("observed_value") is not None:
        observed = str(result["observed_value"])[:_LONGEST]
    elif "element_count" in result:
        observed = f"{unexpected:,} of {result['element_count'] or 0:,} values unexpected"
    else:
        observed = "as expected" if outcome["success"] else "not as expected"
    failed: CheckStatus = "failed" if config.get("severity", "critical") == "critical" else "warned"
    examples = result.get("partial_unexpected_list")
    return Check(
        day,
        f"{config['type']} {about}".strip(),
        "expectation",
        "passed" if outcome["success"] else failed,
        observed,
        ", ".join(f"{k} {v}" for k, v in arguments.items())
        or config["type"].removeprefix("expect_").replace("_", " "),
        f"for example {examples}" if unexpected and examples else "",
        result=json.dumps({"suite": suite, **outcome}, default=str),
    )
