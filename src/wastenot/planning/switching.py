"""What setting clocks takes on a device that only its name is known of: how long a switch lasts, and by which command.

Nothing here was measured by wastenot. Simulated GPUs state their latencies; of real ones the few that were published are
assumed, and for all others a round number between those.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Literal

from wastenot.documents import NotNegative, Part
from wastenot.errors import BadInputError
from wastenot.setting import Setting

# Latencies of the presets in devices/simulated/presets, the longest of each: (core clock, memory clock), seconds. A test
# compares them.
_SIMULATED = {
    "rtx-3080-ti": (0.03, 0.1),
    "rtx-a4000": (0.03, 0.1),
    "v100": (0.03, 0.03),
    "h200": (0.0225, 1.0),
    "mi300x": (0.03, 0.03),
}

# Velička, Vysocký, Říha, "Methodology for GPU Frequency Switching Latency Measurement", IPDPSW 2025 (arXiv 2502.20075), the
# upper end of what it found: A100 about 4 to 23 ms; GH200 mostly 5 to 30 ms, some clocks up to 480 ms; Quadro RTX 6000 10 to
# 350 ms. These numbers are recalled, not verified. They are of core clocks. Memory clocks are assumed to take no less than
# the presets assume, and on Hopper a second, for its memory clock is said to change only when the driver is loaded again.
_PUBLISHED: tuple[tuple[frozenset[str], float, float, str], ...] = (
    (frozenset({"quadro", "rtx"}), 0.35, 0.35, "Quadro RTX 6000 10 to 350 ms"),
    *((frozenset({card}), 0.023, 0.1, "A100 about 4 to 23 ms") for card in ("a100", "a800")),
    *((frozenset({card}), 0.03, 1.0, "GH200 mostly 5 to 30 ms") for card in ("h100", "h200", "h800", "gh200")),
)
_PAPER = "Velička et al., IPDPSW 2025"
_UNKNOWN_S = 0.1  # between an A100's and a Quadro RTX 6000's

_UNIQUE_ID = re.compile(r"GPU-[0-9a-f-]+", re.IGNORECASE)  # its hexadecimal groups may read like the names of cards
_NVIDIA = re.compile(
    r"nvidia|geforce|quadro|tesla|titan|[gr]tx|v100|t4|a1[06]|a[34]0|a[18]00|h20|g?h[128]00|l40?s?|g?b[123]00"
)
_AMD = re.compile(r"amd|instinct|radeon|mi\d{3}[ax]?")
_HOPPER = frozenset({"h100", "h200", "h800", "gh200"})

# What undoes each flag of a command that sets clocks. nvidia-smi has no flag that restores the power limit: "default" stands
# for the watts that `nvidia-smi -q -d POWER` shows.
_UNDO = {
    "-lgc": "-rgc",
    "-lmc": "-rmc",
    "-lmcd": "-rmcd",
    "-pl": "-pl DEFAULT",
    "--perf-determinism": "--perf-determinism",
    "--power-cap": "--power-cap",
}


class SwitchTime(Part):
    """How long a device takes from a request until it runs at other clocks.

    Attributes:
        core_s: to change the core clock or the power limit.
        memory_s: to change the memory clock.
        basis: ``stated`` by the device, ``given`` by the user, or ``assumed`` until it is measured.
        source: where the seconds come from.
    """

    core_s: NotNegative
    memory_s: NotNegative
    basis: Literal["stated", "given", "assumed"]
    source: str


def switch_time(device: str, seconds: float | None = None) -> SwitchTime:
    """How long a device takes to switch clocks.

    Args:
        device: its name in studies and plans, such as ``sim:h200`` or ``RTX 3080 Ti``.
        seconds: what it takes, where that is known better.

    Raises:
        BadInputError: the seconds are no duration.
    """
    if seconds is not None:
        if not 0.0 <= seconds < math.inf:
            raise BadInputError(f"`switch_time_s` {seconds}: must be a number of seconds, such as 0.03")
        return SwitchTime(core_s=seconds, memory_s=seconds, basis="given", source="given")
    simulated = _SIMULATED.get(device.removeprefix("sim:")) if device.startswith("sim:") else None
    if simulated is not None:
        core_s, memory_s = simulated
        return SwitchTime(core_s=core_s, memory_s=memory_s, basis="stated", source=f"the simulated GPU {device}")
    words = _words(device)
    for card, core_s, memory_s, found in _PUBLISHED:
        if card <= words:
            return SwitchTime(core_s=core_s, memory_s=memory_s, basis="assumed", source=f"{_PAPER}: {found}")
    source = f"nothing is published of this device; {_PAPER} found 4 to 350 ms on others"
    return SwitchTime(core_s=_UNKNOWN_S, memory_s=_UNKNOWN_S, basis="assumed", source=source)


def commands(device: str, setting: Setting, memory_mhz: float | None = None) -> tuple[str, ...]:
    """What to run, as root, to set a device's clocks and leave them; nothing where its vendor is not known.

    A core clock is a ceiling: NVIDIA's range begins at 0, and AMD's performance determinism limits the highest clock
    (`AMD SMI documentation <https://rocm.docs.amd.com/projects/amdsmi/en/latest/conceptual/perf-determinism.html>`_).

    Each names one GPU, for these tools set every GPU of the machine otherwise: the one whose unique ID is part of the name,
    else the first, 0.

    Args:
        device: its name in studies and plans.
        setting: to set; what is auto in it needs no command.
        memory_mhz: memory clock in effect by default, which needs no command either.
    """
    vendor = vendor_of(device)
    memory = None if setting.memory_mhz == memory_mhz else setting.memory_mhz
    if vendor == "nvidia":
        # Hopper takes a memory clock over when the driver is loaded again (nvidia-smi's help on -lmcd).
        lock = "-lmcd {0:.0f}" if _words(device) & _HOPPER else "-lmc {0:.0f},{0:.0f}"
        wanted = (("-lgc 0,{0:.0f}", setting.core_mhz), (lock, memory), ("-pl {0:.0f}", setting.power_limit_w))
        unique = _UNIQUE_ID.search(device)
        card = "0" if unique is None else unique[0]
        return tuple(f"nvidia-smi -i {card} {flag.format(value)}" for flag, value in wanted if value is not None)
    if vendor == "amd" and memory is None:
        limits = (("--perf-determinism", setting.core_mhz), ("--power-cap", setting.power_limit_w))
        return tuple(f"amd-smi set --gpu 0 {flag} {value:.0f}" for flag, value in limits if value is not None)
    return ()


def undo_commands(setting_commands: Sequence[str]) -> tuple[str, ...]:
    """What to run, as root, to undo :func:`commands`: each part goes back to the driver's default."""
    found = []
    for command in setting_commands:
        tool, *words = command.split()
        flag = next((word for word in words if word in _UNDO), None)
        if flag is not None:
            card = words[: words.index(flag)]
            card = ["reset", *card[1:]] if tool == "amd-smi" else card
            found.append(" ".join((tool, *card, _UNDO[flag])))
    return tuple(dict.fromkeys(found))


def _words(device: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", _UNIQUE_ID.sub("", device).lower()))


def vendor_of(device: str) -> Literal["nvidia", "amd"] | None:
    """Who made a device, where its name tells."""
    if device.endswith(".toml"):
        return None
    words = _words(device)
    if any(_AMD.fullmatch(word) for word in words):
        return "amd"
    return "nvidia" if any(_NVIDIA.fullmatch(word) for word in words) else None
