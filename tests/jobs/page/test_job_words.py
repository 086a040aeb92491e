"""What is said of a job that has hardly run."""

from types import SimpleNamespace

import pytest

from wastenot.jobs.page.words import effect_text


def after(reached, of_default, *, forecast=False):
    """A job after some runs that reached the target at two thirds of the default's cost."""
    default = SimpleNamespace(forecast=forecast, epochs=SimpleNamespace(reached=of_default))
    against = SimpleNamespace(reached=reached, ratio=1 / 3)
    return SimpleNamespace(
        history=["run"] * reached, against_default=against, default=default, terms=SimpleNamespace(default=32)
    )


@pytest.mark.parametrize(
    ("reached", "of_default", "says"),
    [
        (1, 1, "1 run reached the target: too few to compare with the default, batch size 32"),
        (4, 1, "4 runs reached the target; the default, batch size 32, ran only once: too few to compare"),
        (4, 2, "Has cost 66.7 % less than 4 runs of the default, batch size 32 (judged by 2 runs of it)"),
        (4, 3, "Has cost 66.7 % less than 4 runs of the default, batch size 32"),
    ],
)
def test_a_headline_never_rests_on_one_run(reached, of_default, says):
    assert effect_text(after(reached, of_default)).replace("\N{NO-BREAK SPACE}", " ") == says
