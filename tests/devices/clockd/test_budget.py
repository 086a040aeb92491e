"""Watts that GPUs share: who gives way, by how much, and that limits never add up to more."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st

from testbed.shared_watts import Job, Node, by_budget, equal_shares, run_day, task, told
from wastenot.devices.clockd.budget import SENSOR_ERROR, Budget, Claim, Seen, divide, fair_shares, filled
from wastenot.frontiers.algebra import choice, sequence

H200 = (200.0, 700.0)


def frontier(rng, low_w=200.0, high_w=700.0, points=8):
    """Convex: time falls ever less with watts."""
    watts = sorted([low_w, high_w, *(rng.uniform(low_w, high_w) for _ in range(points))])
    slopes = sorted((rng.uniform(0.0, 0.01) for _ in watts[1:]), reverse=True)
    times = [1.0]
    for slope, low, high in zip(slopes[::-1], watts[:-1][::-1], watts[1:][::-1], strict=True):
        times.append(times[-1] + slope * (high - low))
    return tuple(zip(watts, times[::-1], strict=True))


def time_of(points, watts):
    for (low, slow), (high, fast) in pairwise(points):
        if watts <= high:
            return slow + (fast - slow) * (watts - low) / (high - low)
    return points[-1][1]


@given(st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_jobs_that_told_their_frontiers_lose_as_little_as_the_composed_frontier_allows(seed):
    rng = random.Random(seed)
    frontiers = [frontier(rng) for _ in range(rng.randint(2, 6))]
    budget_w = rng.uniform(200.0, 700.0) * len(frontiers)
    limits_w = divide(budget_w, [Claim(1, *H200[:1], 700.0, 700.0, each) for each in frontiers])
    lost = sum(time_of(points, watts) for points, watts in zip(frontiers, limits_w, strict=True))
    whole = sequence(*(choice([(watts, time) for watts, time in points]) for points in frontiers))
    assert sum(limits_w) <= budget_w + 1e-6
    assert lost == pytest.approx(whole.lower_bound_j(within_s=budget_w), rel=1e-6)  # watts in the place of seconds


@given(st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_whatever_others_tell_a_job_of_which_nothing_is_known_keeps_its_fair_share(seed):
    rng = random.Random(seed)
    claims = [
        Claim(rng.randint(1, 3), 200.0, rng.uniform(200.0, 700.0), 700.0, rng.choice([(), frontier(rng)])) for _ in range(6)
    ]
    gpus = sum(claim.gpus for claim in claims)
    budget_w = rng.uniform(200.0, 700.0) * gpus
    limits_w, fair_w = divide(budget_w, claims), fair_shares(budget_w, claims)
    assert sum(claim.gpus * watts for claim, watts in zip(claims, limits_w, strict=True)) <= budget_w + 1e-6
    for claim, watts, fair in zip(claims, limits_w, fair_w, strict=True):
        assert 200.0 <= watts <= 700.0 and (claim.frontier or watts >= fair - 1e-6)


def test_watts_that_nobody_needs_are_spread_and_a_budget_below_all_gives_the_least():
    assert filled(1000.0, [(200.0, 700.0)] * 2, [1, 1]) == pytest.approx([500.0, 500.0])
    assert filled(9000.0, [(200.0, 700.0), (100.0, 400.0)], [1, 2]) == [700.0, 400.0]
    idle, busy = Claim(1, 200.0, 200.0, 700.0), Claim(1, 200.0, 700.0, 700.0)
    assert divide(1000.0, [idle, busy]) == pytest.approx([300.0, 700.0])
    assert divide(100.0, [idle, busy]) == [200.0, 200.0]


def test_a_jobs_gpus_get_the_same():
    steep = ((200.0, 3.0), (700.0, 1.0))
    flat = ((200.0, 1.2), (700.0, 1.0))
    seen = {
        name: Seen(H200, 700.0, 690.0, frontier=points, user=user)
        for name, points, user in (("a", steep, 1), ("b", steep, 1), ("c", flat, 2), ("d", flat, 3))
    }
    budget = Budget(1700.0)
    budget.turn(0.0, seen)
    assert budget.targets_w == pytest.approx({"a": 650.0, "b": 650.0, "c": 200.0, "d": 200.0})


class Driver:
    """Sets limits late, or not at all, in the order in which they were asked for."""

    def __init__(self, names, seed):
        self.rng, self.limit_w, self.asked = random.Random(seed), dict.fromkeys(names, 700.0), dict.fromkeys(names, ())

    def take(self, moves):
        for name, watts in moves.items():
            if not self.asked[name]:
                self.asked[name] = (watts,)

    def act(self):
        for name, asked in self.asked.items():
            if asked and self.rng.random() < 0.5:
                self.limit_w[name], self.asked[name] = (asked[0] if self.rng.random() < 0.8 else self.limit_w[name]), ()

    def most_w(self):
        return sum(max(self.limit_w[name], *self.asked[name], 0.0) for name in self.limit_w)


@pytest.mark.parametrize("seed", range(6))
def test_limits_never_add_up_to_more_than_the_budget_however_late_or_seldom_they_are_set(seed):
    names, rng = [f"gpu-{place}" for place in range(5)], random.Random(seed)
    budget, driver, within = Budget(2000.0), Driver(names, seed), False
    wants_w = dict.fromkeys(names, 80.0)
    frontiers = dict.fromkeys(names, ())
    for now_s in range(1500):
        if rng.random() < 0.02:
            name = rng.choice(names)
            wants_w[name], frontiers[name] = rng.choice([80.0, 350.0, 700.0]), rng.choice([(), frontier(rng)])
        seen = {
            name: Seen(
                H200, driver.limit_w[name], min(wants_w[name], driver.limit_w[name]), frontier=frontiers[name], user=1
            )
            for name in names
        }
        driver.take(budget.turn(float(now_s), seen))
        assert not within or driver.most_w() <= 2000.0 + 1e-6
        driver.act()
        within = within or driver.most_w() <= 2000.0
    assert within


def settled(budget, seen, wants_w, start_s=0.0, seconds=10, heedless=()):
    """Limits once they have been set, each at once, of GPUs that draw what they want within them."""
    for second in range(seconds):
        for name, watts in wants_w.items():
            drawn_w = watts if watts is None or name in heedless else min(watts, seen[name].limit_w)
            seen[name] = replace(seen[name], drawn_w=drawn_w)
        for name, watts in budget.turn(start_s + second, seen).items():
            seen[name] = replace(seen[name], limit_w=watts)
    return {name: each.limit_w for name, each in seen.items()}


def test_a_gpu_that_draws_more_than_its_limit_counts_at_the_most_it_may_draw_until_it_obeys():
    budget, wants_w = Budget(1500.0), dict.fromkeys("abc", 650.0)
    seen = {name: Seen(H200, 700.0) for name in "abc"}
    assert settled(budget, seen, wants_w) == pytest.approx(dict.fromkeys("abc", 500.0), rel=0.02)
    limits = settled(budget, seen, wants_w, 10.0, 12, heedless="a")
    assert budget.disobeys("a", 22.0) and limits["a"] == 200.0
    assert 700.0 < limits["b"] + limits["c"] <= 1500.0 - 700.0
    limits = settled(budget, seen, wants_w, 22.0, 90)
    assert not budget.disobeys("a", 112.0) and limits == pytest.approx(dict.fromkeys("abc", 500.0), rel=0.02)


def test_a_gpu_that_cannot_keep_the_lowest_limit_is_given_what_it_keeps():
    budget, flat = Budget(700.0), ((200.0, 1.001), (700.0, 1.0))
    seen = {"a": Seen(H200, 200.0, frontier=flat, user=1), "b": Seen(H200, 500.0)}
    limits = settled(budget, seen, {"a": 229.0, "b": 600.0}, 0.0, 12, heedless="a")
    assert not budget.disobeys("a", 12.0) and limits["a"] >= 229.0 and 690.0 < sum(limits.values()) <= 700.0


def test_a_gpu_that_cannot_be_read_or_not_limited_counts_at_its_limit():
    budget, wants_w = Budget(1500.0), {"a": None, "b": 690.0, "c": 690.0}
    seen = {"a": Seen(H200, 700.0), "b": Seen(H200, 700.0, settable=False), "c": Seen(H200, 700.0)}
    limits = settled(budget, seen, wants_w)
    assert limits == pytest.approx({"a": 400.0, "b": 700.0, "c": 400.0}, rel=0.02) and budget.short_w == 0.0
    budget.budget_w = 1000.0
    assert settled(budget, seen, wants_w, 10.0) == {"a": 200.0, "b": 700.0, "c": 200.0}
    assert budget.short_w == pytest.approx(100.0)


def test_noise_and_small_changes_move_no_limit():
    rng, budget = random.Random(1), Budget(1500.0)
    seen = {name: Seen(H200, 700.0, 300.0) for name in "abc"}
    settled(budget, seen, dict.fromkeys(seen, 300.0))
    moved = 0
    for now_s in range(100, 1900):
        seen = {name: replace(each, drawn_w=300.0 * rng.gauss(1.0, 0.01)) for name, each in seen.items()}
        moves = budget.turn(float(now_s), seen)
        moved += len(moves)
        seen |= {name: replace(seen[name], limit_w=watts) for name, watts in moves.items()}
    assert moved <= 3


GPUS = {"h200-0": "h200", "h200-1": "h200", "a100-0": "a100"}


@pytest.fixture(scope="module")
def jobs():
    train, decode = task("llama-8b", phase="training", batch=2), task("llama-8b", phase="decode")
    return [
        Job("train", train, ("h200-0",), 20.0, 500.0), Job("decode", decode, ("h200-1",), 60.0, 400.0),
        Job("small", train, ("a100-0",), 100.0, 300.0),
    ]  # fmt: skip


def test_simulated_jobs_lose_less_than_by_equal_shares_and_the_budget_is_kept(jobs):
    node, fair = Node(GPUS, 5), Node(GPUS, 5)
    ours = run_day(node, jobs, by_budget(node, Budget(1000.0)), 1000.0, 700.0)
    equal = run_day(fair, jobs, equal_shares(fair, 1000.0), 1000.0, 700.0)
    assert ours.lost < 0.85 * equal.lost
    assert ours.most_over_w <= SENSOR_ERROR * 1000.0 and ours.over_limits_w <= 1e-6


def test_the_budget_is_kept_while_a_sensor_is_dead_and_soon_after_a_gpu_disobeys(jobs):
    node = Node(GPUS, 6)

    def disobeys():
        node.obeys["a100-0"] = False
        node.set_limit("a100-0", node.set_w["a100-0"])

    events = {150.0: lambda: node.reads.update({"h200-1": False}), 200.0: disobeys}
    dead = run_day(node, jobs, by_budget(node, Budget(1000.0)), 1000.0, 300.0, events, settled_s=220.0)
    assert dead.most_over_w <= SENSOR_ERROR * 1000.0


def test_what_is_told_is_convex_and_ends_with_the_fastest(jobs):
    points = told(Node(GPUS, 7).frontier(jobs[0]))
    slopes = [(slow - fast) / (high - low) for (low, slow), (high, fast) in pairwise(points)]
    assert slopes == sorted(slopes, reverse=True) and min(time for _, time in points) == points[-1][1]
