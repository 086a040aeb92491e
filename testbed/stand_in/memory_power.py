"""Power of the memory of a stand-in GPU: a mean over the last second, as Hopper tells it."""

from __future__ import annotations

import numpy as np

from wastenot.devices.simulated.preset import Preset

_WINDOW_S = 1.0
_IDLE_SHARE = 46.0 / 79.0  # H200: of the idle power
_AWAKE_SHARE = 82.0 / 115.0  # H200: of the base power in the highest memory state


class MemoryPower:
    """Idle, awake, and so much for each byte moved; the H200's proportions.

    Args:
        preset: of the GPU.
    """

    def __init__(self, preset: Preset) -> None:
        self._idle_w = _IDLE_SHARE * preset.idle_w
        self._awake_w = _AWAKE_SHARE * preset.parameters.base_w[-1]
        self._byte_j = preset.ops["default"].byte_j if preset.ops else 0.0
        self._moments_s = [0.0]
        self._energies_j = [0.0]
        self._bytes = 0.0

    def note(self, now_s: float, bytes_moved: float | None) -> None:
        """Bring it up to now.

        Args:
            now_s: the moment.
            bytes_moved: by the running task since it began; ``None`` while none ran since the last note.
        """
        seconds = now_s - self._moments_s[-1]
        if seconds <= 0.0:
            return
        power_j = seconds * (self._idle_w if bytes_moved is None else self._awake_w)
        if bytes_moved is not None:
            power_j += (bytes_moved - self._bytes) * self._byte_j
        self._bytes = bytes_moved or 0.0
        self._moments_s.append(now_s)
        self._energies_j.append(self._energies_j[-1] + power_j)
        while len(self._moments_s) > 2 and self._moments_s[1] < now_s - _WINDOW_S:
            del self._moments_s[0], self._energies_j[0]

    def began(self) -> None:
        """A task begins."""
        self._bytes = 0.0

    def mean_w(self) -> float:
        """Mean over the last second."""
        end = self._moments_s[-1]
        begin = max(end - _WINDOW_S, self._moments_s[0])
        if end <= begin:
            return self._idle_w
        then = float(np.interp(begin, self._moments_s, self._energies_j))
        return (self._energies_j[-1] - then) / (end - begin)
