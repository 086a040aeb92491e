"""What is known of each vendor's GPUs by their names alone, without a driver; and where its driver stands.

A line of :data:`VENDORS` makes a vendor known to every command. Nothing else outside ``devices`` names one.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from wastenot.core.profiles import profile_number
from wastenot.core.setting import Setting


class PublishedSwitch(NamedTuple):
    """How long cards of these words were found to take to switch core clocks; of memory clocks it is assumed."""

    words: frozenset[str]
    core_s: float
    memory_s: float
    found: str


@dataclass(frozen=True, slots=True, eq=False)
class Vendor:
    """A vendor of GPUs.

    Attributes:
        name: what names of its devices begin with, such as ``nvidia`` in ``nvidia:0``; also the extra that installs what its
            driver needs.
        label: as people write it.
        models: matches each word of a model's name that tells the vendor, in lower case.
        brands: words that some names of a model have and others leave out.
        tool: that sets clocks.
        commands: of the tool, to set a setting, given the words of a card's name and its unique ID or index.
        undo: by flag of these commands, the one that undoes it; ``{}`` stands for its value.
        card_option: of the tool, before the card that is set.
        lock: a command of the tool that limits the core clock to 1,500 MHz, as people run it by hand.
        notes: by flag, what to know before it is run; ``{}`` stands for its value.
        deferred: the flags that take effect when the driver is loaded again.
        switching: what is published of its cards' switching times.
        driver: the module that is a :class:`wastenot.devices.common.gpu_driver.GpuDriver`; ``None`` where there is
            none yet, and the following have no meaning.
        id_prefix: what unique IDs of its cards begin with, and no other vendor's do.
        binding: the module by which Python speaks to its driver, and the name of the distribution.
        pci_id: the vendor's number on the PCI bus, as Linux writes it.
        torch_build: the attribute of ``torch.version`` that a PyTorch for its cards has.
        visible: the environment variable that says which of its cards a process may use.
        container: what starts a container with its cards.
        resource: by which pods of Kubernetes ask for its cards.
        power_annotation: of pods whose power another agent limits.
    """

    name: str
    label: str
    models: re.Pattern[str]
    brands: frozenset[str]
    tool: str
    commands: Callable[[frozenset[str], str, Setting], tuple[str, ...]]
    undo: Mapping[str, str]
    card_option: str
    lock: str
    notes: Mapping[str, str] = field(default_factory=dict)
    deferred: frozenset[str] = frozenset()
    switching: tuple[PublishedSwitch, ...] = ()
    driver: str | None = None
    id_prefix: str = ""
    binding: tuple[str, str] = ("", "")
    pci_id: str = ""
    torch_build: str = ""
    visible: str = ""
    container: str = ""
    resource: str = ""
    power_annotation: str = ""


def _nvidia_commands(words: frozenset[str], card: str, setting: Setting) -> tuple[str, ...]:
    # A core clock is a ceiling: the range begins at 0. Hopper takes a memory clock over when the driver is loaded again
    # (nvidia-smi's help on -lmcd).
    lock = "-lmcd {0:.0f}" if words & _HOPPER else "-lmc {0:.0f},{0:.0f}"
    wanted = (("-lgc 0,{0:.0f}", setting.core_mhz), (lock, setting.memory_mhz), ("-pl {0:.0f}", setting.power_limit_w))
    number = None if setting.profile is None else profile_number(setting.profile)
    profile = () if number is None else (f"nvidia-smi power-profiles -i {card} -sr {number}",)
    clocks = (f"nvidia-smi -i {card} {flag.format(value)}" for flag, value in wanted if value is not None)
    return (*profile, *clocks)


def _amd_commands(words: frozenset[str], card: str, setting: Setting) -> tuple[str, ...]:
    # Performance determinism limits the highest core clock; nothing sets a memory clock
    # (https://rocm.docs.amd.com/projects/amdsmi/en/latest/conceptual/perf-determinism.html).
    if setting.memory_mhz is not None:
        return ()
    # amd-smi counts GPUs in an order of its own, and its unique IDs are not those by which PyTorch knows them.
    number = card if card.isdecimal() else "0"
    limits = (("--perf-determinism", setting.core_mhz), ("--power-cap", setting.power_limit_w))
    return tuple(f"amd-smi set --gpu {number} {flag} {value:.0f}" for flag, value in limits if value is not None)


_HOPPER = frozenset({"h100", "h200", "h800", "gh200"})

_NVIDIA = Vendor(
    name="nvidia",
    label="NVIDIA",
    models=re.compile(
        r"nvidia|geforce|quadro|tesla|titan|[gr]tx|v100|t4|a1[06]|a[34]0|a[18]00|h20|g?h[128]00|l40?s?|g?b[123]00"
    ),
    brands=frozenset({"nvidia", "geforce"}),
    tool="nvidia-smi",
    commands=_nvidia_commands,
    # No flag restores the power limit: "default" stands for the watts that `nvidia-smi -q -d POWER` shows.
    undo={"-lgc": "-rgc", "-lmc": "-rmc", "-lmcd": "-rmcd", "-pl": "-pl DEFAULT", "-sr": "-cr {}"},
    card_option="-i",
    lock="nvidia-smi -lgc 0,1500",
    notes={
        "-lgc": "-lgc {} is a ceiling of the core clock.",
        "-lmcd": "A deferred memory clock (-lmcd) takes effect when the driver is loaded again.",
        "-pl": "DEFAULT is the default power limit that nvidia-smi -q -d POWER shows.",
    },
    deferred=frozenset({"-lmcd"}),
    # Velička, Vysocký, Říha, "Methodology for GPU Frequency Switching Latency Measurement", IPDPSW 2025 (arXiv 2502.20075),
    # the upper end of what it found: A100 about 4 to 23 ms; GH200 mostly 5 to 30 ms, some clocks up to 480 ms; Quadro RTX
    # 6000 10 to 350 ms. These numbers are recalled, not verified. They are of core clocks. On Hopper the memory clock is
    # said to change only when the driver is loaded again, which is assumed to take a second.
    switching=(
        PublishedSwitch(frozenset({"quadro", "rtx"}), 0.35, 0.35, "Quadro RTX 6000 10 to 350 ms"),
        *(PublishedSwitch(frozenset({card}), 0.023, 0.1, "A100 about 4 to 23 ms") for card in ("a100", "a800")),
        *(PublishedSwitch(frozenset({card}), 0.03, 1.0, "GH200 mostly 5 to 30 ms") for card in sorted(_HOPPER)),
    ),
    driver="wastenot.devices.nvidia.driver",
    id_prefix="GPU-",
    binding=("pynvml", "nvidia-ml-py"),
    pci_id="0x10de",
    torch_build="cuda",
    visible="CUDA_VISIBLE_DEVICES",
    container="docker run --gpus all",
    resource="nvidia.com/gpu",
    power_annotation="dynamo.nvidia.com/gpu-power-limit",  # Dynamo's power agent
)
_AMD = Vendor(
    name="amd",
    label="AMD",
    models=re.compile(r"amd|instinct|radeon|mi\d{3}[ax]?"),
    brands=frozenset({"amd"}),
    tool="amd-smi",
    commands=_amd_commands,
    undo={"--perf-determinism": "--perf-determinism", "--power-cap": "--power-cap"},
    card_option="--gpu",
    lock="amd-smi set --perf-determinism 1500",
    notes={"--gpu": "--gpu is a number of amd-smi, which amd-smi list shows beside each card."},
    driver="wastenot.devices.amd.driver",
    id_prefix="AMD-",
    binding=("amdsmi", "amdsmi"),
    pci_id="0x1002",
    torch_build="hip",
    visible="HIP_VISIBLE_DEVICES",
    container="docker run --device=/dev/kfd --device=/dev/dri",
    resource="amd.com/gpu",
)

VENDORS: tuple[Vendor, ...] = (_NVIDIA, _AMD)
"""All vendors; commands are the first one's where a name tells none."""


def with_drivers() -> tuple[Vendor, ...]:
    """The vendors whose GPUs can be opened."""
    return tuple(vendor for vendor in VENDORS if vendor.driver is not None)


def vendor_named(device: str) -> Vendor | None:
    """The vendor of a device's name such as ``nvidia:0``; ``None`` where it names no real GPU."""
    kind = device.partition(":")[0]
    return next((vendor for vendor in with_drivers() if vendor.name == kind), None)


def vendor_of_id(unique_id: str) -> Vendor | None:
    """The vendor of a card with a unique ID."""
    return next((vendor for vendor in with_drivers() if unique_id.startswith(vendor.id_prefix)), None)


def vendor_of(device: str) -> Vendor | None:
    """Who made a device, where its name in studies and plans tells."""
    if device.endswith(".toml"):
        return None
    # What two vendors claim is the later one's: the patterns of the first reach furthest.
    return next((vendor for vendor in reversed(VENDORS) if any(map(vendor.models.fullmatch, words_of(device)))), None)


def commands(device: str, setting: Setting, memory_mhz: float | None = None) -> tuple[str, ...]:
    """What to run, as root, to set a device's clocks and leave them; nothing where its vendor is not known.

    Each names one GPU, for these tools set every GPU of the machine otherwise: the one whose unique ID is part of the name,
    else the first, 0.

    Args:
        device: its name in studies and plans.
        setting: to set; what is auto in it needs no command.
        memory_mhz: memory clock in effect by default, which needs no command either.
    """
    vendor = vendor_of(device)
    if vendor is None:
        return ()
    memory = None if setting.memory_mhz == memory_mhz else setting.memory_mhz
    wanted = replace(setting, memory_mhz=memory)
    return vendor.commands(words_of(device), unique_id_in(device) or "0", wanted)


def undo_commands(setting_commands: Sequence[str]) -> tuple[str, ...]:
    """What to run, as root, to undo :func:`commands`: each part goes back to the driver's default."""
    found = []
    for tool, *words in map(str.split, setting_commands):
        undo = next((vendor.undo for vendor in VENDORS if vendor.tool == tool), {})
        flag = next((word for word in words if word in undo), None)
        if flag is not None:
            card = ["reset" if word == "set" else word for word in words[: words.index(flag)]]
            found.append(" ".join((tool, *card, undo[flag].format(words[words.index(flag) + 1]))))
    return tuple(dict.fromkeys(found))


def notes_on(setting_commands: Sequence[str], *, deferred: bool = False) -> tuple[str, ...]:
    """What to know before running commands, or only of what takes effect when the driver is loaded again."""
    found = []
    for tool, *words in map(str.split, setting_commands):
        for vendor in (vendor for vendor in VENDORS if vendor.tool == tool):
            for flag, value in itertools.pairwise(words):
                if flag in (vendor.deferred if deferred else vendor.notes):
                    found.append(vendor.notes[flag].format(value))
    return tuple(dict.fromkeys(found))


def unique_id_in(device: str) -> str | None:
    """The unique ID of a card in a device's name."""
    found = _unique_ids().search(device)
    return None if found is None else found[0]


def model_in(device: str) -> str:
    """A device's name without the unique ID of a card."""
    return _unique_ids().sub("", device).strip()


def bare_unique_id(unique_id: str) -> str:
    """A card's unique ID as PyTorch writes it, without its prefix."""
    vendor = vendor_of_id(unique_id)
    return unique_id.removeprefix("" if vendor is None else vendor.id_prefix).lower()


def words_of(device: str) -> frozenset[str]:
    """The words of a device's name; not the parts of its unique ID, which may read like the names of cards."""
    return frozenset(re.findall(r"[a-z0-9]+", model_in(device).lower()))


def model_words(device: str) -> frozenset[str]:
    """The words of a device's name by which models are told apart."""
    return words_of(device).difference(*(vendor.brands for vendor in VENDORS))


def _unique_ids() -> re.Pattern[str]:
    prefixes = "|".join(re.escape(vendor.id_prefix) for vendor in with_drivers())
    return re.compile(rf"\b(?:{prefixes})[0-9a-f-]+", re.IGNORECASE)
