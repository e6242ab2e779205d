"""Orders: objects, arrays and maps in a record."""

import json
from typing import Any

ORDER = {
    "order": {"id": "a-1", "placed_on": "2013-01-01"},
    "placed_at": "2013-01-01T10:00:00Z",
    "total": 12.5,
    "items": [{"sku": "x", "count": 2}, {"sku": "y", "count": 1}],
    "tags": {"b": "2", "a": "1"},
    "seen": ["2013-01-01T10:00:00Z", "2013-01-01T10:00:01.5Z"],
}


def order(**changes: Any) -> bytes:
    """The JSON of one order, with some fields changed; a field set to `...` is left out."""
    fields = {name: value for name, value in {**ORDER, **changes}.items() if value is not ...}
    return json.dumps(fields).encode()
