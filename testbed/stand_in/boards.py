"""What NVML tells of a board besides what a preset simulates; from NVIDIA's tables, and of the H200 as read from one."""

from __future__ import annotations

from dataclasses import dataclass

VOLTA, AMPERE, HOPPER, BLACKWELL = 5, 7, 9, 10  # NVML_DEVICE_ARCH_*


@dataclass(frozen=True, slots=True)
class Board:
    """A kind of board.

    Attributes:
        architecture: NVML_DEVICE_ARCH_*.
        compute_capability: major and minor.
        memory_bytes: of device memory.
        pci_device_id: device and vendor.
        memory_lock: whether its memory clock can be locked while it runs.
        dies: that a package has, each a GPU of its own of which only the first reports power (AMD's MI250).
        idle_memory: place of the idle memory clock among the states: 0 lowest, -1 highest.
    """

    architecture: int
    compute_capability: tuple[int, int]
    memory_bytes: int
    pci_device_id: int
    memory_lock: bool = True
    idle_memory: int = 0
    dies: int = 1

    @property
    def averages_power(self) -> bool:
        """Whether the power usage is a mean over a second: Ampere (GA100 apart) and newer."""
        return self.architecture >= AMPERE

    @property
    def has_gpm(self) -> bool:
        """Whether samples of performance monitors are taken: Hopper and newer."""
        return self.architecture >= HOPPER

    @property
    def has_memory_power(self) -> bool:
        """Whether the memory's own power is told; seen on Hopper."""
        return self.architecture == HOPPER


BOARDS = {
    "b200": Board(BLACKWELL, (10, 0), 180 << 30, 0x290110DE, idle_memory=-1),
    "h200": Board(HOPPER, (9, 0), 143_771 << 20, 0x233510DE, memory_lock=False, idle_memory=-1),
    "rtx-3080-ti": Board(AMPERE, (8, 6), 12 << 30, 0x220810DE),
    "rtx-a4000": Board(AMPERE, (8, 6), 16 << 30, 0x24B010DE),
    "mi210": Board(0, (9, 0), 64 << 30, 0x740F1002),
    "mi250": Board(0, (9, 0), 64 << 30, 0x740C1002, dies=2),
    "mi300x": Board(0, (9, 4), 192 << 30, 0x74A11002),
    "v100": Board(VOLTA, (7, 0), 32 << 30, 0x1DB510DE, memory_lock=False, idle_memory=-1),
}
UNKNOWN_BOARD = Board(AMPERE, (8, 6), 12 << 30, 0x220810DE)
