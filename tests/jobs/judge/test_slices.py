"""Simulated runs that measure their settings on the way."""

import math
from dataclasses import replace

import numpy as np
import pytest

from wastenot.jobs.judge.made import made_jobs
from wastenot.jobs.judge.slices import SlicedRuns
from wastenot.jobs.model.objective import cost


def run_of(trace, epochs, *, seed=0, told=None):
    sliced = SlicedRuns(trace, (told if told is not None else []).append, np.random.default_rng(seed))
    sliced.begin()
    return sliced, np.array([sliced.epoch(trace.terms.default) for _ in range(epochs)])


def test_an_epoch_is_neither_longer_nor_shorter_than_its_settings():
    for trace in made_jobs(range(3)):
        row = trace.terms.batch_sizes.index(trace.terms.default)
        _, spent = run_of(trace, 5)
        assert (spent[:, 0] >= trace.epoch_time_s[row].min() * (1.0 - 1e-6)).all()
        assert (spent[:, 0] <= trace.epoch_time_s[row].max() * (1.0 + 1e-6)).all()


def test_the_choice_is_near_the_best_and_cheap_to_find():
    overheads, shortfalls = [], []
    for trace in made_jobs(range(20, 23)):
        row, size = trace.terms.batch_sizes.index(trace.terms.default), trace.terms.default
        seen = [each for each in trace.epochs[size] if math.isfinite(each)]
        sliced, spent = run_of(trace, int(np.mean(seen)) if seen else 10)
        of_epoch = trace.epoch_cost()[row]
        held = of_epoch[sliced.setting(size)]
        time_s, energy_j = spent.sum(axis=0)
        overheads.append(float(cost(trace.terms, time_s, energy_j)) / (len(spent) * held) - 1.0)
        shortfalls.append(held / of_epoch.min() - 1.0)
    assert np.mean(overheads) < 0.01 and np.quantile(overheads, 0.9) < 0.02
    assert np.mean(np.array(shortfalls) < 0.01) > 0.9


def test_epochs_shorter_than_a_slice_tell_something():
    trace = made_jobs(range(1))[0]
    short = trace.epoch_time_s / trace.epoch_time_s.max()  # at most a second
    told = []
    run_of(replace(trace, epoch_time_s=short), 1, told=told)
    row = trace.terms.batch_sizes.index(trace.terms.default)
    assert len(told) == 1 and told[0].epoch_time_s in [pytest.approx(each, rel=0.1) for each in short[row]]


def test_what_is_told_is_as_sure_as_its_slices(monkeypatch):
    trace = made_jobs(range(1))[0]
    told = []
    monkeypatch.setattr("wastenot.jobs.judge.slices.TIME_NOISE", 0.02)
    monkeypatch.setattr("wastenot.jobs.judge.slices.POWER_NOISE", 0.03)
    run_of(trace, 30, told=told)
    assert told and all(0.0 < each.time_error <= 0.03 and 0.0 < each.power_error <= 0.045 for each in told)
    again = [each.time_error for each in told if each.setting == told[0].setting]
    assert again == sorted(again, reverse=True)
