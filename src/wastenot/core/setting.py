"""A setting: what a user turns on a GPU. Each part may be auto, which leaves it to the driver."""

from __future__ import annotations

import math
from dataclasses import dataclass

from wastenot.core.profiles import profile_name, profile_number

Number = float | None


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

    @classmethod
    def of_numbers(cls, core_mhz: Number, memory_mhz: Number, power_limit_w: Number, profile: Number = None) -> Setting:
        """The setting of a row of measurements, which has the profile's number; ``None`` and NaN are auto."""
        core, memory, limit, number = (
            None if each is None or math.isnan(each) else float(each)
            for each in (core_mhz, memory_mhz, power_limit_w, profile)
        )
        return cls(core, memory, limit, None if number is None else profile_name(int(number)))

    @property
    def numbers(self) -> tuple[Number, Number, Number, Number]:
        """As a row of measurements has it."""
        number = None if self.profile is None else profile_number(self.profile)
        return self.core_mhz, self.memory_mhz, self.power_limit_w, None if number is None else float(number)

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


def setting_text(setting: Setting, auto: str = "auto", *, named: bool = False, number: str = "g", space: str = " ") -> str:
    """What is set, in few words: ``1410 MHz, memory 5001 MHz, 175 W``; parts that are left to the driver are not mentioned.

    Args:
        setting: the setting.
        auto: what stands for the one in which nothing is set.
        named: say which clock and which watts: ``core 1410 MHz, limit 175 W``.
        number: format of numbers.
        space: between a number and its unit.
    """
    core, limit = ("core ", "limit ") if named else ("", "")
    numbers = ((core, setting.core_mhz, "MHz"), ("memory ", setting.memory_mhz, "MHz"), (limit, setting.power_limit_w, "W"))
    parts = [f"{what}{value:{number}}{space}{unit}" for what, value, unit in numbers if value is not None]
    return ", ".join(parts if setting.profile is None else [*parts, f"profile {setting.profile}"]) or auto


def format_mhz(clock_mhz: float | None) -> str:
    """A clock as people read it: ``auto``, or the number without needless digits."""
    return "auto" if clock_mhz is None else f"{clock_mhz:g}"
