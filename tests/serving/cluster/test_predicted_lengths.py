"""Predicted lengths of answers: as often wrong as stated, whatever parts the load comes in."""

from __future__ import annotations

import numpy as np
import pytest

from wastenot.serving.cluster.classes import OUTPUT_BELOW
from wastenot.serving.cluster.predicted import Predictor, confusion_of
from wastenot.serving.model.loads import LogNormal, poisson
from wastenot.serving.model.requests import Requests

CONFUSION = np.array([[0.8, 0.15, 0.05], [0.1, 0.6, 0.3], [0.0, 0.25, 0.75]])
EARLIER = poisson(50.0, 100.0, LogNormal(300, 0.5), LogNormal(180, 1.0), seed=3)
LOAD = poisson(200.0, 100.0, LogNormal(300, 0.5), LogNormal(180, 1.0), seed=4)


def kinds(tokens):
    return np.searchsorted(OUTPUT_BELOW, tokens, side="right")


@pytest.mark.parametrize("confusion", [CONFUSION, confusion_of(0.7), np.eye(3)])
def test_kinds_are_confused_as_often_as_stated(confusion):
    told = Predictor(confusion, EARLIER, 5).told(LOAD)
    true, taken = kinds(LOAD.output_tokens), kinds(told)
    for kind in range(3):
        count = np.bincount(taken[true == kind], minlength=3)
        wanted = confusion[kind] * count.sum()
        assert (np.abs(count - wanted) <= 4 * np.sqrt(wanted)).all()
        assert (count[confusion[kind] == 0] == 0).all()


def test_told_lengths_are_those_of_earlier_requests():
    told = Predictor(CONFUSION, EARLIER, 5).told(LOAD)
    assert set(told.tolist()) <= set(EARLIER.output_tokens.tolist())
    for kind in range(3):
        earlier = EARLIER.output_tokens[kinds(EARLIER.output_tokens) == kind]
        assert told[kinds(told) == kind].mean() == pytest.approx(earlier.mean(), rel=0.03)


@pytest.mark.parametrize("size", [1_000, 4_096, 4_097, 19_000])
def test_cutting_changes_nothing(size):
    predictor = Predictor(CONFUSION, EARLIER, (5, 1))
    whole, cut, first = predictor.told(LOAD), [], 0
    while first < len(LOAD):
        columns = (each[first : first + size] for each in (LOAD.arrival_s, LOAD.prompt_tokens, LOAD.output_tokens))
        part = Requests(*columns)
        cut.append(predictor.told(part, first))
        first += len(part)
    np.testing.assert_array_equal(whole, np.concatenate(cut))
    assert (Predictor(CONFUSION, EARLIER, (6, 1)).told(LOAD) != whole).any()


def test_kinds_that_never_came_before_have_a_usual_length():
    short = Requests(np.array([0.0]), np.array([5]), np.array([9]))
    told = Predictor(np.eye(3), short).told(LOAD)
    assert (kinds(told) == kinds(LOAD.output_tokens)).all()
    assert set(told[kinds(told) == 0].tolist()) == {9.0}
    assert len(Predictor(np.eye(3), short).told(short.part(5.0, 6.0))) == 0
