from __future__ import annotations

import numpy as np
import pytest

from wastenot.core.errors import BadInputError
from wastenot.serving.model.requests import log_normal_lengths

TRUE = np.random.default_rng(1).integers(1, 800, 40_000)


def test_a_log_normal_error_has_the_spread_and_the_factor_asked_for() -> None:
    long = TRUE[TRUE > 50]
    ratio = np.log(log_normal_lengths(long, sigma=0.3, factor=2.0, seed=3) / long)
    assert ratio.mean() == pytest.approx(np.log(2.0), abs=0.01)
    assert ratio.std() == pytest.approx(0.3, rel=0.02)


def test_no_error_predicts_the_truth_and_nothing_is_shorter_than_a_token() -> None:
    assert (log_normal_lengths(TRUE, sigma=0.0) == TRUE).all()
    assert log_normal_lengths(TRUE, sigma=3.0).min() == 1.0


def test_errors_that_cannot_be_are_refused() -> None:
    with pytest.raises(BadInputError, match="sigma"):
        log_normal_lengths(TRUE, sigma=-0.1)
    with pytest.raises(BadInputError, match="factor"):
        log_normal_lengths(TRUE, factor=0.0)
