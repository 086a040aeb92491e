"""Workload power profiles of a stand-in GPU, as NVML's header describes them: requests add up, and the card enforces one."""

from __future__ import annotations

from collections.abc import Callable

from testbed.stand_in.codes import Code, Refused
from wastenot.devices.simulated.preset import Preset

NUMBERS = {"max-q": 1, "llm-inference": 6, "llm-training": 7}  # NVML_POWER_PROFILE_*
_NAMES = {number: name for name, number in NUMBERS.items()}
CLEAR, SET, SET_AND_OVERWRITE = 0, 1, 2  # NVML_POWER_PROFILE_OPERATION_*


class Profiles:
    """Those of one GPU.

    Args:
        preset: of the GPU.
        changed: called once what is enforced may have changed.

    Attributes:
        requested: numbers of the profiles that are.
        instead: what the board's management controller has requested, which wins over all; ``None`` for nothing.
    """

    def __init__(self, preset: Preset, changed: Callable[[], None]) -> None:
        self._available = frozenset(NUMBERS[name] for name in preset.profiles or ())
        self._changed = changed
        self.requested = frozenset[int]()
        self.instead: int | None = None

    @property
    def enforced(self) -> int | None:
        """Number of the profile that the card goes by: all conflict, and the lowest number has priority."""
        return min(self.requested, default=None) if self.instead is None else self.instead

    @property
    def name(self) -> str | None:
        """Its name."""
        return None if self.enforced is None else _NAMES[self.enforced]

    def current(self) -> tuple[frozenset[int], frozenset[int], frozenset[int]]:
        """Those available, requested and enforced."""
        self._check()
        return self._available, self.requested, frozenset(() if self.enforced is None else (self.enforced,))

    def update(self, operation: int, numbers: frozenset[int]) -> None:
        """Change what is requested."""
        self._check()
        if not numbers or not numbers <= self._available or operation not in (CLEAR, SET, SET_AND_OVERWRITE):
            raise Refused(Code.INVALID_ARGUMENT)
        before = frozenset() if operation == SET_AND_OVERWRITE else self.requested
        self.requested = before - numbers if operation == CLEAR else before | numbers
        self._changed()

    def _check(self) -> None:
        if not self._available:
            raise Refused(Code.NOT_SUPPORTED)
