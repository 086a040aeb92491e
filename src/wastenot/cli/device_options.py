"""Flags of verbs that measure on a device, and the device that they mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from wastenot.devices.nvidia.journal import Restore
    from wastenot.devices.protocol import Device
    from wastenot.workloads.identity import WorkloadKey

DeviceOption = Annotated[
    str, typer.Option("--device", metavar="D", help="sim:NAME, sim:FILE.toml, recorded:STUDY or nvidia:INDEX.")
]
AllowOption = Annotated[
    bool,
    typer.Option(
        "--allow-clock-control",
        help="Let the clocks of a real GPU be changed; they are given back. WASTENOT_READ_ONLY=1 forbids it all the same.",
    ),
]
RestoreOption = Annotated[
    str | None,
    typer.Option(
        "--restore-clocks",
        metavar="MIN-MAX[,MIN-MAX]",
        help="Locked core clocks, and memory clocks, that a real GPU goes back to; without it they are reset.",
    ),
]


def open_target(
    name: str,
    *,
    seed: int,
    workload: WorkloadKey | None,
    allow: bool,
    restore: str | None,
) -> Device:
    """The device of a verb; of a real one whose clocks may be changed it is said beforehand to what they go back.

    Args:
        name: of the device.
        seed: of a simulated one.
        workload: that a recording is asked for.
        allow: let clocks be changed.
        restore: as ``--restore-clocks`` says.

    Raises:
        BadInputError: there is no such device, or ``restore`` does not say ranges of clocks.
        DeviceError: it does not answer.
    """
    from wastenot.cli.output import say
    from wastenot.devices.open import open_device

    ranges = parse_restore(restore)
    recorded = workload if name.startswith("recorded:") else None
    device = open_device(
        name,
        seed=seed,
        workload=None if recorded is None else recorded.name,
        granularity=None if recorded is None else recorded.granularity,
        allow_clock_control=allow,
        restore=ranges,
    )
    if allow and name.startswith("nvidia:"):
        back = "reset, so that clocks locked before are lost (name them: --restore-clocks)"
        if ranges is not None:
            back = f"locked to {restore} MHz again"
        say(f"{name}: {device.identity.label}: when done, clocks are {back}, and the power limit is set back")
    return device


def parse_restore(text: str | None) -> Restore | None:
    """Ranges of locked clocks such as ``345-1980`` or ``345-1500,3201-3201``.

    Raises:
        BadInputError: it does not say that.
    """
    from wastenot.devices.nvidia.journal import Restore
    from wastenot.errors import BadInputError

    if text is None:
        return None
    ranges = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        try:
            bounds = (float(low), float(high))
        except ValueError:
            bounds = (0.0, 0.0)
        if not 0.0 < bounds[0] <= bounds[1] < float("inf"):
            raise BadInputError(f"--restore-clocks {text}: write a range of core clocks in MHz such as 345-1980, and one of "
                                "memory clocks after a comma")  # fmt: skip
        ranges.append(bounds)
    if len(ranges) > 2:
        raise BadInputError(f"--restore-clocks {text}: at most two ranges, of core and of memory clocks")
    return Restore(ranges[0], ranges[1] if len(ranges) == 2 else None)
