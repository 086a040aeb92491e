"""Programs that report no iterations: units of memory traffic stand for them, and what that may be off by is learned."""

import math
from functools import partial

import numpy as np
import pytest

from testbed.changed_jobs import Change, ChangedCourse
from testbed.scheduled_jobs import SUBJECT, gpu, programme
from testbed.unhooked_jobs import LeakyCourse, UnheardController, UnheardTuner, in_turn
from wastenot.control.candidates import ladders_of
from wastenot.control.marker import ITERATION
from wastenot.control.one_setting import Change as AtSetting, one_setting
from wastenot.control.page.line import live_text
from wastenot.control.page.story import proxy_text
from wastenot.control.proxy_error import learn, learned
from wastenot.control.simulated_job import run_job
from wastenot.control.traffic import Traffic, Units, traffic_of, unit_of
from wastenot.control.tuned_plan import tuned_plan
from wastenot.control.tuner import Tuner
from wastenot.core.errors import DeviceError
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.open import open_device
from wastenot.devices.simulated.course import Course
from wastenot.planning.switching import switch_time

PROGRAMME = programme()


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    """Nothing was learned on this machine."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def tuner_of(kind, device, allowed, clocks=(1890.0, 1800.0, 1710.0, 1605.0, 1500.0), **options):
    ladders = ladders_of([device], ["clock"], core_mhz=clocks)
    return kind([device], SUBJECT, allowed, ladders=ladders, traffic=Traffic([device]), **options)


def time_change(device, setting):
    course = Course(device.engine.physics, PROGRAMME.tasks, PROGRAMME.order, [0])
    auto, own = (course.until(each, device.engine.temperature_c)[0][-1] for each in (AUTO, setting))
    return own / auto - 1.0


def mean_mhz(course, setting):
    """Core clock in effect, over an iteration."""
    table = course._tabulate(setting, 60.0)
    return table.until_mhz[-1] / table.until_s[-1]


# ---- the unit ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("period_s", "units"), [(None, {1}), (3.0, {1, 2}), (0.3, {None})])
def test_a_unit_is_a_second_or_as_many_phases_as_take_alike(period_s, units):
    moments_s = np.arange(0.0, 60.0, 0.01)
    rate = 0.3 + (0.0 if period_s is None else 0.2 * np.sign(np.sin(2.0 * math.pi * (moments_s + 0.003) / period_s)))
    unit_s, unlike = unit_of(moments_s[::20], 0.01 * np.cumsum(rate * np.ones_like(moments_s))[::20])
    assert unlike < 0.05
    if None not in units:
        assert any(unit_s == pytest.approx(each * (period_s or 1.0), rel=0.02) for each in units)


def test_traffic_without_a_rhythm_or_none_at_all_shows_nothing():
    moments_s = np.arange(0.0, 120.0, 0.2)
    wild = np.exp(np.cumsum(0.2 * np.random.default_rng(0).standard_normal(len(moments_s))))
    assert unit_of(moments_s, np.cumsum(0.1 * wild / wild.mean()))[1] > 0.05
    assert unit_of(moments_s, 1e-5 * moments_s)[1] == math.inf


# ---- tuning and guarding by it -----------------------------------------------------------------------------------


@pytest.mark.parametrize("phases", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_job_without_hooks_is_tuned_within_the_bound_and_all_is_marked_by_proxy(phases):
    device = gpu("h200", seed=1)
    tuner = tuner_of(UnheardTuner, device, 0.05, seed=1)
    job = in_turn((PROGRAMME, 3), (programme("gpt3-medium"), 1)) if phases else PROGRAMME
    summary, _ = run_job(
        tuner, job, 10**9, seed=1, watch=lambda tuner: tuner.controller is not None and tuner.status().proof.blocks > 4
    )
    winner, status = tuner.search.winner, summary.status
    error = learned(device.identity).error
    assert winner is not None and 0.0 < time_change(device, winner.setting) <= 0.051 - 0.5 * error
    assert status.proxy is not None and status.proxy.error == pytest.approx(error) and status.proxy.jobs == 0
    assert status.proxy.unit_s >= 1.0 and status.proxy_error is None
    assert "by proxy (memory traffic, ± 1.0" in live_text(status) and "assumed" in proxy_text(status.proxy)
    assert "followed by memory traffic, as a proxy" in [each.text for each in status.events][1]
    proof = status.proof
    assert proof.time_change.high - proof.time_change.low > 2.0 * error
    assert proof.energy_change.high < 0.0 and proof.saved_j.low > 0.0
    plan = tuned_plan(tuner)
    assert plan.tuned.proxy_error == pytest.approx(error) and plan.schedule.max_slowdown == pytest.approx(0.05)


def test_what_hooks_show_beside_the_traffic_is_learned_and_kept_of_the_card(tmp_path):
    device = gpu("h200", seed=2)
    before = learned(device.identity)
    leaky = partial(LeakyCourse, leak=0.0, common=0.5)
    tuner = tuner_of(Tuner, device, 0.2, seed=2, clocks=(1590.0,))
    summary, [course] = run_job(tuner, PROGRAMME, 400, seed=2, course=leaky)
    truth = 0.5 * math.log(mean_mhz(course, AUTO) / mean_mhz(course, Setting(1590.0, None)))
    assert summary.status.proxy is None and summary.status.proxy_error == pytest.approx(truth, rel=0.3)
    after = learned(device.identity)
    assert (before.jobs, after.jobs) == (0, 1) and after.error > before.error
    assert learned(open_device("sim:v100").identity) == before  # another card
    (tmp_path / "wastenot" / "proxy.json").write_text("{")
    assert learned(device.identity) == before
    for _ in range(60):
        learn(device.identity, 0.0)
    assert learned(device.identity).jobs == 50 and learned(device.identity).error < 0.002


def test_an_error_beyond_the_slowdown_allowed_is_refused():
    device = gpu("h200")
    tuner = tuner_of(UnheardTuner, device, 0.005)
    summary, _ = run_job(tuner, PROGRAMME, 50)
    [_, why, _] = [each.text for each in summary.status.events]
    assert "may be off by 1.0" in why and "assumed" in why and "0.5" in why and tuner.done and summary.status.proxy is None
    assert not tuner.search.candidates


def held(device, job, *, seconds, allowed=0.03, kind=UnheardController, **more):
    """A plan of 1590 MHz, and 1800 MHz as a faster rung, on a job without hooks."""
    changes = [AtSetting(Setting(1590.0, None), 0.02, -0.1), AtSetting(Setting(1800.0, None), 0.005, -0.05)]
    schedule = one_setting(switch_time("sim:h200"), allowed, changes, 1.0, 300.0)
    driven = kind(schedule, [device], SUBJECT, traffic=Traffic([device]))
    summary, courses = run_job(driven, job, 10**9, watch=lambda one: one.status().elapsed_s > seconds, **more)
    return driven, summary, courses[0]


def test_a_plan_that_slows_a_job_without_hooks_is_stepped_from():
    class Slower(ChangedCourse):
        """By 5 % at the plan's clock."""

        def __init__(self, *given, **named):
            super().__init__(*given, **named)
            self._changes = (Change(0, slower=self.slower_by(Setting(1590.0, None), 0.05, 60.0)),)
            self._begin(0)

    _, summary, course = held(gpu("h200"), PROGRAMME, seconds=200.0, course=Slower)
    assert "stepped" in [each.kind for each in summary.status.events] and summary.status.rung > 0
    late = course.ran[-100:]
    assert sum(one.time_s for one in late) / sum(one.auto_time_s for one in late) - 1.0 <= 0.031


def test_a_plan_that_keeps_its_slowdown_stays_and_is_proved():
    _, summary, _ = held(gpu("h200"), PROGRAMME, seconds=150.0, allowed=0.06)
    assert summary.status.rung == 0 and summary.status.proof.energy_change.high < 0.0


# ---- what is no proxy --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("way", "why"), [("still", "stands still"), ("absent", "reports no memory traffic"), ("lost", "no longer")]
)
def test_where_traffic_shows_nothing_a_plan_is_held_unguarded_and_says_why(monkeypatch, way, why):
    device = gpu("h200")
    reads = iter(range(10**9))

    def traffic_s(now_s):
        if way == "lost" and next(reads) > 20:
            raise DeviceError("no answer")
        return None if way == "absent" else 0.0

    monkeypatch.setattr(device.sensors, "traffic_s", traffic_s)
    _, summary, _ = held(device, PROGRAMME, seconds=130.0)
    assert any("not guarded" in each.text and why in each.text for each in summary.status.events), summary.status.events
    assert summary.status.proxy is None and summary.status.proof.time_change is None and not summary.status.at_default


def test_a_job_of_another_kind_is_followed_anew():
    traffic = Traffic([])
    rates = [0.2] * 400 + [0.004] * 400  # of samples, 0.2 s apart
    total, units, seen = 0.0, None, []
    for index, rate in enumerate(rates):
        total += 0.2 * rate
        now_s = 0.2 * index
        traffic.due_s = now_s
        traffic._moments_s.append(now_s)
        traffic._totals_s.append(total)
        units = units or Units(traffic, now_s)
        seen += units.look(now_s)
        if units.other:
            break
    assert units.unit_s == 1.0 and units.count == len(seen) and 45 <= len(seen) <= 55
    assert np.allclose(np.diff(seen)[:45], 1.0, atol=0.02) and 110.0 <= now_s <= 121.0


def test_iterations_that_are_reported_late_take_over():
    class LateTuner(UnheardTuner):
        """Its job is heard from a minute on."""

        def mark(self, marker):
            if marker.reached_s > 60.0:
                Tuner.mark(self, marker)

    device = gpu("h200", seed=3)
    tuner = tuner_of(LateTuner, device, 0.05, seed=3, clocks=(1800.0,))
    watched = []

    def watch(tuner):
        watched.append((tuner.status().proxy is not None, tuner.status().marker))
        return tuner.done

    summary, _ = run_job(tuner, PROGRAMME, 10**9, seed=3, watch=watch)
    assert (True, ITERATION) in watched and (False, ITERATION) in watched
    assert "iterations are reported now" in " ".join(each.text for each in summary.status.events)
    assert tuner.search.error == 0.0 and tuner.default_iteration[0] < 1.0  # of the job, not of a unit
    assert tuner.iterations > 100


def test_nothing_is_followed_that_has_no_time_of_its_own():
    assert (
        traffic_of([gpu("h200")]) is None and traffic_of([open_device("sim:h200", wall_time=True)], rehearsal=True) is None
    )
    assert traffic_of([open_device("sim:h200", wall_time=True)]) is not None
