"""A setting: what a user turns on a GPU. Each part may be auto, which leaves it to the driver."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Setting:
    """Requested clocks, power limit and workload power profile; ``None`` is auto.

    Attributes:
        core_mhz: ceiling of the core (SM) clock in MHz: the card may run lower, never higher.
        memory_mhz: memory clock in MHz.
        power_limit_w: board power limit in watts.
        profile: the vendor's own recipe for a kind of work, by name: NVIDIA's workload power profiles, such as ``max-q``.
    """

    core_mhz: float | None = None
    memory_mhz: float | None = None
    power_limit_w: float | None = None
    profile: str | None = None

    @property
    def is_auto(self) -> bool:
        """Whether everything is left to the driver (the baseline)."""
        return self == AUTO

    def __str__(self) -> str:
        if self.is_auto:
            return "auto"
        parts = [f"core {format_mhz(self.core_mhz)}", f"memory {format_mhz(self.memory_mhz)}"]
        if self.power_limit_w is not None:
            parts.append(f"limit {self.power_limit_w:g} W")
        if self.profile is not None:
            parts.append(f"profile {self.profile}")
        return ", ".join(parts)


AUTO = Setting()


def format_mhz(clock_mhz: float | None) -> str:
    """A clock as people read it: ``auto``, or the number without needless digits."""
    return "auto" if clock_mhz is None else f"{clock_mhz:g}"
