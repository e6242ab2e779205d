"""Documents that are nearly right: valid ones, of which something is deleted, doubled, replaced or broken."""

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

import yaml
from hypothesis import strategies as st

Path = tuple[str | int, ...]
Change = Callable[[Any, Path, Any], None]

_DEEP: Final = 100
_WORDS: Final = (
    *("", " ", "yes", "no", "on", "off", "true", "null", "~", "010", "0x1f", "1_000", "1:30", "1e3", ".nan"),
    *("2013-02-31", "2013-01-01", "=", "<<", "*a", "&a", "!x", "a: b", "- a", "#", "${X}", "${", "%s", "{0}"),
    *("\0", "\t", "\n", "\x1b[31m", "\x85", "\u2028", "\ufeff", "\u0661", "é", "\U0001f600", "..", "/", "\\"),
    *("x" * 5_000, "9" * 5_000, "1" * 400, "-1", "1e999", "NaN", "-0", "+1", "1.0"),
)
ODD: Final[tuple[Any, ...]] = (
    *_WORDS,
    *(None, True, False, 0, -1, 1, 7, 2**31, 2**63, -(2**63) - 1, 10**30, 10**400),
    *(0.5, -0.0, 1e308, float("inf"), float("nan"), date(2013, 1, 1)),
    *([], {}, [None], [[]], {"": None}, {"a": {"b": []}}, ["a", 1], {"value": 1}),
)


def nested(depth: int) -> list[Any]:
    """A list in a list, and so on."""
    node: list[Any] = []
    for _ in range(depth):
        node = [node]
    return node


def paths(tree: Any, above: Path = ()) -> Iterator[Path]:
    """The places of all parts of a document."""
    children = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in children:
        yield (*above, key)
        yield from paths(value, (*above, key))


def at(tree: Any, path: Path) -> Any:
    """What stands at a place."""
    for key in path:
        tree = tree[key]
    return tree


def _holder(tree: Any, path: Path) -> Any:
    return at(tree, path[:-1])


def _delete(tree: Any, path: Path, _: Any) -> None:
    del _holder(tree, path)[path[-1]]


def _replace(tree: Any, path: Path, value: Any) -> None:
    _holder(tree, path)[path[-1]] = value


def _wrap(tree: Any, path: Path, _: Any) -> None:
    _replace(tree, path, [at(tree, path)])


def _double(tree: Any, path: Path, _: Any) -> None:
    holder, key = _holder(tree, path), path[-1]
    if isinstance(holder, list):
        holder.insert(int(key), copy.deepcopy(holder[int(key)]))
    else:
        holder[f"{key}x"] = copy.deepcopy(holder[key])


def _rename(tree: Any, path: Path, value: Any) -> None:
    holder, key = _holder(tree, path), path[-1]
    if isinstance(holder, dict):
        holder[str(value)] = holder.pop(key)


CHANGES: Final[tuple[Change, ...]] = (_delete, _replace, _replace, _replace, _wrap, _double, _rename)


@st.composite
def mutated(draw: st.DrawFn, document: Any) -> Any:
    """The document with one part changed, or a few; a value may come from another place of it."""
    tree = copy.deepcopy(document)
    for _ in range(draw(st.sampled_from([1, 1, 1, 1, 2, 3]))):
        places = list(paths(tree))
        if not places:
            break
        path = draw(st.sampled_from(places))
        elsewhere = st.sampled_from([at(tree, other) for other in places])
        value = draw(st.one_of(st.sampled_from(ODD), elsewhere, st.text(max_size=8)))
        draw(st.sampled_from(CHANGES))(tree, path, copy.deepcopy(value))
    return nested(_DEEP) if draw(st.integers(0, 99)) == 99 else tree


def as_yaml(tree: Any) -> bytes:
    """A document in YAML."""
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True).encode("utf-8", "surrogatepass")


def as_json(tree: Any) -> bytes:
    """A document in JSON."""
    return json.dumps(tree, default=str).encode()


@st.composite
def broken(draw: st.DrawFn, whole: bytes) -> bytes:
    """The bytes, cut off, with a few of them deleted, doubled or replaced, or with one bit changed."""
    begin = draw(st.integers(0, len(whole)))
    end = draw(st.integers(begin, min(begin + 40, len(whole))))
    match draw(st.sampled_from(["cut", "delete", "double", "insert", "flip"])):
        case "cut":
            return whole[:begin]
        case "delete":
            return whole[:begin] + whole[end:]
        case "double":
            return whole[:end] + whole[begin:]
        case "insert":
            words = st.sampled_from(_WORDS).map(str.encode)
            return whole[:begin] + draw(st.one_of(st.binary(max_size=4), words)) + whole[end:]
        case _:
            return (
                whole[:begin]
                + bytes(byte ^ 1 << draw(st.integers(0, 7)) for byte in whole[begin:][:1])
                + (whole[begin + 1 :])
            )


@dataclass(frozen=True)
class Single:
    """One change of a document."""

    document: Any
    path: Path
    change: Change
    value: Any = None

    def made(self) -> Any:
        """The document with this change; its own is left as it is."""
        tree = copy.deepcopy(self.document)
        self.change(tree, self.path, copy.deepcopy(self.value))
        return tree


def single_changes(document: Any, values: Sequence[Any], seen: set[Any]) -> Iterator[Single]:
    """One part missing, doubled, renamed, in a list, or replaced by one of some values.

    Of items of a list the first is changed alone, and places that were seen before are passed over.
    """
    for path in paths(document):
        alike = tuple(step for step in path if isinstance(step, str)), len(path)
        if alike in seen:
            continue
        seen.add(alike)
        for change in (_delete, _double, _wrap, _rename):
            yield Single(document, path, change, f"{path[-1]}_")
        for value in (*values, *near(at(document, path))):
            yield Single(document, path, _replace, value)


def near(value: Any) -> list[Any]:
    """Values that are written nearly so."""
    match value:
        case bool():
            return [str(value), int(value), float(value)]
        case int() | float():
            return [str(value), -value, value * 10**12, value + 0.5, f"{value}_0", f" {value}", bool(value)]
        case str():
            return [f"{value} ", value.upper(), f"{value}\0", f"{value}\n", f'"{value}"', value[:-1], [value]]
        case _:
            return []


def variants(documents: Sequence[Any], written: Callable[[Any], bytes]) -> st.SearchStrategy[bytes]:
    """Bytes that come from valid documents: parts of them changed, or their bytes."""
    of_one = [st.one_of(mutated(each).map(written), broken(written(each))) for each in documents]
    return st.one_of(*of_one)
