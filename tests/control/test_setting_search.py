"""The search for a setting: on ladders whose truth is known, what is found, how it ends, and what is never tried."""

import math
import random

import pytest

from wastenot.control.candidates import Ladder, ladders_of
from wastenot.control.setting_search import SettingSearch
from wastenot.core.errors import BadInputError, ClocksRefusedError
from wastenot.core.setting import Setting
from wastenot.devices.open import open_device

CLOCKS = Ladder("clock", tuple(Setting(core_mhz=2000.0 * 0.99**index) for index in range(1, 60)))


def truth(setting, free=20.0):
    """Time as of a kernel bound by memory for ``free`` steps, energy least somewhere below."""
    steps = math.log(2000.0 / setting.core_mhz) / -math.log(0.99)
    time = 0.01 * max(steps - free, 0.0)
    return time, time + 0.3 * ((steps / 40.0 - 1.0) ** 2 - 1.0) * 0.5 - time * 0.5


def found(search, seed=0, noise=(0.001, 0.003), most=400, of=truth):
    rng, trials, order = random.Random(seed), 0, []
    while (group := search.next_group()) and trials < most:
        for candidate in group:
            trials += 1
            order.append(candidate.place)
            time, energy = of(candidate.setting)
            if time > search.limit + 0.011:
                search.too_slow(candidate, time)
            else:
                search.add(candidate, time + rng.gauss(0, noise[0]), energy + rng.gauss(0, noise[1]), noise[0] ** 2)
    return trials, order


@pytest.mark.parametrize("allowed", [0.0, 0.02, 0.05, 0.3])
def test_the_best_within_the_bound_is_found(allowed):
    keeps = [setting for setting in CLOCKS.settings if truth(setting)[0] <= math.log1p(allowed) + 1e-3]
    best = min(truth(setting)[1] for setting in keeps)
    for seed in range(5):
        search = SettingSearch([CLOCKS], allowed, seed=seed)
        trials, _ = found(search, seed)
        assert search.winner is not None and search.winner.setting in keeps
        assert truth(search.winner.setting)[1] < best + 0.01
        assert trials < 150 and search.regret <= search.tolerance


def test_nothing_far_slower_than_allowed_is_tried():
    search = SettingSearch([CLOCKS], 0.0)
    _, order = found(search)
    slow = [place for place in order if truth(CLOCKS.settings[place])[0] > 0.01]
    assert len(slow) < 5 and max(truth(CLOCKS.settings[place])[0] for place in order) < 0.13


def test_where_nothing_saves_the_default_clocks_win():
    search = SettingSearch([CLOCKS], 0.02)
    found(search, of=lambda setting: (truth(setting, 0.0)[0], 0.002))
    assert search.winner is None and search.known


def test_a_setting_that_is_refused_is_not_tried_again():
    search = SettingSearch([CLOCKS], 0.02)
    (first,) = search.next_group()
    search.failed(first, "no such clock", at_once=True)
    assert search.next_group() == [] and search.winner is None


def test_a_setting_that_fails_by_pauses_gets_another_chance():
    search = SettingSearch([CLOCKS], 0.02)
    (first,) = search.next_group()
    search.failed(first, "paused")
    assert search.next_group() == [first]


def test_a_rehearsal_walks_down_a_ladder_once():
    search = SettingSearch([CLOCKS], 0.02)
    places = []
    while group := search.next_group():
        places += [each.place for each in group]
        search.rehearse(group[0])
    assert places == sorted(set(places)) and places[0] == 0 and places[-1] == len(CLOCKS.settings) - 1
    assert len(places) < len(CLOCKS.settings) and search.winner is None


def test_ladders_come_from_what_gpus_report():
    clocks, limits = ladders_of([open_device("sim:h200")])
    assert clocks.settings[0] == Setting(core_mhz=1965.0) and limits.settings[0] == Setting(power_limit_w=695.0)
    assert all(0.0 < clocks.ratio(index, index + 1) < 0.03 for index in range(-1, len(clocks.settings) - 1))
    (named,) = ladders_of([open_device("sim:h200")], ("limit",), power_limit_w=(500.0, 600.0))
    assert named.settings == (Setting(power_limit_w=600.0), Setting(power_limit_w=500.0))


@pytest.mark.parametrize(
    ("options", "says"),
    [({"core_mhz": (1201.0,)}, "the nearest is 1200 MHz"), ({"power_limit_w": (20.0,)}, "takes 200 to 700 W")],
)
def test_what_a_gpu_does_not_have_is_refused(options, says):
    with pytest.raises(BadInputError, match=says):
        ladders_of([open_device("sim:h200")], **options)


def test_a_gpu_with_nothing_to_set_is_refused():
    with pytest.raises(ClocksRefusedError, match="neither clocks nor power limits"):
        ladders_of([open_device("sim:h200")], ())
