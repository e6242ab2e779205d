"""What explains a difference between the layers is defined once, for audits and for `oncelake explain`."""

from dataclasses import fields
from typing import get_args

from pipelines.ledger.layer_samples import Difference, Explanation, Explanations, LayerDifference
from pipelines.lineage.outcome import OutcomeKind


def test_each_explanation_is_given_counted_and_told() -> None:
    explanations, unexplained = set(get_args(Explanation)), "missing"
    assert {each.name for each in fields(Explanations)} == explanations
    assert {*get_args(Difference)} == {*explanations, unexplained, "extra", "other_copy"}
    assert {each.name for each in fields(LayerDifference)} == {*get_args(Difference), "samples"}
    assert {*get_args(OutcomeKind)} == {*explanations, unexplained, "winner", "duplicate", "conflict"}


def test_explanations_are_tried_in_the_order_of_precedence() -> None:
    given = Explanations(remembered=4, pending=3, quarantined=2, late=1)
    assert given.by_precedence() == [("late", 1), ("quarantined", 2), ("pending", 3), ("remembered", 4)]
