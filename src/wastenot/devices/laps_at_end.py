"""What runs share whose laps are told once they have ended."""

from __future__ import annotations

from wastenot.core.errors import DeviceError
from wastenot.devices.protocol import Lap


class LapsAtEnd:
    """A run whose laps are known once it has ended, when ``_laps`` is set."""

    _laps: tuple[Lap, ...] | None = None

    @property
    def how(self) -> str:
        """Empty: there is nothing to report."""
        return ""

    @property
    def laps(self) -> tuple[Lap, ...]:
        """Laps between marks."""
        if self._laps is None:
            raise DeviceError("laps are only available once the run has ended")
        return self._laps
