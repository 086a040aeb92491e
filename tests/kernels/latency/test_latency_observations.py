"""Latencies one by one: outliers told apart, and the file that a measurement resumes from."""

import numpy as np
import pytest

from wastenot.core.errors import BadInputError
from wastenot.kernels.latency.observations import Notebook, Observation, outliers, summarise

ABOUT = {"device": "a card", "values": [["core", 500.0, 1500.0]]}


def observed(seconds, target=500.0, **changes):
    return Observation("core", 1500.0, target, seconds, **changes)


def test_outliers_are_told_apart_and_jitter_is_not():
    rng = np.random.default_rng(1)
    usual = 0.02 * np.exp(0.3 * rng.standard_normal(400))
    apart = outliers(np.concatenate([usual, [0.2, 0.35, 0.48]]))
    assert apart[-3:].all() and apart[:-3].sum() <= 1
    assert not outliers(np.array([0.02, 0.02, 5.0])).any()  # too few to know


def test_the_summary_holds_the_truth_as_often_as_its_error_says():
    rng, inside = np.random.default_rng(2), 0
    for _ in range(400):
        seconds = 0.02 * np.exp(0.3 * rng.standard_normal(60))
        found = summarise("core", None, 500.0, [observed(each) for each in seconds], 1e-5)
        inside += abs(found.seconds - 0.02) < 1.96 * found.error_s
    assert 0.92 <= inside / 400 <= 0.975


def test_outliers_and_those_never_seen_are_counted_and_change_nothing_else():
    rng = np.random.default_rng(3)
    usual = [observed(each) for each in 0.02 * np.exp(0.1 * rng.standard_normal(100))]
    plain = summarise("core", None, 500.0, usual, 1e-5)
    late = [observed(0.48), observed(0.48), observed(2.0, late=True)]
    found = summarise("core", None, 500.0, [*usual, *late], 1e-5)
    assert (found.switches, found.outliers, found.longest_s) == (103, 3, 2.0)
    assert found.seconds == pytest.approx(plain.seconds, rel=1e-3) and found.jitter == pytest.approx(plain.jitter, rel=0.05)
    assert summarise("core", None, 500.0, [observed(2.0, late=True)], 1e-5) is None


def test_an_interrupted_measurement_is_resumed(tmp_path):
    path = tmp_path / ".l.json.partial"
    first = Notebook(path, ABOUT)
    assert not first.resumed
    first.add([observed(0.02), observed(0.4, late=True)], 1.5)
    first.add([observed(0.021)], 0.5)
    again = Notebook(path, ABOUT)
    assert again.resumed and again.observations == first.observations and again.spent_s == 2.0
    with path.open("a") as file:
        file.write('{"what": "core", "sta')  # the process was killed while it wrote
    assert Notebook(path, ABOUT).observations == first.observations
    again.discard()
    assert not path.exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not an interrupted measurement"),
        ("{}\n", "another device or other values"),
        ("not JSON\n", "is not an interrupted measurement"),
        ('{"device": "a card", "values": [["core", 500.0, 1500.0]]}\n{"what": 1}\n', "is not an interrupted measurement"),
    ],
)
def test_what_is_something_else_is_refused(tmp_path, text, says):
    path = tmp_path / "l.partial"
    path.write_text(text)
    with pytest.raises(BadInputError, match=says):
        Notebook(path, ABOUT)
    assert path.read_text() == text


def test_a_file_cut_short_is_added_to_on_a_line_of_its_own(tmp_path):
    path = tmp_path / "l.partial"
    Notebook(path, ABOUT).add([observed(0.02)], 1.0)
    with path.open("a") as file:
        file.write('{"what": "co')
    Notebook(path, ABOUT).add([observed(0.03)], 1.0)
    assert [each.seconds for each in Notebook(path, ABOUT).observations] == [0.02, 0.03]
