"""Synthetic traffic: as many requests as its curve says, as long and as correlated as asked, however it is cut."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from wastenot.core.errors import BadInputError
from wastenot.serving.cluster.traffic import Distribution, RateCurve, SyntheticTraffic, read_curve, read_distribution

CURVE = RateCurve(300.0, np.array([10.0, 0.0, 40.0, 25.0]))
LENGTHS = Distribution(np.array([0.0, 0.5, 1.0]), np.array([1.0, 100.0, 4000.0]))


def traffic(correlation=0.3, seed=0, curve=CURVE):
    return SyntheticTraffic(curve, LENGTHS, LENGTHS, correlation, seed)


def joined(parts):
    return [
        np.concatenate(each)
        for each in zip(*((one.arrival_s, one.prompt_tokens, one.output_tokens) for one in parts), strict=True)
    ]


def test_each_slot_has_as_many_as_its_rate_says():
    came_s = joined(traffic().parts())[0]
    count = np.histogram(came_s, np.arange(5) * 300.0)[0]
    assert (np.abs(count - CURVE.rate_per_s * 300) <= 5 * np.sqrt(CURVE.rate_per_s * 300)).all()


@pytest.mark.parametrize("part_s", [37.0, 300.0, 450.0, 1e6])
def test_cutting_changes_nothing(part_s):
    whole, parts = joined(traffic().parts(1200.0)), list(traffic().parts(part_s))
    for one, other in zip(whole, joined(parts), strict=True):
        np.testing.assert_array_equal(one, other)
    for number, part in enumerate(parts):
        assert ((part.arrival_s >= number * part_s) & (part.arrival_s < (number + 1) * part_s)).all()


def test_seeds_differ():
    first, second = (joined(traffic(seed=seed).parts())[0] for seed in (0, 1))
    assert len(first) != len(second) or (first != second).any()


@pytest.mark.parametrize("correlation", [-0.5, 0.0, 0.4, 1.0])
def test_lengths_have_their_distribution_and_rank_correlation(correlation):
    _, prompt, output = joined(traffic(correlation, curve=CURVE.with_mean(40.0)).parts())
    assert spearmanr(prompt, output)[0] == pytest.approx(correlation, abs=0.03)
    for tokens in (prompt, output):
        assert np.mean(tokens <= 100) == pytest.approx(0.5, abs=0.015)
        assert np.mean(tokens <= 2050) == pytest.approx(0.75, abs=0.015)
        assert tokens.min() >= 1 and tokens.max() <= 4000


def test_a_flash_crowd_adds_what_it_says():
    flat = RateCurve(300.0, np.full(4, 50.0))
    crowd = flat.with_crowd(3.0, 240.0, 60.0, 360.0)
    assert crowd.duration_s == flat.duration_s
    added = (crowd.rate_per_s.sum() * crowd.slot_s) - 50.0 * 1200
    assert added == pytest.approx(50.0 * 2 * (60 / 2 + 300))
    came_s = joined(traffic(curve=crowd).parts())[0]
    for begin_s, end_s, wanted in ((0, 240, 12000), (240, 300, 6000), (300, 600, 45000), (600, 1200, 30000)):
        assert abs(((came_s >= begin_s) & (came_s < end_s)).sum() - wanted) <= 5 * np.sqrt(wanted)
    with pytest.raises(BadInputError, match="flash crowd"):
        flat.with_crowd(3.0, 1300.0, 60.0, 360.0)


def test_bad_curves_say_where(tmp_path):
    file = tmp_path / "curve.csv"
    file.write_text("t,rpm\n0,5\n60,many\n")
    with pytest.raises(BadInputError, match=r"curve\.csv:3: must be a time"):
        read_curve(file)
    file.write_text("t,rpm\n0,5\n60,5\n300,5\n")
    with pytest.raises(BadInputError, match="evenly spaced"):
        read_curve(file)
    with pytest.raises(BadInputError, match="cannot be read"):
        read_curve(tmp_path / "none.csv")


def test_week_of_the_digitised_figures(shared_data):
    curve = read_curve(shared_data / "serving" / "azure2024_week_conv_rpm_digitised.csv")
    assert curve.duration_s == 7 * 86400 and curve.slot_s == 300
    lengths = [
        read_distribution(shared_data / "serving" / "azure2024_week_token_cdf_digitised.csv", "conv", field)
        for field in ("ContextTokens", "GeneratedTokens")
    ]
    count = sum(len(part) for part in SyntheticTraffic(curve.with_mean(2.0), *lengths).parts())
    assert abs(count - 2 * 7 * 86400) <= 5 * np.sqrt(2 * 7 * 86400)
