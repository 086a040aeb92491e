"""Which settings of a batch size are measured, which is held, and what one batch size tells of another."""

import numpy as np
import pytest

from testbed.setting_outlooks import outlook
from wastenot.core.setting import AUTO, Setting
from wastenot.jobs.model.objective import cost
from wastenot.jobs.plan.limits import Limits
from wastenot.jobs.tables.records import JobTerms, Speed

LIMITS = tuple(Setting(power_limit_w=float(watts)) for watts in (300, 260, 220, 180, 140, 100))
CLOCKS = tuple(Setting(core_mhz=float(mhz)) for mhz in range(1500, 500, -100))


def terms(settings=LIMITS, **changes):
    return JobTerms(
        **{
            "name": "job",
            "batch_sizes": (32, 64, 128),
            "default": 64,
            "target": 0.9,
            "settings": settings,
            "max_power_w": 300.0,
        }
        | changes
    )


def true_speed(setting, size=64, *, own=0.9, core=0.8, exponent=2.4):
    """A card whose clock gives way to a limit."""
    static = 0.3
    room = ((setting.power_limit_w or 300.0) / 300.0 / own - static) / (1.0 - static)
    clock = min(room ** (1.0 / exponent), (setting.core_mhz or 1500.0) / 1500.0, 1.0)
    power_w = 300.0 * own * (static + (1.0 - static) * clock**exponent)
    return Speed("card", size, setting, (100.0 + size) * (1.0 - core + core / clock), power_w)


def explored(known, size=64, *, seen_s=3600.0, noise=0.0, seed=0, **card):
    """Measure what is worth it; returns how many slices that took."""
    rng, count = np.random.default_rng(seed), 0
    while (trial := known.next(size, seen_s=seen_s)) is not None and trial.from_s <= seen_s:
        true = true_speed(trial.setting, size, **card)
        time_off, power_off = np.exp(noise * rng.standard_normal(2))
        time_s, power_w = true.epoch_time_s * time_off, true.power_w * power_off
        known.measured(Speed("card", size, trial.setting, time_s, power_w, noise, noise))
        count += 1
        assert count < 60
    return count


def best_of(of, size=64, **card):
    def own(setting):
        true = true_speed(setting, size, **card)
        return float(cost(of, true.epoch_time_s, true.epoch_time_s * true.power_w))

    return min(of.settings, key=own), own


@pytest.mark.parametrize("settings", [LIMITS, CLOCKS])
@pytest.mark.parametrize("eta", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("own", [0.4, 0.9])
def test_the_setting_held_is_within_one_percent_of_the_best(settings, eta, own):
    of = terms(settings, eta=eta)
    for seed in range(3):
        known = Limits(of)
        explored(known, noise=0.005, seed=seed, own=own)
        best, own_cost = best_of(of, own=own)
        assert own_cost(known.best(64)) <= 1.01 * own_cost(best)


def test_settings_far_from_the_best_are_never_run():
    known = Limits(terms(CLOCKS, eta=1.0))
    assert explored(known) < len(CLOCKS)
    assert not known.known(64, CLOCKS[0])  # the fastest one uses the most energy


def test_another_batch_size_needs_fewer_slices():
    alone = after = 0
    for eta in (0.0, 0.25, 0.5, 0.75, 1.0):
        for own in (0.5, 0.9):
            cold, warm = Limits(terms(eta=eta)), Limits(terms(eta=eta))
            explored(warm, 64, own=own)
            after += explored(warm, 128, own=own)
            alone += explored(cold, 128, own=own)
            best, own_cost = best_of(warm.terms, 128, own=own)
            assert own_cost(warm.best(128)) <= 1.01 * own_cost(best)
    assert after < alone


def test_another_card_tells_where_to_begin():
    other = tuple(Setting(power_limit_w=float(watts)) for watts in (700, 600, 500, 400, 300, 250))
    there = Limits(terms(other, max_power_w=700.0, eta=1.0))
    for setting in other:
        like = true_speed(Setting(power_limit_w=setting.power_limit_w * 300.0 / 700.0))
        there.measured(Speed("other", 64, setting, 0.4 * like.epoch_time_s, like.power_w * 700.0 / 300.0))
    told, untold = Limits(terms(eta=1.0), like=there), Limits(terms(eta=1.0))
    best, own_cost = best_of(told.terms)
    assert own_cost(told.best(64)) < own_cost(untold.best(64)) and own_cost(told.best(64)) <= 1.1 * own_cost(best)
    assert not told.measured_at(64)  # nothing counts as measured here
    assert explored(told) <= explored(untold)


def test_a_short_run_is_not_spent_on_slices():
    known = Limits(terms(eta=0.0))
    first = known.next(64, seen_s=0.0)
    assert first is not None and first.from_s == 0.0 and first.setting == known.best(64)
    known.measured(true_speed(first.setting))
    second = known.next(64, seen_s=0.0)
    assert second is None or second.from_s > 0.0


def test_a_single_setting_needs_nothing():
    known = Limits(terms((AUTO,)))
    assert known.best(64) == AUTO and known.next(64, seen_s=1e6) is None


def test_a_time_to_keep_rules_out_what_is_too_slow():
    fastest_s = true_speed(LIMITS[0]).epoch_time_s
    of = terms(within_s=10.0 * 1.1 * fastest_s)
    known = Limits(of)
    for setting in LIMITS:
        known.measured(true_speed(setting))
    held = known.best(64, epochs=10.0)
    fits = [each for each in LIMITS if true_speed(each).epoch_time_s <= 1.1 * fastest_s]
    assert held == min(fits, key=lambda each: true_speed(each).epoch_time_s * true_speed(each).power_w)
    assert known.best(64) == LIMITS[0]  # nothing is known of the epochs


def test_a_power_budget_rules_out_what_uses_more():
    known = Limits(terms(power_budget_w=190.0))
    for setting in LIMITS:
        known.measured(true_speed(setting))
    assert known.best(64) == LIMITS[3]


def test_intervals_hold_and_say_what_was_measured():
    known = Limits(terms())
    explored(known, noise=0.005)
    held = known.best(64)
    _, own_cost = best_of(known.terms)
    inside = 0
    for each in outlook(known, 64):
        assert each.low <= each.cost <= each.high and each.measured == known.known(64, each.setting)
        inside += each.low <= own_cost(each.setting) / own_cost(held) <= each.high
    assert inside >= len(LIMITS) - 1
    assert 0.0 <= known.shortfall(64) < 0.01


def test_a_card_that_reports_no_limit_is_understood_by_what_it_uses():
    known = Limits(terms(CLOCKS, eta=1.0, max_power_w=None))
    assert explored(known, noise=0.003) < 25
    best, own_cost = best_of(known.terms)
    assert own_cost(known.best(64)) <= 1.01 * own_cost(best)


def test_without_energy_the_fastest_is_held():
    known = Limits(terms(eta=0.0, max_power_w=None))
    for setting in LIMITS[:4]:
        known.measured(Speed("card", 64, setting, true_speed(setting, own=0.95).epoch_time_s, None))
    assert known.best(64) == LIMITS[0]
    speed = known.speed("card", 64, LIMITS[0])
    assert speed is not None and speed.power_w is None


def test_the_unit_of_times_does_not_matter():
    known = Limits(terms())
    for setting in LIMITS[:3]:
        known.measured(true_speed(setting))
    before = [each.cost for each in outlook(known, 64)]
    known.scale(64, 50.0)
    assert [each.cost for each in outlook(known, 64)] == pytest.approx(before)
    speed = known.speed("card", 64, LIMITS[0])
    assert speed is not None and speed.epoch_time_s == pytest.approx(50.0 * true_speed(LIMITS[0]).epoch_time_s)


def test_what_is_forgotten_is_measured_anew():
    known = Limits(terms())
    explored(known)
    held = known.best(64)
    known.forget(64)
    assert not known.known(64, held) and known.next(64, seen_s=3600.0) is not None
