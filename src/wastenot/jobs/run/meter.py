"""What a run of a job uses: its time, and the energy of all of its GPUs by their counters."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from wastenot.core.setting import AUTO
from wastenot.jobs.run.place import Place
from wastenot.jobs.tables.records import JobRun, Speed
from wastenot.meters.window import Meter, Window

_SAVE_EVERY_S = 1.0
_ONE_EPOCH_ERROR = 0.5  # of the time of a run's only epoch, which loading and compiling are part of
_LEAST_ERROR = 0.01
_POWER_ERROR = 0.02
_LEAST_SHARED_ERROR = 0.003  # between runs, however many epochs each had


class JobMeter:
    """Follows a run from here on.

    Args:
        place: of the run.

    Attributes:
        every_epoch: whether every epoch is stored at once, as others wait for it.
    """

    def __init__(self, place: Place) -> None:
        self.every_epoch, self._machines = False, place.machines
        self._window: Window | None = None
        if place.gpus and place.tells_energy:
            from wastenot.meters.window import measure

            meter: Meter = measure(place.gpus, name="job", cycles=False)
            self._window = meter.begin()
        self._began_s = time.monotonic()
        self._used: tuple[float, float | None] | None = None
        self._epochs: list[float] = []
        self._used_then: list[tuple[float, float | None]] = []
        self._own_s = 0.0  # that was spent on deciding, and is no part of any epoch
        self._saved_s = time.monotonic()

    def epoch(self) -> None:
        """An epoch ends now."""
        used = self.used()
        self._epochs.append(used[0] - self._own_s)
        self._used_then.append(used)

    def resume(self) -> None:
        """The program starts its next epoch now; what came after the last one was not its own."""
        self._own_s = self.used()[0] - (self._epochs[-1] if self._epochs else 0.0)

    def end(self) -> None:
        """The run ends now; what is used later is not its own."""
        if self._used is None:
            took_s = time.monotonic() - self._began_s
            energy_j = None
            if self._window is not None:
                self._window.end()
                energy_j = self._window.result().energy_j
            self._used = took_s, energy_j

    def used(self) -> tuple[float, float | None]:
        """Seconds and joules so far; the joules as of the counter's last step."""
        if self._used is not None:
            return self._used
        so_far = None if self._window is None else self._window.so_far()
        return time.monotonic() - self._began_s, None if so_far is None else so_far.energy_j

    @property
    def settled(self) -> bool:
        """Whether epochs have passed besides the first, which loading and compiling are part of."""
        return len(self._epochs) > 1

    def save_due(self) -> bool:
        """Whether what was counted should be stored now."""
        now_s = time.monotonic()
        if not self.every_epoch and self._used is None and now_s - self._saved_s < _SAVE_EVERY_S:
            return False
        self._saved_s = now_s
        return True

    def speed(self, run: JobRun, known: Iterable[Speed]) -> Speed | None:
        """How fast the run trained, together with what was known; ``None`` where nothing new is.

        Args:
            run: that ended, at the default setting.
            known: speeds that were stored before.
        """
        if not self._epochs:
            return None
        # What comes before the first epoch, and what that one alone does, is not what epochs take.
        times = np.diff(self._epochs) if self.settled else np.array(self._epochs)
        mean = float(times.mean())
        if mean <= 0.0:
            return None
        spread = float(times.std(ddof=1)) / mean if len(times) > 1 else _ONE_EPOCH_ERROR
        power_w = self._power_w()
        error = max(spread, _LEAST_ERROR) / math.sqrt(len(times))
        now = Speed(run.device, run.batch_size, AUTO, mean, power_w, error, 0.0 if power_w is None else _POWER_ERROR)
        same = [each for each in known if (each.device, each.batch_size, each.setting) == (now.device, now.batch_size, AUTO)]
        return _combined(same[-1], now) if same else now

    def _power_w(self) -> float | None:
        first_s, first_j = self._used_then[0] if self.settled else (0.0, 0.0)
        last_s, last_j = self._used_then[-1]
        if first_j is None or last_j is None or last_s <= first_s or last_j <= first_j:
            return None
        return self._machines * (last_j - first_j) / (last_s - first_s)


def _combined(before: Speed, now: Speed) -> Speed:
    """Both, by what each is worth: less the older it is, and less the further the new one is off.

    So a run that was disturbed counts little, and one that others after it agree with soon counts in full.
    """
    apart = abs(math.log(now.epoch_time_s / before.epoch_time_s))
    old = 0.5 / max(before.time_error, _LEAST_SHARED_ERROR) ** 2
    new = 1.0 / max(now.time_error, 0.5 * apart, _LEAST_SHARED_ERROR) ** 2
    share = new / (old + new)
    mean_s = before.epoch_time_s ** (1.0 - share) * now.epoch_time_s**share
    power_w = now.power_w
    if power_w is not None and before.power_w is not None:
        power_w = (1.0 - share) * before.power_w + share * power_w
    return replace(now, epoch_time_s=mean_s, power_w=power_w, time_error=1.0 / math.sqrt(old + new))
