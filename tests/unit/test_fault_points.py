"""Accidents happen at named points, and no test depends on the name of a private function."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from pipelines.fault_points import Point, armed, reach

OWN = ("pipelines", "jobs", "demo", "benchmarks", "simulation", "chaos", "testbed", "scripts")
CODE = sorted(path for name in OWN for path in Path(name).rglob("*.py"))
POINTS = Path("pipelines/fault_points.py")
TESTS = sorted(path for path in Path("tests").rglob("*.py") if path.name != Path(__file__).name)


def test_a_point_that_nobody_has_armed_does_nothing() -> None:
    for point in Point:
        reach(point)


def test_what_happens_at_a_point_happens_there_each_time_and_only_within_the_block() -> None:
    times: list[Point] = []
    with armed(Point.DAYS_BUILT, lambda: times.append(Point.DAYS_BUILT)):
        for _ in range(2):
            reach(Point.DAYS_BUILT)
            reach(Point.DAYS_KEPT)
    reach(Point.DAYS_BUILT)
    assert times == [Point.DAYS_BUILT] * 2


def test_a_point_is_free_again_when_what_happens_there_has_failed() -> None:
    def die() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), armed(Point.DAYS_BUILT, die):
        reach(Point.DAYS_BUILT)
    reach(Point.DAYS_BUILT)


def test_two_accidents_at_one_point_are_refused() -> None:
    with (
        armed(Point.DAYS_BUILT, lambda: None),
        pytest.raises(RuntimeError, match=r"DAYS_BUILT.* is armed already"),
        armed(Point.DAYS_BUILT, lambda: None),
    ):
        pass


@cache
def nodes_of(path: Path, name: str) -> list[ast.AST]:
    """All nodes of a module that has a name somewhere in its text; none of another."""
    text = path.read_text()
    return list(ast.walk(ast.parse(text))) if name in text else []


def points_in(path: Path) -> list[str]:
    """The points that a module names."""
    nodes = nodes_of(path, "Point")
    return [node.attr for node in nodes if isinstance(node, ast.Attribute) and is_named(node.value, "Point")]


def calls(path: Path, name: str) -> list[ast.Call]:
    return [node for node in nodes_of(path, name) if isinstance(node, ast.Call) and is_named(node.func, name)]


def is_named(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def test_each_point_is_reached_by_code_and_used_by_a_test() -> None:
    reached = [
        argument.attr
        for path in CODE
        for name in ("reach", "stop_at")
        for call in calls(path, name)
        for argument in call.args
        if isinstance(argument, ast.Attribute)
    ]
    used = {name for path in TESTS for name in points_in(path)}
    assert set(reached) == used == set(Point.__members__)


def test_each_point_says_at_what_moment_it_lies() -> None:
    (members,) = (node.body for node in ast.parse(POINTS.read_text()).body if isinstance(node, ast.ClassDef))
    told = [isinstance(node, ast.Expr) for node in members[1:]]
    assert told == [False, True] * len(Point)


def test_only_tests_let_accidents_happen() -> None:
    assert [str(path) for path in CODE if calls(path, "armed")] == []


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def own_names(tree: ast.Module) -> set[str]:
    """The names by which a test knows what is ours."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OWN:
            found |= {each.asname or each.name for each in node.names}
        elif isinstance(node, ast.Import):
            named = [each for each in node.names if each.name.split(".")[0] in OWN]
            found |= {each.asname or each.name.split(".")[0] for each in named}
    return found


_NAMES_OF_PLACES = ("target", "in_dict", "name", "attribute")


def place_of(call: ast.Call) -> tuple[ast.expr | None, ast.expr | None, ast.expr | None]:
    """Where a call puts something else: by a text, or at an object, which may have the name beside it."""
    function = call.func
    named = {each.arg: each.value for each in call.keywords if each.arg in _NAMES_OF_PLACES}
    first, second, *_ = [*call.args, *named.values(), None, None]
    name = getattr(function, "attr", getattr(function, "id", ""))
    of = function.value if isinstance(function, ast.Attribute) else None
    if name == "patch" or (name == "setattr" and len(call.args) + len(call.keywords) == 2):
        return first, None, None
    if name in ("setattr", "delattr"):
        return None, first, second
    if name in ("object", "multiple", "dict") and getattr(of, "attr", getattr(of, "id", "")) == "patch":
        return None, first, second if name == "object" else None
    return None, None, None


def faults_of(call: ast.Call) -> Iterator[str]:
    """What is wrong with a patch: where a rename breaks it, neither mypy nor a search would tell."""
    text, target, name = place_of(call)
    if text and not isinstance(text, ast.Constant):
        yield "a text that is not written there"
    for given in (text, target):
        if isinstance(given, ast.Constant) and str(given.value).split(".")[0] in OWN:
            yield f"a dotted text: {given.value!r}"
    for node in ast.walk(target) if target else ():
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            yield f"a private object: {node.attr}"
    if name and not isinstance(name, ast.Constant):
        yield "a name that is not written there"
    if isinstance(name, ast.Constant) and is_private(str(name.value)):
        yield f"a private name: {name.value!r}"


def patches_of_privates(text: str) -> list[tuple[int, str]]:
    tree = ast.parse(text)
    own, found = own_names(tree), list[tuple[int, str]]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            found += [(node.lineno, fault) for fault in faults_of(node)]
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Attribute) and getattr(target.value, "id", None) in own:
                    found.append((node.lineno, f"an attribute that is set for good: {target.attr}"))
    return found


def test_no_test_patches_by_a_dotted_text_or_a_private_name() -> None:
    found = {str(path): patches_of_privates(path.read_text()) for path in TESTS}
    assert {path: faults for path, faults in found.items() if faults} == {}


@pytest.mark.parametrize(
    "line",
    [
        "patch.setattr('pipelines.steps.nightly.audit', die)",
        "patch.setattr('demo.source.read', die)",
        "patch.setattr(f'pipelines.steps.nightly.{step}', die)",
        "patch.setattr(step, die)",
        "patch.setattr(leases, '_held', die)",
        "patch.setattr(publishing._Job, 'run', die)",
        "patch.setattr(forgetting, step, die)",
        "patch.setattr(leases, name='_held', value=die)",
        "patch.setattr(target=leases, name='_held', value=die)",
        "patch.object(target=leases, attribute='_held', new=die)",
        "patch.delattr(leases, '_held')",
        "setattr(leases, '_held', die)",
        "patch('pipelines.steps.nightly.audit', die)",
        "patch(step, die)",
        "mock.patch('pipelines.steps.nightly.audit', die)",
        "patch.object(leases, '_held', die)",
        "mock.patch.object(leases, '_held', die)",
        "patch.dict('pipelines.audit.CHECKS', {})",
        "leases.RETRIES = 1",
    ],
)
def test_patching_private_names_is_detected(line: str) -> None:
    assert len(patches_of_privates(f"from pipelines.ledger import leases\n{line}")) == 1


@pytest.mark.parametrize(
    "line",
    [
        "patch.setattr(leases, 'replace_partition_fenced', die)",
        "patch.setattr(Publisher, '__call__', die)",
        "patch.setattr(time, 'sleep', die)",
        "patch.setattr('tenacity.nap.time.sleep', die)",
        "patch.object(leases, 'replace_partition_fenced', die)",
        "lake._ingested = numbers",
    ],
)
def test_patching_public_names_is_allowed(line: str) -> None:
    assert patches_of_privates(f"from pipelines.ledger import leases\n{line}") == []
