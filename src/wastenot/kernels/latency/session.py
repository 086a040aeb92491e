"""Switches back and forth between a few values, timed one by one until the error is small.

values     A ─▶ C ─▶ B ─▶ A ─▶ ...                each switch begins where the last one ended
trace      ▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮      a few seconds of iterations, with many switches in each
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import permutations

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.progress import Progress
from wastenot.core.setting import Setting
from wastenot.devices.protocol import Device
from wastenot.devices.tracer import Trace
from wastenot.kernels.latency.arrivals import Level, arrival, filtered, levels_of, signal, width_for
from wastenot.kernels.latency.design import Values, settling_s
from wastenot.kernels.latency.observations import Notebook, Observation, outliers, summarise
from wastenot.planning.latency import Indistinct, TargetLatency
from wastenot.planning.switching import SwitchTime

LEVEL_RUNS = 3
"""Runs at each value from which its level is read."""

_LEAD_S = 0.1  # of iterations before the first request of a trace
_LEVEL_S = 0.1  # of iterations from which a level is read
_BATCH_S = 2.0  # of a trace
_DWELL_S = 4e-3  # at the target after the longest latency expected
_LEAST_SWITCHES = 12  # to a target, whatever the error
_ERROR_S = 50e-6  # standard error that is always small enough
_MARGIN = 2.0  # window over the longest latency of the target seen, outliers left out
_FEW = 6  # latencies of a target from which on its window follows them
_MOST_DOUBLED = 6  # times that a window is doubled because a target was not reached
_FIRST_WINDOW = 3.0  # window over the latency assumed


class Session:
    """Measures the latencies of one kind of switch.

    Args:
        device: whose clocks may be set.
        part: the values to switch between.
        expected: what is assumed of the latency.
        notebook: keeps the observations.
        rng: chooses the order.
    """

    def __init__(
        self, device: Device, part: Values, expected: SwitchTime, notebook: Notebook, rng: np.random.Generator
    ) -> None:
        self._device, self.part, self._notebook, self.rng = device, part, notebook, rng
        self._load = part.what
        self._doubled = dict.fromkeys(part.values, 0)
        self._expected_s = {
            value: max(
                expected.latency_s(part.setting(other), part.setting(value)) for other in part.values if other != value
            )
            for value in part.values
        }
        self.levels: dict[float, Level] = {}
        self.widths: dict[tuple[float, float], int] = {}
        self.indistinct: list[Indistinct] = []
        self.iteration_s = self.clock_error_s = 0.0
        self._now: float | None = None  # the value in effect
        self._to: dict[float, list[Observation]] = {value: [] for value in part.values}  # by target
        self._counts: dict[tuple[float, float], int] = {}
        self._note(each for each in notebook.observations if each.what == part.what)

    def calibrate(self) -> None:
        """Learn how iterations look at each value, and which values look the same."""
        runs: dict[float, list[FloatArray]] = {value: [] for value in self.part.values}
        for _ in range(LEVEL_RUNS):
            for value in self.part.values:
                self._device.clocks.request(self.part.setting(value))
                self._device.time.sleep(settling_s(self._expected_s[value]))
                steady = self._run((), _LEAD_S + _LEVEL_S)
                seen = signal(steady, self._load)
                after = int(np.searchsorted(steady.bounds_s, steady.bounds_s[0] + _LEAD_S))
                runs[value].append(seen[min(after, len(seen) // 2) :])
                self.iteration_s = max(self.iteration_s, float(np.median(steady.seconds)))
                self.clock_error_s = max(self.clock_error_s, steady.clock_error_s)
                self._now = value
        self.levels = levels_of(runs)
        for start, target in permutations(self.part.values, 2):
            width = width_for(self.levels[start], self.levels[target])
            if width is None:
                low, high = sorted((start, target))
                reason = f"iterations take the same time at {low:g} and {high:g} {self.part.unit}"
                self.indistinct.append(Indistinct(what=self.part.what, start=start, target=target, reason=reason))
            else:
                self.widths[start, target] = width

    def measure(self, error: float, most_s: float, progress: Progress) -> None:
        """Switch until every target's latency is known precisely enough, or the time is up.

        Args:
            error: relative standard error.
            most_s: device time.
            progress: told of every trace.
        """
        began_s = self._device.time.now_s()
        while not self.known(error) and self._device.time.now_s() - began_s < most_s:
            traced_s = self._device.time.now_s()
            found = self._batch(error)
            self._notebook.add(found, self._device.time.now_s() - traced_s)
            self._note(found)
            for _ in found:
                progress.step(f"{self.part.name}: {sum(self._counts.values()):,} switches")
            if not self.widths:
                break

    def known(self, error: float) -> bool:
        """Whether every target that can be timed is known precisely enough."""
        return all(self._known(target, error) for target in {target for _, target in self.widths})

    def results(self) -> tuple[tuple[TargetLatency, ...], tuple[TargetLatency, ...]]:
        """Latencies by target, and by start and target."""
        what = self.part.what
        targets = [summarise(what, None, value, mine, self.iteration_s) for value, mine in self._to.items()]
        pairs = [
            summarise(what, start, target, mine, self.iteration_s)
            for start, target in permutations(self.part.values, 2)
            if (mine := [each for each in self._to[target] if each.start == start])
        ]
        return tuple(each for each in targets if each is not None), tuple(each for each in pairs if each is not None)

    def window_s(self, target: float) -> float:
        """How long to wait for a target after a request."""
        seconds = np.array([each.seconds for each in self._to[target] if not each.late])
        if len(seconds) < _FEW:
            known_s = _FIRST_WINDOW * self._expected_s[target] * 2.0 ** self._doubled[target]
        else:
            known_s = _MARGIN * float(seconds[~outliers(seconds)].max())
        return max(known_s, _DWELL_S) + max(_DWELL_S, 60.0 * self.iteration_s)

    def never_reached(self) -> list[Indistinct]:
        """Switches that were given up, for none was seen to take effect."""
        given_up = [target for target in self.part.values if self._given_up(target) and not self._to[target]]
        return [
            Indistinct(
                what=self.part.what,
                start=start,
                target=target,
                reason=f"{target:g} {self.part.unit} was not in effect after {self.window_s(target):.2g} s",
            )
            for start, target in self.widths
            if target in given_up
        ]

    # ---- inside ----------------------------------------------------------------------------------------------

    def _note(self, found: Iterable[Observation]) -> None:
        for each in found:
            self._to[each.target].append(each)
            self._counts[each.start, each.target] = self._counts.get((each.start, each.target), 0) + 1

    def _known(self, target: float, error: float) -> bool:
        mine = self._to[target]
        found = summarise(self.part.what, None, target, mine, self.iteration_s)
        return (
            found is not None and len(mine) >= _LEAST_SWITCHES and found.error_s <= max(error * found.seconds, _ERROR_S)
        ) or self._given_up(target)

    def _given_up(self, target: float) -> bool:
        return self._doubled[target] > _MOST_DOUBLED and sum(not each.late for each in self._to[target]) < _FEW

    def _batch(self, error: float) -> list[Observation]:
        """A trace of as many switches as fit."""
        planned = self._walk(error)
        if not planned:
            return []
        by_target = {target: self.window_s(target) for target in {target for _, target in planned}}
        windows = [by_target[target] for _, target in planned]
        targets = [(self.part.setting(target), window) for (_, target), window in zip(planned, windows, strict=True)]
        asked: list[float] = []
        trace = self._run(targets, _LEAD_S, asked)
        self.clock_error_s = max(self.clock_error_s, trace.clock_error_s)
        seen = signal(trace, self._load)
        filters = {width: filtered(seen, width) for width in {self.widths[pair] for pair in planned}}
        found: list[Observation] = []
        missed: list[float] = []
        for (start, target), window, moment in zip(planned, windows, asked, strict=True):
            width = self.widths[start, target]
            what = arrival(
                trace.bounds_s, filters[width], moment, moment + window, self.levels[start], self.levels[target], width
            )
            if what.seconds is not None:
                found.append(Observation(self.part.what, start, target, what.seconds))
            elif what.reason == "reached" and sum(not each.late for each in self._to[target]) >= _FEW:
                found.append(Observation(self.part.what, start, target, window, late=True))
            elif what.reason == "reached":  # the window may be too short for the target
                missed.append(target)
        for target in set(missed):
            if missed.count(target) > sum(each.target == target for each in found):
                self._doubled[target] += 1
        return found

    def _walk(self, error: float) -> list[tuple[float, float]]:
        """Switches of the next trace: each from where the last ends, to what was timed least and is not known yet."""
        counts = {pair: self._counts.get(pair, 0) for pair in self.widths}
        windows_s = {target: self.window_s(target) for target in self.part.values}
        known = {target: self._known(target, error) for target in self.part.values}
        here = self._now
        if here is None or not any(start == here for start, _ in counts):
            here = self._settle_somewhere(list(counts))
        planned: list[tuple[float, float]] = []
        length_s = 0.0
        while here is not None and (length_s < _BATCH_S or not planned):
            leaving = [pair for pair in counts if pair[0] == here]
            if not leaving:
                break
            order = self.rng.permutation(len(leaving)).tolist()
            pair = min((leaving[place] for place in order), key=lambda pair: (known[pair[1]], counts[pair]))
            if known[pair[1]] and planned and not all(known[target] for _, target in leaving):
                break
            counts[pair] += 1
            planned.append(pair)
            length_s += windows_s[pair[1]]
            here = pair[1]
        self._now = here
        return planned

    def _settle_somewhere(self, pairs: Sequence[tuple[float, float]]) -> float | None:
        if not pairs:
            return None
        value = pairs[int(self.rng.integers(len(pairs)))][0]
        self._device.clocks.request(self.part.setting(value))
        self._device.time.sleep(settling_s(self._expected_s[value]))
        return value

    def _run(self, requests: Sequence[tuple[Setting, float]], lead_s: float, asked: list[float] | None = None) -> Trace:
        """Iterations with requests among them, each followed by its window; notes when each was made."""
        device = self._device
        with device.tracer().start(self._load, lead_s + sum(window for _, window in requests)) as run:
            device.time.sleep(lead_s)
            for setting, window in requests:
                assert asked is not None
                asked.append(device.time.now_s())
                device.clocks.request(setting)
                device.time.sleep(max(asked[-1] + window - device.time.now_s(), 0.0))
        return run.trace
