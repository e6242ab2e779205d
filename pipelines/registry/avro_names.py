"""Names of types in Avro schemas.

Source: https://avro.apache.org/docs/1.12.0/specification/#names
"""

from collections.abc import Mapping
from typing import Any


def names_of(node: Mapping[str, Any], space: str) -> tuple[str, str]:
    """Return the full name of a type, and the namespace of the names within it.

    Args:
        node: The type, as parsed JSON. A list or a map has no name, and the namespace around it.
        space: The namespace around it; empty if there is none.
    """
    name = str(node.get("name", ""))
    if not name:
        return "", space
    if "." in name:
        return name, name.rpartition(".")[0]
    own = node.get("namespace")
    # Java reads null as if nothing was said, and an empty text as no namespace.
    inner = space if own is None else str(own)
    return f"{inner}.{name}" if inner else name, inner
