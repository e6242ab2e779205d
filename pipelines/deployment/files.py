"""The files that are written: documents of YAML or JSON behind comments, always with the same bytes."""

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

_ODD: Final = re.compile("[\r\x85\u2028\u2029\ufeff]")
_WIDTH: Final = 110
Document = Mapping[str, Any]


@dataclass(frozen=True)
class DeploymentFile:
    """A file.

    Attributes:
        name: Its name in the folder.
        text: What is in it.
    """

    name: str
    text: str


class _Dumper(yaml.SafeDumper):
    """Writes what stands in two places twice, as people read it."""

    def ignore_aliases(self, data: Any) -> bool:
        """Return that there are none."""
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """Return text as it is written: files as lines, where YAML allows it."""
        # PyYAML would write other ends of lines as they are, and read spaces.
        style = '"' if _ODD.search(data) else "|" if "\n" in data else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Dumper.add_representer(str, _Dumper.represent_str)


def yaml_file(name: str, comments: Sequence[str], documents: Sequence[Document]) -> DeploymentFile:
    """Return a file of YAML.

    Args:
        name: Its name.
        comments: Paragraphs at its beginning.
        documents: Plain values; all texts are quoted as YAML needs it.
    """
    parts = [
        yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=_WIDTH, allow_unicode=True)
        for document in documents
    ]
    return DeploymentFile(name, commented(comments) + "---\n".join(parts))


def json_file(name: str, document: Document) -> DeploymentFile:
    """Return a file of JSON, which has no comments."""
    return DeploymentFile(name, json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def commented(paragraphs: Sequence[str]) -> str:
    """Return paragraphs as lines of comments."""
    lines = (line for text in paragraphs for line in textwrap.wrap(text, _WIDTH - 2, break_long_words=False))
    return "".join(f"# {line}\n" for line in lines)
