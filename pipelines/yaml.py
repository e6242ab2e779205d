"""YAML as configuration and contracts use it: refused with the place, never with what stands there.

A file of settings may hold secrets, so a message gives line and column and not the line itself.
"""

import json
from typing import Any

import yaml

from pipelines.errors import OncelakeError


class _Loader(yaml.SafeLoader):
    """PyYAML keeps the last of two equal keys without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.MarkedYAMLError(problem="found a key twice", problem_mark=key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


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
        json.dumps(values, default=str, skipkeys=True)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise refusal(f"{origin}: not valid YAML: {error.problem}{place}") from None
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
