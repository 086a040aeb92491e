"""Energy of the GPUs behind a server: between any two moments of a measurement, by whatever meter there is.

A meter is watched while a server is measured, and asked afterwards what was used between two moments: which part of the
measurement is the steady state is known only when it has passed. Moments are of ``time.perf_counter``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from wastenot.core.errors import BadInputError
from wastenot.devices.protocol import Device
from wastenot.meters.result import GpuWindow, WindowResult, gpu_window
from wastenot.meters.window import Window, measure
from wastenot.serving.tables.records import PointEvidence

_PATIENCE_S = 2.0  # for the energy counter's next step


@dataclass(frozen=True, slots=True)
class EnergyUsed:
    """What GPUs used between two moments.

    Attributes:
        energy_j: all GPUs together; ``None`` where the meter did not tell.
        energy_se_j: its standard error.
        notes: caveats for the reader.
    """

    energy_j: float | None
    energy_se_j: float | None
    notes: tuple[str, ...] = ()


class Watch(Protocol):
    """A meter that is being watched."""

    def used(self, begin_s: float, end_s: float) -> EnergyUsed:
        """What was used between two moments since the watch began; may wait for the meter's next reading."""


@dataclass(frozen=True, slots=True)
class EnergyMeter:
    """What tells the energy of the GPUs behind a server.

    Attributes:
        name: of the meter, for people: the GPUs' names, or the address that is read.
        gpu: model of the GPUs.
        gpus: how many it covers.
        evidence: whether its numbers are measured or simulated.
        watch: watches it inside a context.
    """

    name: str
    gpu: str
    gpus: int
    evidence: PointEvidence
    watch: Callable[[], AbstractContextManager[Watch]]


def local_meter(devices: tuple[Device, ...]) -> EnergyMeter:
    """GPUs of this machine, as ``wn.measure`` measures them.

    Args:
        devices: to measure, all of one model.

    Raises:
        BadInputError: there are none, or of several models.
    """
    models = {device.identity.model for device in devices}
    if len(models) != 1:
        listed = ", ".join(sorted(models)) or "none"
        raise BadInputError(f"`device`: the GPUs of a server are of one model; these are {listed}")

    @contextmanager
    def watch() -> Iterator[Watch]:
        """Follow their energy counters inside the context."""
        window = measure(devices, name="server", cycles=False).begin()
        try:
            yield _LocalWatch(window)
        finally:
            window.end()

    first = devices[0].identity
    evidence: PointEvidence = "measured" if first.origin == "measured" else "simulated"
    return EnergyMeter(", ".join(each.identity.name for each in devices), first.model, len(devices), evidence, watch)


@dataclass(frozen=True, slots=True)
class _LocalWatch:
    """The open window keeps the log of each GPU from its begin."""

    _window: Window

    def used(self, begin_s: float, end_s: float) -> EnergyUsed:
        gpus: list[GpuWindow] = []
        for follower in self._window.followers:
            follower.log.wait(None if follower.has_counter is False else end_s, end_s, _PATIENCE_S)
            gpus.append(gpu_window(follower.device.identity, follower.log, bool(follower.has_counter), begin_s, end_s))
        whole = WindowResult.of("server", end_s - begin_s, tuple(gpus))
        return EnergyUsed(whole.energy_j, whole.energy_se_j, whole.flags)


def together(parts: Sequence[EnergyUsed]) -> EnergyUsed:
    """Several GPUs together; unknown where one of them is."""
    energies = [part.energy_j for part in parts if part.energy_j is not None]
    errors = [part.energy_se_j for part in parts if part.energy_se_j is not None]
    notes = tuple(dict.fromkeys(note for part in parts for note in part.notes))
    if len(energies) < len(parts):
        return EnergyUsed(None, None, notes)
    error = sum(each**2 for each in errors) ** 0.5 if len(errors) == len(parts) else None
    return EnergyUsed(sum(energies), error, notes)
