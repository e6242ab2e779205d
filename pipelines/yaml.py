"""YAML as configuration and contracts use it: refused with the place, never with what stands there.

A file of settings may hold secrets, so a message gives line and column and not the line itself.
"""

import json
import re
from typing import Any, Final

import yaml

from pipelines.errors import OncelakeError

_TAGS: Final = "tag:yaml.org,2002:"
# YAML 1.1 reads 010 as 8 and 1:30 as 90, which nobody means who writes it.
_NUMBERS: Final = {
    f"{_TAGS}int": re.compile(r"[-+]?(0|[1-9][0-9]*)$"),
    f"{_TAGS}float": re.compile(
        r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+][0-9]+)?$|[-+]?\.(inf|Inf|INF)$|\.(nan|NaN|NAN)$"
    ),
}

# Far beyond any contract; a few lines of aliases to aliases can stand for billions.
_MOST_NODES: Final = 1_000_000

_RESOLVERS: Final = {
    first: [(tag, _NUMBERS.get(tag, pattern)) for tag, pattern in known]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _Loader(yaml.SafeLoader):
    """PyYAML keeps the last of two equal keys without a word, and bounds nothing."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.yaml_implicit_resolvers = _RESOLVERS

    def get_single_node(self) -> yaml.Node | None:
        node: yaml.Node | None = super().get_single_node()
        if node is not None and _written_out(node, {}) > _MOST_NODES:
            raise yaml.MarkedYAMLError(
                problem=f"found aliases (*) that stand for more than {_MOST_NODES:,} values",
                problem_mark=node.start_mark,
            )
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.MarkedYAMLError(problem="found a key twice", problem_mark=key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _written_out(node: yaml.Node, known: dict[int, int]) -> int:
    """Return how many nodes a node is with all aliases written out; what refers to itself counts once."""
    if (size := known.get(id(node))) is None:
        known[id(node)] = size = 1
        if isinstance(node, yaml.MappingNode):
            size += sum(_written_out(part, known) for pair in node.value for part in pair)
        elif isinstance(node, yaml.SequenceNode):
            size += sum(_written_out(part, known) for part in node.value)
        known[id(node)] = size
    return size


def _problem(error: yaml.MarkedYAMLError) -> str:
    """Return what is wrong, without a value: a password may begin with * or !."""
    problem = error.problem or ""
    if problem.startswith("but found another document"):
        return "expected one document, found another that begins"
    if isinstance(error, yaml.composer.ComposerError | yaml.constructor.ConstructorError) or "tag" in problem:
        return "found an alias (*), an anchor (&) or a tag (!) that cannot be resolved (put texts in quotes)"
    return problem


def parse_yaml(text: str, origin: str, refusal: type[OncelakeError]) -> Any:
    """Read one YAML document.

    Args:
        text: the document.
        origin: where it comes from, for the message.
        refusal: what to raise.

    Raises:
        OncelakeError: of the given kind: the text is not YAML, a key stands twice, or a value cannot be,
            such as the 31st of February.
    """
    try:
        values = yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
        # What refers to itself cannot be written down.
        json.dumps(values, default=str, skipkeys=True, ensure_ascii=False).encode()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise refusal(f"{origin}: not valid YAML: {_problem(error)}{place}") from None
    except UnicodeEncodeError:
        raise refusal(
            f"{origin}: not valid YAML: found half of a character, as \\ud83d: write the character itself"
        ) from None
    except yaml.reader.ReaderError as error:
        raise refusal(
            f"{origin}: not valid YAML: the character at position {error.position} is not allowed"
            f" ({error.reason}); save the file as plain text in UTF-8"
        ) from None
    except (yaml.YAMLError, ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise refusal(
            f"{origin}: not valid YAML: a value cannot be read ({type(error).__name__}):"
            " look for dates that do not exist, tags (!!), aliases (*) that refer to themselves, and"
            " values that are nested too deeply"
        ) from None
    return values
