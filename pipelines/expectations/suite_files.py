"""Suites kept as files: what the contract stands for, and what people wrote beside it.

`CONF_DIR/base/gx` is a file context of Great Expectations; the suite `flights.rows` is in it as
`expectations/flights/rows.json`. An expectation that was generated carries a hash of itself in
`meta.oncelake`, so that one that a person has changed since is known. The audit asks what the contract
stands for, whatever the file says, and from the file the expectations that people wrote.
"""

import hashlib
import json
import math
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pipelines.contracts.confinement import beyond_the_rows
from pipelines.contracts.contract import DataContract
from pipelines.contracts.rules import OwnExpectation, SuiteName
from pipelines.errors import ConfigError
from pipelines.expectations.suites import COLUMN_ARGUMENTS, SUITES, Json, generated, refuse_unknown_columns
from pipelines.resources import resource
from pipelines.text_files import LARGEST_JSON, read_text, why_unreadable

_FOLDER: Final = "base/gx"
_CONTEXT_FILES: Final = ("great_expectations.yml", ".gitignore")
_MARK: Final = "oncelake"
# Far from where Python ends.
_DEEPEST: Final = 64
_TOO_DEEP: Final = f"more than {_DEEPEST} levels"
# Great Expectations makes numbers of 64 bits of all.
_MOST_DIGITS: Final = 300
_WAY_BACK: Final = (
    "Repair the file, or restore it from a backup; or delete it and run `oncelake expectations generate`,"
    " which writes what the contract stands for, without expectations that people added"
)
_SEVERITIES: Final = ("critical", "warning", "info")


def own_expectations(conf_dir: Path, pipeline: str, contract: DataContract) -> tuple[OwnExpectation, ...]:
    """Return what people wrote into a pipeline's suites; nothing where there are no files.

    Raises:
        ConfigError: A file is no suite of that name, an expectation asks for a column that there is not, or
            one that was generated has been edited.
    """
    handwritten = []
    for suite in SUITES:
        path = suite_path(conf_dir, pipeline, suite)
        for number, expectation in enumerate(_read(path, f"{pipeline}.{suite}").get("expectations", [])):
            own = OwnExpectation(
                suite, f"{path}: expectations[{number}] ({expectation['type']})", expectation
            )
            if _mark_of(expectation) is None:
                refuse_unknown_columns(own, contract)
                handwritten.append(own)
            elif _mark_of(expectation) != _hash(expectation):
                raise ConfigError(
                    f"{own.place}: generated from the contract, and edited since. The audit checks what the"
                    " contract says. To keep this as an expectation of your own, remove `oncelake` from its"
                    " `meta`; to restore what the contract says, delete it here. Then run `oncelake"
                    " expectations generate`"
                )
    return tuple(handwritten)


def suite_path(conf_dir: Path, pipeline: str, suite: SuiteName) -> Path:
    """Return the file of a suite, where Great Expectations looks for one of the name `PIPELINE.SUITE`."""
    return conf_dir.joinpath(_FOLDER, "expectations", *pipeline.split("."), f"{suite}.json")


def outdated_suites(conf_dir: Path, pipeline: str, contract: DataContract) -> list[Path]:
    """Return the files of a pipeline's suites that are missing, or lack what the contract asks for today.

    Raises:
        ConfigError: A file cannot be taken, see `own_expectations`.
    """
    return [path for path, _ in _outdated(conf_dir, pipeline, contract)]


def write_suites(conf_dir: Path, pipeline: str, contract: DataContract) -> list[Path]:
    """Bring a pipeline's suites up to date: what people wrote stays, after what the contract asks for.

    Returns:
        The files that were written.

    Raises:
        ConfigError: A file cannot be taken, see `own_expectations`, or cannot be written.
    """
    written = []
    for path, text in list(_outdated(conf_dir, pipeline, contract)):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            for name in _CONTEXT_FILES:
                if not (context := conf_dir / _FOLDER / name).exists():
                    shutil.copyfile(resource(f"conf/{_FOLDER}/{name}"), context)
            # A link stays one.
            target = path.resolve()
            temporary = target.with_suffix(".tmp")
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(target)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from None
        written.append(path)
    return written


def _outdated(conf_dir: Path, pipeline: str, contract: DataContract) -> Iterator[tuple[Path, str]]:
    own_expectations(conf_dir, pipeline, contract)
    for suite, expectations in generated(contract).items():
        path, name = suite_path(conf_dir, pipeline, suite), f"{pipeline}.{suite}"
        document = _read(path, name)
        stored: list[Json] = document.get("expectations", [])
        marked = [expectation for expectation in stored if _mark_of(expectation) is not None]
        if document and [_mark_of(item) for item in marked] == [_hash(item) for item in expectations]:
            continue
        own = [expectation for expectation in stored if _mark_of(expectation) is None]
        ids = {_mark_of(item): item["id"] for item in marked if "id" in item}
        generated_ones = [_marked(item, name, ids) for item in expectations]
        yield path, _text({"id": _id(name), "meta": {}, "name": name} | document, [*generated_ones, *own])


def _marked(expectation: Json, name: str, ids: dict[str | None, str]) -> Json:
    mark = _hash(expectation)
    made_id = ids.get(mark, _id(f"{name}/{mark}"))
    return {**expectation, "id": made_id, "meta": {_MARK: {"generated": mark}}}


def _text(document: Json, expectations: list[Json]) -> str:
    # As Great Expectations writes it, so that a file that went through its hands does not change.
    return json.dumps({**document, "expectations": expectations}, indent=2, sort_keys=True) + "\n"


def _id(name: str) -> str:
    """Great Expectations wants ids; these are the same whoever generates."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"oncelake:{name}"))


def _mark_of(expectation: Json) -> str | None:
    mark = (expectation.get("meta") or {}).get(_MARK)
    return None if mark is None else str(mark.get("generated") if isinstance(mark, dict) else mark)


def _hash(expectation: Json) -> str:
    """Return a hash of all that an expectation says, but not of what only identifies it."""
    content = {key: value for key, value in expectation.items() if key not in ("id", "meta") and value}
    content |= {key: value for key, value in (expectation.get("meta") or {}).items() if key != _MARK}
    return hashlib.sha256(json.dumps(_plain(content), sort_keys=True).encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    """Great Expectations writes 1 as 1.0, which is no edit."""
    match value:
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case float() if value.is_integer():
            return int(value)
        case _:
            return value


def _read(path: Path, name: str) -> Json:
    """Return the suite in a file; empty if there is none."""
    try:
        document = _parsed(read_text(path, LARGEST_JSON))
    except FileNotFoundError:
        if path.is_symlink():
            raise ConfigError(
                f"{path}: links to {path.readlink()}, which is not there; correct or remove the link"
            ) from None
        return {}
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {why_unreadable(error)}") from None
    except ValueError as error:
        why = why_unreadable(error) if isinstance(error, UnicodeDecodeError) else error
        raise ConfigError(f"{path}: cannot be read: {why}; expected a suite in JSON. {_WAY_BACK}") from None
    if not isinstance(document, dict) or document.get("name") != name:
        actual = document.get("name") if isinstance(document, dict) else type(document).__name__
        raise ConfigError(f"{path}: expected a suite with the name {name!r}, got {actual!r}. {_WAY_BACK}")
    expectations = document.get("expectations", [])
    if not isinstance(expectations, list):
        raise ConfigError(f"{path}: expectations: expected a list, got {type(expectations).__name__}")
    for number, expectation in enumerate(expectations):
        if reason := _no_expectation(expectation):
            raise ConfigError(f"{path}: expectations[{number}]: {reason}")
    return document


def _parsed(text: str) -> Any:
    """Return what a text in JSON says.

    Raises:
        ValueError: It is none, or says what no expectation can; the message says what.
    """
    try:
        document = json.loads(text, parse_constant=_no_number, parse_float=_finite, parse_int=_whole)
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON: {error.msg} in line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if _is_deeper_than(document, _DEEPEST):
        raise ValueError(_TOO_DEEP)
    return document


def _is_deeper_than(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels == 0 or any(_is_deeper_than(item, levels - 1) for item in inner)


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"a number of more than {_MOST_DIGITS} digits")
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is more than a number of 64 bits holds")
    return number


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def _no_expectation(entry: Any) -> str | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("type"), str) or "kwargs" not in entry:
        return "expected `type`, such as expect_column_mean_to_be_between, and `kwargs`"
    if not isinstance(entry["kwargs"], dict) or not isinstance(entry.get("meta") or {}, dict):
        return "kwargs and meta: expected objects"
    for argument in COLUMN_ARGUMENTS:
        named = entry["kwargs"].get(argument, [])
        if not isinstance(named, str) and not (
            isinstance(named, list) and all(isinstance(column, str) for column in named)
        ):
            return f"kwargs.{argument}: expected the name of a column, or a list of names, got {named!r}"
    for argument, value in entry["kwargs"].items():
        if isinstance(value, str) and (outside := beyond_the_rows(value)):
            return f"kwargs.{argument}: expected SQL over the rows, got {outside}"
    if entry.get("severity", "critical") not in _SEVERITIES:
        return f"severity: expected one of {', '.join(_SEVERITIES)}, got {entry['severity']!r}"
    return None
