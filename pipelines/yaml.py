"""YAML as configuration and contracts use it: refused with the place, never with what stands there.

A file of settings may hold secrets, so a message gives line and column and not the line itself.

What YAML 1.1 reads in another way than people write it is text, as in YAML 1.2: `010`, `1:30`, `1_000`, `no`.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

import yaml

from pipelines.errors import OncelakeError

_TAGS: Final = "tag:yaml.org,2002:"
_STRING: Final = f"{_TAGS}str"
_MERGE: Final = f"{_TAGS}merge"
_PLAIN: Final = {
    f"{_TAGS}int": re.compile(r"[-+]?(0|[1-9][0-9]*)$"),
    f"{_TAGS}float": re.compile(
        r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+][0-9]+)?$|[-+]?\.(inf|Inf|INF)$|\.(nan|NaN|NAN)$"
    ),
    f"{_TAGS}bool": re.compile(r"(true|True|TRUE|false|False|FALSE)$"),
}

_RESOLVERS: Final = {
    first: [(tag, _PLAIN.get(tag, pattern)) for tag, pattern in known]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_FORMS: Final = {tag: pattern for known in _RESOLVERS.values() for tag, pattern in known}
"""How a value is written that is no text, by its tag."""

_SEQUENCE: Final = f"{_TAGS}seq"
_MAPPING: Final = f"{_TAGS}map"
# Deeper than any contract, and far from where Python ends.
_DEEPEST: Final = 64
# A few lines of aliases stand for more than any memory holds.
_MOST_PARTS: Final = 500_000


@dataclass(frozen=True)
class _Extent:
    """How large a part of a document is, with what its aliases stand for."""

    levels: int
    parts: int


class _Loader(yaml.SafeLoader):
    """PyYAML keeps the last of two equal keys without a word, and bounds nothing."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.yaml_implicit_resolvers = _RESOLVERS

    def document(self) -> Any:
        """Return what the one document says.

        Raises:
            YAMLError, ValueError, KeyError, AttributeError, TypeError, RecursionError: It cannot be read.
        """
        try:
            node = self.get_single_node()
            if node is None:
                return None
            _extent(node, {})
            return self.construct_document(node)
        finally:
            self.dispose()


def _extent(node: yaml.Node, known: dict[int, _Extent | None]) -> _Extent:
    """Return how large a part is.

    Args:
        node: The part.
        known: Parts that were looked at before, by their identity; None for those that this one lies in.

    Raises:
        MarkedYAMLError: It is too large, or it or a part of it cannot be.
    """
    if id(node) in known:
        extent = known[id(node)]
        if extent is None:
            raise _refused("found an alias (*) that refers to itself", node)
        return extent
    known[id(node)] = None
    match node:
        case yaml.MappingNode(tag=tag) if tag == _MAPPING:
            _require_keys(node)
            inner = [_extent(part, known) for pair in node.value for part in pair]
        case yaml.SequenceNode(tag=tag) if tag == _SEQUENCE:
            inner = [_extent(part, known) for part in node.value]
        case _:
            _require_scalar(node)
            inner = []
    extent = _Extent(
        1 + max((part.levels for part in inner), default=0), 1 + sum(part.parts for part in inner)
    )
    if extent.levels > _DEEPEST:
        raise _refused(f"found more than {_DEEPEST} levels", node)
    if extent.parts > _MOST_PARTS:
        raise _refused(f"found more than {_MOST_PARTS:,} values, with those of aliases (*)", node)
    known[id(node)] = extent
    return extent


def _require_keys(node: yaml.MappingNode) -> None:
    seen: set[str] = set()
    for key, _ in node.value:
        if key.tag not in (_STRING, _MERGE):
            raise _refused("found a key that is no text (put it in quotes)", key)
        if key.value in seen:
            raise _refused("found a key twice", key)
        seen.add(key.value)


def _require_scalar(node: yaml.Node) -> None:
    if node.tag == _STRING:
        if "\0" in node.value:
            raise _refused("found the character \\0, which no value may have", node)
        # Half of a character cannot be written down.
        node.value.encode()
    # One whose form is another has been given its tag.
    elif not (form := _FORMS.get(node.tag)) or not form.match(str(node.value)):
        raise yaml.constructor.ConstructorError(problem_mark=node.start_mark)


def _refused(problem: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


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
        text: The document.
        origin: Where it comes from, for the message.
        refusal: What to raise.

    Raises:
        OncelakeError: Of the given kind: the text is not YAML, a key stands twice or is no text, or a value
            cannot be, such as the 31st of February.
    """
    try:
        return _Loader(text).document()
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
            " look for dates that do not exist, numbers of thousands of digits, and values that are nested"
            " too deeply"
        ) from None
