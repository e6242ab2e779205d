"""What is fuzzed: a reader, the inputs that it is given, and what must hold of each."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from hypothesis import strategies as st

from pipelines.cli.terminal import harmless_lines
from pipelines.errors import OncelakeError
from tests.fuzz.mutants import as_json, single_changes, variants

YAML = "conf/x.yml: not valid YAML: "
_LONGEST = 50_000
# How pydantic begins and ends its sentences.
_RAW = re.compile(
    r"(Input|String|List|Tuple|Dictionary) should|valid (string|integer|number|boolean|tuple)"
    r"|validation errors? for"
)


@dataclass(frozen=True)
class Target:
    """A reader of texts.

    Attributes:
        check: reads an input; fails unless it is read as what it says, or refused.
        documents: valid documents.
        written: how a document is written down.
        texts: other inputs.
    """

    check: Callable[[bytes], None]
    documents: Sequence[Any] = ()
    written: Callable[[Any], bytes] = as_json
    texts: st.SearchStrategy[bytes] | None = None

    @property
    def inputs(self) -> st.SearchStrategy[bytes]:
        """What it is given at random."""
        of_documents = variants(self.documents, self.written)
        return of_documents if self.texts is None else st.one_of(of_documents, self.texts)

    def cases(self, values: Sequence[Any], one_of: int = 1) -> Iterator[bytes]:
        """Every document with one part missing, renamed, doubled, or replaced by one of these values.

        Args:
            values: what parts are replaced by.
            one_of: only one of so many.
        """
        seen: set[Any] = set()
        changes = chain.from_iterable(single_changes(each, values, seen) for each in self.documents)
        for change in islice(changes, 0, None, one_of):
            yield self.written(change.made())


def require_told(refusal: OncelakeError, *places: str, hides: str | None = None) -> None:
    """A refusal can be shown: it names a place, in lines for people, and is no trace or secret."""
    message = str(refusal)
    assert hides is None or hides not in message, message
    assert any(place in message for place in places), message
    assert all(line.strip() for line in message.split("\n")), message
    assert "Traceback" not in message
    assert "pydantic" not in message
    assert not _RAW.search(message), message
    assert not message.startswith(YAML) or "\n" not in message
    assert len(harmless_lines(message)) < _LONGEST, message[:1_000]
