"""Where a nightly run may be stopped is said once: by fault points, in the order of the run."""

import ast
import inspect
from itertools import groupby

from pipelines.fault_points import Point, armed
from pipelines.nightly.commit_order import steps, stop_at
from pipelines.nightly.night_run import NightRun
from tests.support.delta_model import ModelNight, World

STOPS = [
    *(Point.LEASE_HELD, Point.DAYS_DUE, Point.BATCH_CLAIMED, Point.DAYS_BUILT),
    *(Point.DAYS_AUDITED, Point.DAYS_KEPT, Point.VERDICTS_WRITTEN),
]


def stops_of_code() -> list[Point]:
    """The points at which the real run stops, as its code names them."""
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(NightRun))) if isinstance(node, ast.Call)]
    stops = [call for call in calls if getattr(call.func, "id", "") == "stop_at"]
    ordered = sorted(stops, key=lambda call: call.lineno)
    return [Point[each.attr] for call in ordered for each in call.args if isinstance(each, ast.Attribute)]


def test_the_real_run_and_its_model_stop_at_the_same_points_in_the_order_of_their_documentation() -> None:
    model = ModelNight(World(), "model", frozenset({1, 2}), frozenset({2}))
    # The model claims the ledger by a commit of its own, where the real run does it with the lease.
    taken, *stopped = [point for point, _ in groupby(steps(model))]
    assert taken is Point.LEASE_WRITTEN
    assert stopped == stops_of_code() == STOPS
    assert [point for point in Point if point in STOPS] == STOPS


def test_a_point_is_reached_before_the_run_stops_at_it() -> None:
    reached: list[str] = []
    with armed(Point.DAYS_BUILT, lambda: reached.append("reached")):
        assert list(stop_at(Point.DAYS_BUILT)) == [Point.DAYS_BUILT]
    assert reached == ["reached"]
