"""Sections of the runbook, followed as they are written, in a project folder of their own."""

import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import click
from click.testing import CliRunner
from pyspark.sql import DataFrame

from pipelines.cli.app import oncelake
from pipelines.config.loader import load_config
from pipelines.config.model import PipelineConfig
from pipelines.spark.session import forget_tables
from pipelines.steps.loading import open_pipeline
from pipelines.steps.serving import read_serving
from tests.support.cli_calls import outcome
from tests.support.click_groups import commands_in

ROOT: Final = Path(__file__).resolve().parents[2]
RUNBOOK: Final = ROOT / "docs/runbook.md"
_BLOCK: Final = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ROW: Final = re.compile(r"^\| (\d) \| (.+?) \| (.+) \|$", re.MULTILINE)
# Of one part of the message, as the table has it.
_QUOTED: Final = re.compile(r"`([^`]+)`")
Language = Literal["sh", "python"]


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        language: In which it is written.
        text: What is in it.
    """

    language: Language
    text: str


def anchor(heading: str) -> str:
    """Return the part behind # that leads to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def section(heading: str) -> str:
    """Return the text under a heading, up to the next one of the same level or a higher one."""
    text = RUNBOOK.read_text(encoding="utf-8")
    found = re.search(rf"^(##+) {re.escape(heading)}\n", text, re.MULTILINE)
    assert found is not None, f"the runbook has no section {heading!r}"
    return re.split(rf"^##{{0,{len(found[1]) - 2}}}# ", text[found.end() :], maxsplit=1, flags=re.MULTILINE)[
        0
    ]


def block(heading: str, holds: str) -> Block:
    """Return the only block of a section that holds some words."""
    found = [Block(kind, text) for kind, text in _BLOCK.findall(section(heading)) if holds in text]
    assert len(found) == 1, f"{heading!r} has {len(found)} blocks with {holds!r}"
    return found[0]


def leads_to(code: int, message: str) -> set[str]:
    """Return the anchors of the sections to which the table of messages sends whoever sees a message."""
    rows = _ROW.findall(section("Start here"))
    return {
        link
        for row_code, words, then in rows
        if int(row_code) == code and any(is_said(quoted, message) for quoted in _QUOTED.findall(words))
        for link in re.findall(r"\(#([\w-]+)\)", then)
    }


def is_said(words: str, message: str) -> bool:
    """Return whether words of the table are in a message; `…` and DAY stand for values."""
    parts = [re.escape(part.strip()) for part in re.split(r"…|\bDAY\b", words) if part.strip()]
    return re.search(".*".join(parts), message) is not None


class Project:
    """A project folder with the pipelines of the checkout, in which commands are called as they are written.

    The environment is `local`, so the lake is `.lake` in the folder, in which the process must be.

    Attributes:
        folder: The folder.
        lake: The lake's folder.
        session: What the Python blocks that were followed have named.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lake = folder / ".lake"
        self.session: dict[str, Any] = {}

    @classmethod
    def laid_out(cls, folder: Path, servers: str, topic: str) -> "Project":
        """Make the folder, with a contract that allows days of few rows.

        Args:
            folder: It must not be there yet.
            servers: The cluster.
            topic: The topic of flights.
        """
        for part in ("conf", "data_contracts"):
            shutil.copytree(ROOT / part, folder / part)
        project = cls(folder)
        project.edit("conf/local/oncelake.yml", "localhost:9092", servers)
        project.edit("conf/base/pipelines/flights.yml", "topic: flights", f"topic: {topic}")
        project.edit("data_contracts/flights.odcs.yaml", "[500, 1500]", "[0, 50]")
        return project

    def copied(self, folder: Path) -> "Project":
        """Return the same project, with a lake that goes on by itself."""
        shutil.copytree(self.folder, folder)
        return Project(folder)

    def edit(self, file: str, old: str, new: str) -> None:
        """Replace the only place of a file that has some words."""
        text = (self.folder / file).read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{file} has {old!r} {text.count(old)} times"
        (self.folder / file).write_text(text.replace(old, new), encoding="utf-8")

    def lose(self, *places: str) -> None:
        """Delete folders of the lake."""
        for place in places:
            shutil.rmtree(self.lake / place)
        # A job is a session of its own, which knows nothing of the tables that were here.
        forget_tables()

    def put_back(self, backup: Path) -> None:
        """Put the whole lake back as it was copied to a folder."""
        shutil.rmtree(self.lake, ignore_errors=True)
        shutil.copytree(backup, self.lake)
        forget_tables()

    def config(self, pipeline: str = "flights") -> PipelineConfig:
        """Return the configuration of a pipeline."""
        return load_config(pipeline, conf_dir=self.folder / "conf")

    def served(self, pipeline: str = "flights") -> DataFrame:
        """Return what readers get."""
        return read_serving(open_pipeline(pipeline))

    def call(self, line: str) -> tuple[int, dict[str, Any]]:
        """Call `oncelake ...` as it is written, and return its exit code and its summary, if it has one."""
        words = shlex.split(line, comments=True)
        assert words[0] == "oncelake", line
        path = next((n for n, word in enumerate(words) if word.startswith("-")), len(words))
        if _has_summary(words[1:path]):
            return outcome(" ".join(words[1:path]), *words[path:])
        done = CliRunner().invoke(oncelake, words[1:])
        assert done.exception is None, f"{line}: {done.output}{done.exception}"
        return done.exit_code, {}

    def done(self, line: str) -> dict[str, Any]:
        """Call a command, which must end well, and return its summary."""
        code, summary = self.call(line)
        assert code == 0, f"{line}: {code}: {summary.get('error')}"
        return summary

    def refused(self, line: str, code: int, heading: str) -> str:
        """Call a command, which must end with an exit code and a message that leads to a section."""
        found, summary = self.call(line)
        message: str = summary["error"]
        assert (found, anchor(heading) in leads_to(code, message)) == (code, True), f"{found}: {message}"
        return message

    def follow(self, heading: str, holds: str, **words: str) -> list[dict[str, Any]]:
        """Do what a block of a section says.

        Args:
            heading: The section.
            holds: Words that only this one of its blocks has.
            words: What stands for words in capitals, such as FIRST.

        Returns:
            The summaries of its commands.
        """
        found = block(heading, holds)
        text = re.sub(r"\b[A-Z][A-Z_]*\b", lambda word: words.get(word[0], word[0]), found.text)
        match found.language:
            case "sh":
                return list(self._run(text))
            case "python":
                pipeline = open_pipeline("flights", env="local")
                self.session |= {"pipeline": pipeline, "spark": pipeline.spark, "config": pipeline.config}
                exec(text, self.session)  # noqa: S102 - the runbook's own
        return []

    def _run(self, script: str) -> "list[dict[str, Any]]":
        others, summaries = list[str](), list[dict[str, Any]]()
        for line in [*script.splitlines(), "oncelake"]:
            if not line.startswith("oncelake"):
                others.append(line)
                continue
            if others:
                subprocess.run(["/bin/sh", "-ec", "\n".join(others)], cwd=self.folder, check=True)
                forget_tables()
                others = []
            if line != "oncelake":
                summaries.append(self.done(line))
        return summaries


def _has_summary(path: list[str]) -> bool:
    """Whether a command takes `--log-format`."""
    command: click.Command = oncelake
    for word in path:
        assert isinstance(command, click.Group)
        command = commands_in(command)[word]
    return any("--log-format" in option.opts for option in command.params)
