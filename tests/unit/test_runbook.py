"""What people are shown leads to cause, check and fix: alerts, findings of doctor, exit codes, lag."""

import ast
import re
from collections.abc import Iterator
from typing import Final, get_args

import pytest
import yaml

from pipelines.doctor.check_list import DoctorCheck
from pipelines.doctor.check_report import ALL_CHECKS
from pipelines.errors import OncelakeError
from pipelines.lag.diagnosis import LagCause
from tests.support.runbook import ROOT, anchor, is_said, section

RUNBOOK: Final = "docs/runbook.md"
PACKAGE: Final = ROOT / "pipelines"
RULES: Final = ROOT / "deploy/prometheus/oncelake.rules.yml"
CAUSE, FIX, FIXED = r"\*\*Why", r"\*\*(What to do|Why, and what to do)", r"\*\*Fixed when\*\*"
CHECK: Final = r"\*\*Check\.\*\*"
OF_OTHER_PAGES: Final = "What doctor finds of publishing and racks"
# Their texts are those of others: what does not fit, what `reconcile` has found; `test_runbook_of_spark.py`
# asks for what Spark says.
MADE_ELSEWHERE: Final = {"spark/failures.py", "delta/stream_check.py", "steps/reconcile.py"}
NOT_BEHIND: Final = {"none", "source_quiet", "catching_up"}


def runbook_headings() -> dict[str, str]:
    text = (ROOT / RUNBOOK).read_text()
    return {anchor(heading): heading for heading in re.findall(r"^##+ (.+)$", text, re.MULTILINE)}


def lacks(heading: str, *parts: str) -> list[str]:
    text = section(heading)
    return [part for part in parts if not re.search(part, text)]


def rows(text: str) -> dict[str, list[str]]:
    """The cells of each row of tables, by the first one."""
    found = (line.strip("|").split("|") for line in text.splitlines() if line.startswith("|"))
    return {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in found}


def rules() -> Iterator[tuple[str, str]]:
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["annotations"]["runbook"]


@pytest.mark.parametrize(("alert", "link"), [*rules()])
def test_each_alert_leads_to_cause_check_and_fix(alert: str, link: str) -> None:
    page, _, to = link.partition("#")
    assert page == "runbook.md"
    assert lacks(runbook_headings()[to], CAUSE, CHECK, FIX, FIXED) == []
    (cells,) = (cells for first, cells in rows(section("Alerts")).items() if f"`{alert}`" in first)
    assert f"(#{to})" in cells[-1]


@pytest.mark.parametrize("check", ALL_CHECKS, ids=lambda check: check.name)
def test_each_finding_of_doctor_leads_to_cause_and_fix(check: DoctorCheck) -> None:
    page, _, to = check.link.partition("#")
    if page == RUNBOOK:
        assert lacks(runbook_headings()[to], CAUSE, FIX, FIXED) == []
    else:
        assert lacks(OF_OTHER_PAGES, CAUSE, FIX, FIXED) == []
        cells = rows(section(OF_OTHER_PAGES))[f"`{check.name}`"]
        assert len(cells) == 2
        assert all(cells)


def test_each_exit_code_has_cause_check_and_fix() -> None:
    codes = {0, OncelakeError.exit_code, *(error.exit_code for error in OncelakeError.__subclasses__())}
    found = {int(code): cells for code, cells in rows(section("Exit codes")).items() if code.isdecimal()}
    assert {*found} == codes
    assert all(len(cells) == 3 and all(cells) for cells in found.values())
    assert lacks("Exit codes", FIXED) == []


def test_each_cause_of_lag_has_its_meaning_what_points_to_it_and_what_helps() -> None:
    text = (ROOT / "docs/lag.md").read_text().partition("\n## Causes\n")[2].partition("\n## ")[0]
    found = {cause.strip("`"): cells for cause, cells in rows(text).items() if cause.startswith("`")}
    assert {*found} == {*get_args(LagCause)}
    assert all(len(cells) == 3 and all(cells) for cells in found.values())
    assert {cause for cause, cells in found.items() if cells[2].startswith("nothing")} == NOT_BEHIND


def messages() -> Iterator[tuple[str, str]]:
    """Where a `SourceError` is made, and its text, with `…` where a value is put in."""
    names = {"SourceError"}
    modules = {path: ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}
    for tree in modules.values():
        names |= {
            node.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
            and any(isinstance(base, ast.Name) and base.id == "SourceError" for base in node.bases)
        }
    for path, tree in modules.items():
        functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
                where = f"{path.relative_to(PACKAGE)}:{node.lineno}"
                yield where, " ".join(texts_of(node.args[0], functions)) if node.args else ""


def texts_of(node: ast.AST, functions: dict[str, ast.FunctionDef]) -> Iterator[str]:
    """The texts of an expression; for a call of a function of the module, the texts in it."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in functions:
        node = functions[node.func.id]
    for inner in ast.walk(node):
        if isinstance(inner, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in inner.values)
        elif isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            yield inner.value


def is_found(words: str, message: str) -> bool:
    """Whether words of the table are in a message, with what stands for values left out."""
    if is_said(words, message):
        return True
    # Its beginning may be in a value.
    said = words.split()
    return any(f"… {' '.join(said[at:])}" in message for at in range(1, len(said) - 2))


def test_each_message_with_exit_code_4_is_in_the_table_or_names_its_section() -> None:
    table = section("Start here")
    assert "any other message of `publish_stream` or `oncelake publish`" in table
    quoted = [
        words
        for line in table.splitlines()
        if line.startswith("| 4 |") and "anything else" not in line
        for words in re.findall(r"`([^`]+)`", line.split("|")[2])
    ]
    others = {
        where: message
        for where, message in messages()
        if where.partition(":")[0] not in MADE_ELSEWHERE
        and not where.startswith(("publishing/", "steps/publish"))
        and not re.search(r"docs/(runbook|publishing)\.md, '", message)
    }
    assert others
    assert {where: m for where, m in others.items() if not any(is_found(words, m) for words in quoted)} == {}
