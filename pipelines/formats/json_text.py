"""JSON values: the text as it was sent, and whether it is sound as a text, as SQL.

The wrapper `{"r": VALUE}` alone would prove nothing: Spark stops at the end of the first value, and
`{}, "x": 1` goes on as a further member. So the text must be the one element of an array, too. Behind the
end of a value an object goes on with a comma and a name with a colon, or ends; an array goes on with a comma
and a value, or ends with another bracket. What is well-formed in both has nothing behind its end.
"""

from typing import Final

from pipelines.formats.value_format import DOCUMENT, VALUE, DocumentFault
from pipelines.sql import literal

TEXT: Final = "_text"

# Escapes but those of halves of a character that have no other half.
_WHOLE: Final = r"\\[^u]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_HALF: Final = r"\\u[dD][89a-fA-F]"


def document_of_text() -> str:
    """Return SQL that makes the column `_document` of the column `_text`."""
    return f"""concat('{{"{VALUE}":', {TEXT}, '}}') AS {DOCUMENT}"""


def malformed_text() -> DocumentFault:
    """Return the fault of a text other than a JSON document, where the wrapper cannot tell."""
    halves = f"regexp_replace({TEXT}, {literal(_WHOLE)}, ' ') RLIKE {literal(_HALF)}"
    condition = (
        f"NOT is_valid_utf8({TEXT})"
        f" OR coalesce(json_array_length(concat('[', {TEXT}, ']')), 0) != 1"
        f" OR contains({TEXT}, {literal(chr(92) + 'u')}) AND {halves}"
    )
    return DocumentFault(condition, "malformed_json")
