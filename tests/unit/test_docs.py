"""What the documents say exists: links, commands, options, keys, reasons, headings."""

import ast
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, get_args, get_origin

import click
import pytest
import yaml
from pydantic import BaseModel

from demo.__main__ import demo
from demo.compare import compare
from demo.replay import plan_replay
from demo.sends import Sort
from demo.source import demo_days, read_flights, read_weather
from demo.strict_contract import refused
from pipelines.audit.integrity_checks import INTEGRITY_CHECKS
from pipelines.cli.app import oncelake
from pipelines.cli.publish import DayByDefault
from pipelines.config.loader import load_config
from pipelines.config.model import PipelineConfig
from pipelines.config.references import references_in
from pipelines.doctor.check_report import ALL_CHECKS
from pipelines.errors import OncelakeError
from pipelines.formats.contract_files import load_contract
from pipelines.ledger.ops_tables import OPS_TABLES
from pipelines.records.reasons import REASONS, Reason
from pipelines.runtime.scaffold import lay_out
from scripts import checks_page, configuration_page, doctor_page, tables_page
from tests.support.click_groups import commands_in

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
CODE = [path for part in ("pipelines", "jobs", "demo") for path in sorted((ROOT / part).rglob("*.py"))]
JOBS = {path.stem for path in (ROOT / "jobs").glob("*.py")}
RETRIES = {
    "retried soon": Sort.RETRY,
    "retried after hours": Sort.LONG_GAP_RETRY,
    "retried to another partition": Sort.OTHER_PARTITION_RETRY,
}

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_INLINE = re.compile(r"`([^`\n]+)`")
_HERE_DOCUMENT = re.compile(r"<<'EOF'\n.*?^EOF$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Named:
    """A command as a document names it; in a block for the shell it is whole."""

    document: str
    words: tuple[str, ...]
    whole: bool

    def __str__(self) -> str:
        return f"{self.document}: {' '.join(self.words)}"


def text(document: Path) -> str:
    return document.read_text(encoding="utf-8")


def blocks(document: Path, language: str) -> list[str]:
    return [body for found, body in _BLOCK.findall(text(document)) if found == language]


def prose(document: Path) -> str:
    return _BLOCK.sub("", text(document))


def headings(document: Path) -> list[str]:
    return re.findall(r"^#+ (.+)$", prose(document), re.MULTILINE)


def anchor(heading: str) -> str:
    """The part behind # that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def commands(program: str) -> list[Named]:
    """Every call of a program, in shell blocks and in sentences."""
    return [
        Named(document.name, tuple(shlex.split(line)), whole)
        for document in DOCUMENTS
        for line, whole in lines(document)
        if re.match(rf"{program}(\s|$)", line)
    ]


def lines(document: Path) -> Iterator[tuple[str, bool]]:
    for body in blocks(document, "sh"):
        joined = _HERE_DOCUMENT.sub("", body).replace("\\\n", " ")
        for line in re.sub(r"(^|\s)#.*", "", joined).splitlines():
            yield from ((inner.partition("|")[0], True) for inner in re.findall(r"\$\(([^()]*)\)", line))
            yield line, True
    yield from ((span, False) for span in _INLINE.findall(prose(document)) if "…" not in span)


def refusal(command: click.Command, words: tuple[str, ...], *, whole: bool) -> str | None:
    """Why click would refuse these words; None if it takes them."""
    if isinstance(command, DayByDefault):
        words = tuple(command.completed(list(words)))
    if isinstance(command, click.Group):
        if not words:
            return "a command is missing" if whole else None
        found = commands_in(command).get(words[0])
        return refusal(found, words[1:], whole=whole) if found else f"there is no command {words[0]!r}"
    options = {name: option for option in command.params for name in option.opts}
    missing = {
        option.name for option in command.params if option.required and isinstance(option, click.Option)
    }
    rest = list(words)
    while rest:
        word = rest.pop(0)
        option = options.get(word)
        if word.startswith("--") and option is None:
            return f"{command.name} has no option {word}"
        if isinstance(option, click.Option) and not option.is_flag:
            missing.discard(option.name)
            if not rest:
                return f"{word} needs a value"
            value = rest.pop(0)
            if word == "--set" and (reason := unknown_key(value.partition("=")[0])):
                return reason
    return f"{command.name} lacks {missing}" if whole and missing else None


def unknown_key(dotted: str) -> str | None:
    model: Any = PipelineConfig
    for part in dotted.split("."):
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return None  # inside kafka.options and the like, any name goes
        if part not in model.model_fields:
            return f"there is no configuration key {dotted}"
        model = model.model_fields[part].annotation
    return None


def keys(model: type[BaseModel], above: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        inner = [kind for kind in (field.annotation, *get_args(field.annotation)) if isinstance(kind, type)]
        models = [kind for kind in inner if issubclass(kind, BaseModel)]
        # The items of a list are explained where the list is.
        if models and get_origin(field.annotation) is not tuple:
            named = "NAME." if get_origin(field.annotation) is dict else ""
            yield from keys(models[0], f"{above}{name}.{named}")
        elif name not in ("name", "env"):
            yield above + name


def make_targets(makefile: Path) -> set[str]:
    return set(re.findall(r"^([a-z-]+):(?!=)", text(makefile), re.MULTILINE))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_relative_link_leads_to_a_file_and_to_a_heading_of_it(document: Path) -> None:
    for link in _LINK.findall(prose(document)):
        if link.startswith("https://"):
            continue
        target, _, heading = link.partition("#")
        file = (document.parent / target).resolve() if target else document
        assert file.exists(), f"{document.name}: {link}: there is no such file"
        if heading:
            assert heading in map(anchor, headings(file)), f"{document.name}: {link}: no such heading"


def test_every_oncelake_command_exists_with_its_options_and_keys() -> None:
    named = commands("oncelake")
    assert len(named) > 20
    for command in named:
        reason = refusal(oncelake, command.words[1:], whole=command.whole)
        assert reason is None, f"{command}: {reason}"


def test_every_make_target_exists_here_or_in_a_new_project(tmp_path: Path) -> None:
    lay_out(tmp_path)
    targets = make_targets(ROOT / "Makefile") | make_targets(tmp_path / "Makefile")
    named = commands("make")
    assert {"demo", "test"} <= {word for command in named for word in command.words[1:2]}
    for command in named:
        asked = [word for word in command.words[1:] if "=" not in word and not word.startswith("--")]
        assert set(asked) <= targets, command


def test_every_submitted_job_exists_and_takes_the_options_behind_its_name() -> None:
    submitted = [command for command in commands("spark-submit") if command.whole]
    assert len(submitted) == 3
    for command in submitted:
        at = next(n for n, word in enumerate(command.words) if word.endswith(".py"))
        job = Path(command.words[at]).stem
        assert job in JOBS, command
        assert refusal(oncelake, (job, *command.words[at + 1 :]), whole=True) is None, command
        for word in command.words[:at]:
            if word.startswith(("conf/", "jobs/")):
                assert (ROOT / word).exists(), f"{command}: {word}"


def test_every_python_block_compiles_and_names_what_the_package_has() -> None:
    found = [body for document in DOCUMENTS for body in blocks(document, "python")]
    for body in found:
        compile(body, "a document", "exec")
        for line in body.splitlines():
            if line.startswith("from pipelines"):
                exec(line, {})  # noqa: S102 - an import of our own
    assert found


def test_every_reason_for_quarantine_is_explained() -> None:
    section = text(ROOT / "docs/semantics.md").partition("## Reasons for quarantine")[2].partition("\n## ")[0]
    table = re.findall(r"^\| `([a-z]\w+)` \|", section, re.MULTILINE)
    assert table == [*REASONS] == list(get_args(Reason))


def test_every_heading_that_a_message_refers_to_exists() -> None:
    named = {
        (file, heading)
        for path in CODE
        for file, heading in re.findall(r"(docs/[\w-]+\.md), '([^']+)'", text(path))
    }
    assert len(named) >= 3
    for file, heading in named:
        assert heading in headings(ROOT / file), f"{file}: {heading}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_yaml_block_is_accepted_where_it_says_that_it_stands(document: Path, tmp_path: Path) -> None:
    for body in blocks(document, "yaml"):
        first, _, _ = body.partition("\n")
        shutil.copytree(ROOT / "conf", tmp_path / "conf", dirs_exist_ok=True)
        path = tmp_path / first.removeprefix("# ")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(body, encoding="utf-8")
        assert yaml.safe_load(body)
        match path.relative_to(tmp_path).parts:
            case ("data_contracts", _):
                load_contract(path)
            case ("conf", env, "pipelines", file):
                env = "prod" if env == "base" else env
                environ = dict.fromkeys(("KAFKA_JAAS_CONFIG", *references_in(body)), "secret")
                load_config(Path(file).stem, env=env, conf_dir=tmp_path / "conf", environ=environ)
            case other:
                pytest.fail(
                    f"{document.name}: a YAML block begins with {first!r}, and not with its file: {other}"
                )


def test_the_files_of_the_second_pipeline_are_shown_as_they_are() -> None:
    shown = {body.partition("\n")[0]: body for body in blocks(ROOT / "docs/add-a-pipeline.md", "yaml")}
    for name in ("data_contracts/weather.odcs.yaml", "conf/base/pipelines/weather.yml"):
        assert shown[f"# {name}"] == f"# {name}\n{text(ROOT / name)}"


def test_the_page_of_settings_is_that_of_the_models() -> None:
    page = text(ROOT / configuration_page.PAGE)
    assert page == configuration_page.page_text(), "run make pages"
    assert sorted(re.findall(r"^\| `([\w.]+)` \|", page, re.MULTILINE)) == sorted(keys(PipelineConfig))
    assert not re.search(r"\|\s*\|$", page, re.MULTILINE), "a setting without a meaning"


def test_the_readme_is_short() -> None:
    assert len(text(ROOT / "README.md").splitlines()) <= 200


def test_the_readme_explains_every_exit_code() -> None:
    section = text(ROOT / "README.md").partition("## Exit codes")[2].partition("\n## ")[0]
    explained = {int(code) for code in re.findall(r"^\| (\d) \|", section, re.MULTILINE)}
    assert explained == {0, OncelakeError.exit_code, *(e.exit_code for e in OncelakeError.__subclasses__())}


def test_the_readme_shows_what_the_default_demo_sends() -> None:
    defaults = demo.make_context("demo", []).params
    days = defaults["days"]
    plan = plan_replay(read_flights(demo_days(days)), defaults["seed"])
    truth, sorts = plan.truth, plan.sorts
    expected = {
        "sent": truth.sent,
        "unique": len(truth.events),
        "duplicates removed": truth.duplicates,
        **{name: sorts[sort] for name, sort in RETRIES.items()},
        "conflicts": truth.conflicts,
        "quarantined": sum(truth.quarantined.values()),
        **truth.quarantined,
        "replayed after the contract was fixed": refused(plan),
        "late, added by nightly runs": truth.late,
        "after their day was certified": sorts[Sort.OVERDUE],
        **dict.fromkeys(compare([], {}, truth).differences, 0),
    }
    readme = text(ROOT / "README.md")
    (table,) = (body for body in blocks(ROOT / "README.md", "") if "replayed" in body)
    rows = re.findall(r"^ *(\S.*?) {2,}([\d,]+)(?: +…)?$", table, re.MULTILINE)
    assert {name: int(count.replace(",", "")) for name, count in rows} == expected
    assert f"in {days} days" in readme
    assert f"DAYS ?= {days}\n" in text(ROOT / "Makefile")


def test_the_second_pipeline_sends_as_many_records_as_its_page_says() -> None:
    rows = len(list(read_weather([date(2013, 1, day) for day in (1, 2, 3)])))
    again = len(range(0, rows, 20))
    assert f"{rows + again} records, `speed_stream` {rows} rows and {again} duplicates" in text(
        ROOT / "docs/add-a-pipeline.md"
    )


def test_the_architecture_names_every_package() -> None:
    section = text(ROOT / "docs/architecture.md").partition("## Packages")[2].partition("\n## ")[0]
    named = re.findall(r"^\| `(pipelines[\w/]*)` \|", section, re.MULTILINE)
    packages = {str(path.parent.relative_to(ROOT)) for path in (ROOT / "pipelines").glob("**/__init__.py")}
    of_reports = {name for name in packages if name.startswith("pipelines/report/")}
    assert sorted(named) == sorted(packages - of_reports)


def test_decisions_have_a_number_each_and_the_same_parts() -> None:
    found = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))
    numbers = [match[1] for path in found if (match := re.match(r"(\d{4})-", path.name))]
    assert len({*numbers}) == len(found)
    for path in found:
        assert headings(path)[1:] == ["Context", "Options", "Choice", "Consequence"], path.name
    index = re.findall(
        r"^\| \[(\d{4})\]\((.+)\) \| (.+?)(?:, given up for .+)? \|$",
        text(ROOT / "docs/decisions/README.md"),
        re.M,
    )
    assert index == [(path.name[:4], path.name, headings(path)[0].partition(". ")[2]) for path in found]


def words_of(module: Path) -> str:
    """The texts of a module, each with `…` where a value is put in."""
    found = []
    for node in ast.walk(ast.parse(text(module))):
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
            found.append("".join(map(str, parts)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
    return "\n".join(found)


def is_said(words: str, said: str) -> bool:
    """Whether words stand in one text, or their end is a text that is put into another."""
    words = words.replace("DAY", "…")
    parts = words.split(" ")
    splits = ((" ".join(parts[:n]), " ".join(parts[n:])) for n in range(1, len(parts)))
    return words in said or any(f"{begin} …" in said and end in said for begin, end in splits)


def test_the_runbook_finds_messages_that_jobs_say() -> None:
    section = text(ROOT / "docs/runbook.md").partition("## Start here")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| \d \| (.+?) \| ", section, re.MULTILINE)
    quoted = {words for row in rows for words in re.findall(r"`([^`]+ [^`]+)`", row)}
    assert len(quoted) > len(rows)
    said = "\n".join(words_of(path) for path in CODE if path.parts[len(ROOT.parts)] == "pipelines")
    # What the operating system says is not ours.
    assert {words for words in quoted if not is_said(words, said)} == {"No space left on device"}


def test_documents_name_no_place_of_one_machine() -> None:
    for document in DOCUMENTS:
        assert not re.search(r"/(home|Users|root|tmp|work)/", text(document)), document.name


def test_each_integrity_check_has_its_row_in_the_pages_of_checks_and_in_the_runbook() -> None:
    assert text(ROOT / checks_page.PAGE) == checks_page.page_text(), "run make pages"
    runbook = text(ROOT / "docs" / "runbook.md")
    for check in INTEGRITY_CHECKS:
        section = re.split(rf"^##+ {re.escape(check.runbook)}$", runbook, flags=re.MULTILINE)[1]
        rows = [
            line.split("|")[1]
            for line in re.split(r"^##", section, flags=re.MULTILINE)[0].split("\n")
            if line.startswith("|")
        ]
        assert any(f"`{check.name}`" in row for row in rows), check.name


def test_each_check_of_doctor_has_its_row_and_leads_to_a_section() -> None:
    page = text(ROOT / doctor_page.PAGE)
    assert page == doctor_page.page_text(), "run make pages"
    assert re.findall(r"^\| `(\w+)` \| \w+ \|", page, re.MULTILINE) == [check.name for check in ALL_CHECKS]
    for check in ALL_CHECKS:
        file, _, heading = check.link.partition("#")
        assert heading in map(anchor, headings(ROOT / file)), check.name


def test_each_guarantee_names_its_tests_and_each_test_of_a_guarantee_is_named() -> None:
    guaranteed = text(ROOT / "docs/semantics.md").split("## Guaranteed")[1].split("## What becomes")[0]
    rows = [line for line in guaranteed.split("\n") if line.startswith("|") and "---" not in line]
    named = [re.findall(r"`((?:nightly/)?test_\w+\.py)`", row) for row in rows if "| tests |" not in row]
    assert all(named), "a guarantee without a test"
    there = ROOT / "tests/guarantees"
    assert {each for row in named for each in row} == {
        str(path.relative_to(there)) for path in there.rglob("test_*.py")
    }


def test_each_table_under_ops_is_in_the_page_of_tables_and_in_the_architecture() -> None:
    assert text(ROOT / tables_page.PAGE) == tables_page.page_text(), "run make pages"
    described = re.findall(r"^\| `ops/(\w+)` \|", text(ROOT / "docs/architecture.md"), re.MULTILINE)
    assert sorted(described) == sorted(spec.name for spec in OPS_TABLES)


def test_the_architecture_says_what_bounds_each_module_that_collects_on_the_driver() -> None:
    collects = re.compile(
        r"(?<!\bgc)\.collect\(|small_rows\(|toPandas\(|toLocalIterator\(|\.first\(\)|F\.broadcast\(|toArrow\(|inputFiles\("
        r"|collectAsList\("
        r"|consumer\.KafkaConsumer\("
        r"|jvm\.oncelake\.decode\.SetAside\("
    )
    section = text(ROOT / "docs/architecture.md").partition("## What the driver holds")[2]
    rows = re.findall(r"^\| .+ \| (`pipelines/.+`) \| (.+) \|$", section.partition("\n## ")[0], re.MULTILINE)
    listed = {module for modules, _ in rows for module in re.findall(r"`(pipelines/[\w/]+\.py)`", modules)}
    found = {
        str(path.relative_to(ROOT))
        for path in CODE
        if path.parts[len(ROOT.parts)] == "pipelines" and collects.search(text(path))
    }
    assert listed == found
