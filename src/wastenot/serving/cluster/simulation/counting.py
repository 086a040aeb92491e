"""What a run counts: gaps between tokens, steps and time by kind, energy and requests over time; and time at idle power.

Two devices keep counting from costing more than the simulation:

- The gaps of a stretch of steps are affine in the step, so that its histogram takes one addition for each bin that they
  cross rather than for each step (:func:`note_gaps`).
- A timeline's bin and an instance's bin of the histogram are most often those of the last time, and are looked at first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wastenot.serving.cluster.simulation.compiling import inside
from wastenot.serving.cluster.simulation.records import IDLE, State
from wastenot.serving.model.step_costs import Column, inlined


@inside
def draw(state: State, begin_s: float, end_s: float, running: int, waiting: int) -> None:
    """Into the timeline: requests that decoded, and others that were there, from one time to another."""
    bins, bin_s = state.bins, state.numbers[0].bin_s
    while begin_s < end_s:
        at = int(begin_s / bin_s)
        if (at + 1) * bin_s <= begin_s:  # rounded into the one that ends there
            at += 1
        at = min(at, len(bins) - 1)
        until_s = min((at + 1) * bin_s, end_s) if at < len(bins) - 1 else end_s
        bins[at].running_s += running * (until_s - begin_s)
        bins[at].waiting_s += waiting * (until_s - begin_s)
        begin_s = until_s


@inlined
def bin_at(state: State, now_s: float) -> Any:
    """The timeline's bin of a time."""
    return state.bins[min(int(now_s / state.numbers[0].bin_s), len(state.bins) - 1)]


@inside
def draw_gap(state: State, now_s: float, gap_s: float) -> None:
    """Into the timeline: a token came now, a time after the one before."""
    drawn = bin_at(state, now_s)
    drawn.longest_s = max(drawn.longest_s, gap_s)


@inlined
def steps_below(first: float, more: float, begin: int, end: int, bound: float) -> int:
    """The first step from ``begin`` on that no longer is on the side of a bound that ``begin`` is on; ``end`` if none.

    The division may round to a step beside it, so it is only where the search begins: what decides is the
    gap itself.
    """
    above = first + more * begin >= bound
    if more == 0.0 or (first + more * (end - 1) >= bound) == above:
        return end
    step = min(max(int((bound - first) / more), begin), end)
    while step > begin and (first + more * (step - 1) >= bound) != above:
        step -= 1
    while step < end and (first + more * step >= bound) == above:
        step += 1
    return step


@inlined
def note_gap(state: State, number: int, instance: Any, gap_s: float, tokens: int) -> None:
    """Into the histogram: a number of tokens came a time after the ones before."""
    edges_s, last = state.gap_edges_s, state.numbers[0].gap_bins
    at = instance.gap_bin  # edges[at - 1] <= gap < edges[at], most often as the last time
    while at > 0 and gap_s < edges_s[at - 1]:
        at -= 1
    while at < last and gap_s >= edges_s[at]:
        at += 1
    instance.gap_bin = at
    state.gap_counts[at] += tokens
    if instance.steered:
        state.own_gap_counts[number * (last + 1) + at] += tokens


@inlined
def note_first(state: State, number: int, instance: Any, request: Any) -> None:
    """Into the histograms of an instance: a request has its first token."""
    numbers, at = state.numbers[0], 0
    while at < numbers.first_bins - 1 and request.first_s - request.sent_s > state.first_edges_s[at]:
        at += 1
    state.first_counts[number * numbers.first_bins + at] += 1
    at = 0
    while at < numbers.prompt_bins - 1 and request.prompt > state.prompt_edges[at]:
        at += 1
    state.prompt_counts[number * numbers.prompt_bins + at] += 1
    instance.prompt_tokens += request.prompt


@inside
def note_gaps(state: State, number: int, instance: Any, first_s: float, more_s: float, end: int) -> None:
    """Those of all steps of a stretch but the first one, whose gap depends on what was before it."""
    numbers = state.numbers[0]
    tokens, step, last, at, edges_s = instance.running, 1, numbers.gap_bins, instance.gap_bin, state.gap_edges_s
    while step < end:
        gap_s, after = first_s + more_s * step, end
        while at > 0 and gap_s < edges_s[at - 1]:
            at -= 1
        while at < last and gap_s >= edges_s[at]:
            at += 1
        if more_s > 0.0 and at < last:
            after = steps_below(first_s, more_s, step, end, edges_s[at])
        elif more_s < 0.0 and at > 0:
            after = steps_below(first_s, more_s, step, end, edges_s[at - 1])
        state.gap_counts[at] += tokens * (after - step)
        if instance.steered:
            state.own_gap_counts[number * (last + 1) + at] += tokens * (after - step)
        step = after
    instance.gap_bin = at
    last_s, tbt_s = first_s + more_s * (end - 1), numbers.tbt_s
    first_s += more_s
    if first_s > tbt_s or last_s > tbt_s:
        after = steps_below(first_s, more_s, 0, end - 1, np.nextafter(tbt_s, np.inf))  # at the bound is not late
        instance.late += after if first_s > tbt_s else end - 1 - after


@inlined
def spend(state: State, instance: Any, layout: Any, begin_s: float, end_s: float, energy_j: float) -> None:
    """Into the timeline, and what it is above the power limit."""
    numbers = state.numbers[0]
    instance.over_j = max(instance.over_j + energy_j - layout.limit_w * (end_s - begin_s), 0.0)
    clock = state.tables[layout.clock_at + instance.setting] * layout.gpus
    if begin_s >= numbers.bin_begin_s and end_s <= numbers.bin_end_s:
        state.bins[numbers.bin].energy_j += energy_j
        state.bins[numbers.bin].clock += clock * (end_s - begin_s)
    else:
        spread(state.bins, numbers, clock, begin_s, end_s, energy_j)
    if numbers.drawn:
        draw(
            state, begin_s, end_s, instance.running, 0 if instance.doing == IDLE else instance.waiting + instance.prefilling
        )


@inside
def spread(bins: Column, numbers: Any, clock: float, begin_s: float, end_s: float, energy_j: float) -> None:
    """Over several bins of the timeline, or into another one than the last time.

    The last part gets what is left of the energy rather than its share, so that a timeline's sum is the run's energy but for
    rounding.
    """
    last = len(bins) - 1
    if end_s > numbers.bin_end_s:
        numbers.bin = min(int(end_s / numbers.bin_s), last)
        numbers.bin_begin_s, numbers.bin_end_s = numbers.bin * numbers.bin_s, (numbers.bin + 1) * numbers.bin_s
    power_w = energy_j / (end_s - begin_s) if end_s > begin_s else 0.0
    at, from_s, left_j = min(int(begin_s / numbers.bin_s), last), begin_s, energy_j
    while at < last and (at + 1) * numbers.bin_s < end_s:
        until_s = max((at + 1) * numbers.bin_s, from_s)
        bins[at].energy_j += power_w * (until_s - from_s)
        bins[at].clock += clock * (until_s - from_s)
        left_j -= power_w * (until_s - from_s)
        at, from_s = at + 1, until_s
    bins[at].energy_j += left_j
    bins[at].clock += clock * (end_s - from_s)


@inlined
def take_effect(state: State, instance: Any) -> None:
    """A requested clock is in effect once its switching latency has passed."""
    if instance.now_s >= instance.effective_s:
        if instance.setting != instance.asked:
            state.numbers[0].switches += 1
        instance.setting, instance.effective_s = instance.asked, np.inf


@inside
def rest(state: State, instance: Any, layout: Any, until_s: float) -> None:
    """At idle power until then; a clock that takes effect meanwhile changes that power, and parts the time in two."""
    numbers = state.numbers[0]
    while instance.now_s < until_s:
        end_s = min(until_s, instance.effective_s) if instance.effective_s > instance.now_s else until_s
        power_w, lasted_s = state.tables[layout.idle_at + instance.setting], end_s - instance.now_s
        energy_j = power_w * lasted_s
        numbers.idle_s += lasted_s
        state.setting_s[instance.setting] += lasted_s
        numbers.idle_j += energy_j
        spend(state, instance, layout, instance.now_s, end_s, energy_j)
        instance.now_s = end_s
        take_effect(state, instance)


@inlined
def count_step(state: State, instance: Any) -> None:
    """A step with prompts."""
    numbers = state.numbers[0]
    if instance.step_batch:
        numbers.mixed_s += instance.step_s
        numbers.mixed_steps += 1
    else:
        numbers.prefill_s += instance.step_s
        numbers.prefill_steps += 1
    state.setting_s[instance.setting] += instance.step_s
    if numbers.drawn:
        bin_at(state, instance.now_s).tokens += instance.step_batch
