"""When clocks that were asked for arrive on a stand-in GPU."""

from __future__ import annotations

from wastenot.core.setting import Setting
from wastenot.devices.simulated.hardware import Switching


class Arrival:
    """Switching latency that can be made endless.

    Args:
        model: of the latency otherwise.

    Attributes:
        jitter, late_chance, late_factor: as the model's.
        never: whether clocks never arrive.
    """

    def __init__(self, model: Switching) -> None:
        self.jitter, self.late_chance, self.late_factor = model.jitter, model.late_chance, model.late_factor
        self.never = False
        self._model = model

    def latency_s(self, before: Setting, after: Setting) -> float:
        """Median latency of a change."""
        return float("inf") if self.never else self._model.latency_s(before, after)

    def pause_s(self, before: Setting, after: Setting) -> float:
        """How long kernels pause until a change takes effect."""
        return self._model.pause_s(before, after)
