"""Measures a device's switching latency from start to end: levels, latencies, costs, and how far they hold."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from wastenot.core.errors import ClocksRefusedError
from wastenot.core.files import PathLike
from wastenot.core.progress import Progress, Silent
from wastenot.devices.open import open_device
from wastenot.devices.protocol import Device
from wastenot.kernels.latency.costs import cost_of
from wastenot.kernels.latency.design import Design, design, estimate_s, switches_expected
from wastenot.kernels.latency.observations import Notebook
from wastenot.kernels.latency.session import Session
from wastenot.planning.latency import Indistinct, Latency, SwitchCost, TargetLatency, What
from wastenot.planning.switching import SwitchTime, switch_time
from wastenot.study.store import Study, open_study

NOT_COVERED = (
    "How much frequent clock changes delay collectives across GPUs (NVIDIA/nccl #1551): only one GPU was measured.",
    "Whether a power limit keeps a workload from reaching the clock: the timed iterations were light and hit no limit.",
    "How latency changes while other programs use the driver.",
)
_COST_SHARE = 0.3  # of the time, at most, for what switches cost


@dataclass(frozen=True, slots=True)
class LatencyEstimate:
    """What there is to measure.

    Attributes:
        device: that is measured.
        design: what is switched between what.
        found: switches that were timed before.
        device_s: that it takes, about, from what is assumed of the latency.
        assumed: what plans take meanwhile.
    """

    device: str
    design: Design
    found: int
    device_s: float
    assumed: SwitchTime


def look_ahead(device: Device, planned: Design, resume: Path | None) -> LatencyEstimate:
    """What measuring would do; nothing is set for it.

    Raises:
        ClocksRefusedError: this process may not set clocks; says what that needs, and what plans assume instead.
        BadInputError: there is an interrupted measurement of something else.
    """
    expected = switch_time(device.identity.label)
    reason = device.clocks.refusal()
    if reason is not None:
        raise ClocksRefusedError(_refused(device, reason))
    notebook = Notebook(resume, _about(device, planned))
    return LatencyEstimate(
        device.identity.name,
        planned,
        len(notebook.observations),
        max(estimate_s(planned, expected) - notebook.spent_s, 0.0),
        expected,
    )


def measure_latency(
    device: str | Device,
    *,
    kinds: Sequence[What] | None = None,
    core_mhz: Sequence[float] = (),
    relative_error: float = 0.012,
    time_limit_s: float = math.inf,
    study: PathLike | Study | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Latency:
    """Measure how long a device takes to switch clocks and power limits, and what a switch costs.

        >>> import wastenot as wn
        >>> found = wn.measure_latency("sim:v100", kinds=("core",), core_mhz=(802.5, 1380.0), relative_error=0.05)
        >>> [target.target for target in found.of("core")], found.switch_time.basis
        ([802.5, 1380.0], 'measured')

    Args:
        device: or its name, such as ``sim:h200`` or ``nvidia:0``.
        kinds: only these of ``core``, ``memory`` and ``power_limit``; by default all that the device can change.
        core_mhz: core clocks to switch between; by default five from the lowest to the highest.
        relative_error: standard error at which a latency counts as known.
        time_limit_s: device time after which it ends with the errors that it has then.
        study: that keeps the result, for its plans; created if missing.
        seed: of the order of switches.
        progress: informed of every switch.

    Raises:
        ClocksRefusedError: clocks may not be set; says what that needs, and what plans assume instead.
        BadInputError: an argument makes no sense, there is nothing to switch, or the study is of another device.
        DeviceError: the device failed.
    """
    target = open_device(device, seed=seed) if isinstance(device, str) else device
    planned = design(target, kinds=kinds, core_mhz=core_mhz, error=relative_error, most_s=time_limit_s)
    store = None if study is None else open_study(study, create=True)
    if store is not None:
        store.check_device(target.identity.label)
    found = measured_latency(target, planned, seed=seed, progress=progress)
    if store is not None:
        store.keep_latency(found.to_json(), found.device)
    return found


def measured_latency(
    device: Device, planned: Design, *, resume: Path | None = None, seed: int = 0, progress: Progress | None = None
) -> Latency:
    """Measure how long a device takes to switch. Its clocks are as before when this returns or raises.

    Args:
        device: whose clocks may be set.
        planned: what to measure.
        resume: file that keeps observations until the end; one that is there is resumed from.
        seed: of the order of switches.
        progress: told of every trace.

    Raises:
        ClocksRefusedError: clocks may not be set; says what that needs, and what plans assume instead.
        BadInputError: there is an interrupted measurement of something else, or the file cannot be written.
        DeviceError: the device failed, or somebody else sets its clocks.
    """
    expected = look_ahead(device, planned, resume).assumed
    notebook = Notebook(resume, _about(device, planned))
    rng = np.random.default_rng([seed, len(notebook.observations)])
    shown = progress or Silent()
    shown.begin(max(switches_expected(planned, expected), len(notebook.observations) + 1), len(notebook.observations))
    began_s = device.time.now_s() - notebook.spent_s
    targets: list[TargetLatency] = []
    pairs: list[TargetLatency] = []
    indistinct: list[Indistinct] = []
    costs: list[SwitchCost] = []
    iteration_s = clock_error_s = 0.0
    refused: list[tuple[str, ClocksRefusedError]] = []
    try:
        with device.clocks.claimed():
            device.tracer()  # what it needs may be missing
            for index, part in enumerate(planned.parts):
                left = len(planned.parts) - index
                session = Session(device, part, expected, notebook, rng)
                share_s = (planned.most_s - (device.time.now_s() - began_s)) / left
                try:
                    session.calibrate()
                except ClocksRefusedError as error:  # such as the memory clock of a GPU that does not let it be locked
                    refused.append((part.name, error))
                    continue
                if session.widths:
                    session.measure(planned.error, (1.0 - _COST_SHARE) * share_s, shown)
                    if part.what != "power_limit":
                        cost = cost_of(session, device, shown, _COST_SHARE * share_s)
                        costs += [] if cost is None else [cost]
                by_target, by_pair = session.results()
                targets += by_target
                pairs += by_pair
                indistinct += [*session.indistinct, *session.never_reached()]
                iteration_s = max(iteration_s, session.iteration_s)
                clock_error_s = max(clock_error_s, session.clock_error_s)
                device.clocks.release()
    finally:
        device.clocks.release()
    if not targets and refused:
        raise ClocksRefusedError(_refused(device, str(refused[0][1]))) from refused[0][1]
    if not targets:
        why = indistinct[0].reason if indistinct else "the requested values were not reached before the time limit"
        raise ClocksRefusedError(
            f"{device.identity.name}: no switch was seen to take effect: {why}; plans assume {_words(expected)}"
        )
    found = Latency(
        origin=device.identity.origin,
        device=device.identity.label,
        model=device.identity.model,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=device.time.now_s() - began_s,
        error=planned.error,
        iteration_s=iteration_s,
        clock_error_s=clock_error_s,
        targets=tuple(targets),
        pairs=tuple(pairs),
        indistinct=tuple(indistinct),
        costs=tuple(costs),
        not_covered=(*planned.left_out, *(f"{name}: {error}" for name, error in refused), *NOT_COVERED),
    )
    notebook.discard()
    return found


def resume_file(out: str | os.PathLike[str]) -> Path:
    """Where observations are kept until a measurement that writes ``out`` has ended."""
    path = Path(out)
    return path.with_name(f".{path.name}.partial")


def _about(device: Device, planned: Design) -> dict[str, object]:
    """What observations have to agree in to be put together."""
    values = [[part.what, *part.values] for part in planned.parts]
    digest = hashlib.sha256(repr((device.identity.label, values)).encode()).hexdigest()[:16]
    return {"schema": "wastenot.latency-partial/1", "device": device.identity.label, "values": values, "digest": digest}


def _refused(device: Device, reason: str) -> str:
    expected = switch_time(device.identity.label)
    return (
        f"{device.identity.name}: switching latency can only be measured by setting clocks: {reason}; until then plans "
        f"assume {_words(expected)}"
    )


def _words(expected: SwitchTime) -> str:
    return (
        f"{1e3 * expected.core_s:g} ms for core clocks and {1e3 * expected.memory_s:g} ms for memory clocks, "
        f"{expected.basis} ({expected.source})"
    )
