"""A sweep of a server: its steady state at one batch size after another, and at each of several clocks, into a study.

Batch sizes rise at each setting. Once one is no steady state to rely on, larger ones at that setting are left out, as
ML.ENERGY leaves them out: a server that cannot keep 64 requests running will not keep 128. (One that was only watched for
too short a time says nothing of larger ones.) What the study has already of the same server under the same load is not
measured again, so that an interrupted sweep resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import groupby

import numpy as np

from wastenot.core.errors import ClocksRefusedError, ServerError
from wastenot.core.progress import Progress, Silent
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.protocol import Device
from wastenot.frontiers.pareto import Groups, pareto_points
from wastenot.serving.bench import steady_state
from wastenot.serving.bench.energy import EnergyMeter, EnergyUsed
from wastenot.serving.bench.steady_state import MeasuredPoint
from wastenot.serving.tables.records import PointEvidence, ServingPoint
from wastenot.serving.tables.store import ServingRun, ServingStore, WantedPoint

BROKEN_OFF, NO_ENERGY = "broke off: ", "no energy: "
"""How the reasons begin why a point is unstable that is measured again: the load did not go to its end, the meter failed."""

MeasureLoad = Callable[[WantedPoint], MeasuredPoint]
"""Keeps a load on the server and measures its steady state."""


@dataclass(frozen=True, slots=True)
class Served:
    """What a server serves and on what: its points are kept under this, and only those of the same are its own.

    Attributes:
        source: URL of the server.
        model: served.
        gpu: model of its GPUs.
        gpus: of the engine.
        task: the load it is under.
        tensor_parallel: degree.
        precision: of the weights, where known.
    """

    source: str
    model: str
    gpu: str
    gpus: int
    task: str
    tensor_parallel: int = 1
    precision: str = ""

    def made(self, point: ServingPoint) -> bool:
        """Whether a point is of this server under this load."""
        return self == Served(**{name: getattr(point, name) for name in self.__dataclass_fields__})

    def point(
        self, wanted: WantedPoint, measured: MeasuredPoint, used: EnergyUsed | None, evidence: PointEvidence
    ) -> ServingPoint:
        """A point as a study keeps it.

        Args:
            wanted: the load.
            measured: of it.
            used: in the steady state by all GPUs; ``None`` where there is no meter.
            evidence: whether the GPUs are real.
        """
        energy_j = None if used is None or measured.steady_s <= 0.0 else used.energy_j
        tokens = measured.tokens
        per_token = None if energy_j is None or not tokens else energy_j / tokens
        error = None if used is None or used.energy_se_j is None or per_token is None else used.energy_se_j / tokens
        why = measured.why_unstable
        if not why and used is not None and not per_token:
            why = NO_ENERGY + (used.notes[-1] if energy_j is None and used.notes else "the meter did not change")
        if measured.fault:
            why = BROKEN_OFF + measured.fault
        return ServingPoint(
            **asdict(self),
            max_running=measured.most_in_flight if wanted.max_running is None else wanted.max_running,
            mean_running=measured.mean_running,
            energy_per_token_j=per_token,
            power_w=None if energy_j is None else energy_j / measured.steady_s,
            tokens_per_s=measured.tokens_per_s,
            output_tokens=measured.output_tokens,
            itl=measured.itl,
            ttft=measured.ttft,
            end_to_end=measured.end_to_end,
            setting=wanted.setting,
            steady_s=measured.steady_s,
            evidence=evidence,
            energy_per_token_se_j=error,
            rate_per_s=wanted.rate_per_s,
            why_unstable=why,
            notes=(*measured.notes, *_other_rate(wanted, measured), *(() if used is None else used.notes)),
            server=measured.metrics,
        )


def _other_rate(wanted: WantedPoint, measured: MeasuredPoint) -> tuple[str, ...]:
    """That requests came at another rate than wanted in the steady state, beyond a tenth and chance, as a trace's may."""
    if wanted.rate_per_s is None or measured.steady_s <= 0.0:
        return ()
    expected = wanted.rate_per_s * measured.steady_s
    off = abs(measured.sent_per_s * measured.steady_s - expected)
    if off <= max(0.1 * expected, 3.0 * expected**0.5):
        return ()
    came = f"{measured.sent_per_s:.3g} requests/s arrived in the steady state"
    return (f"{came}, not {wanted.rate_per_s:.3g}: measure for longer, until the whole load has been seen",)


@dataclass(slots=True)
class ServerSweepOutcome:
    """What a sweep of a server came to.

    Attributes:
        points: of it, in the order in which they were wanted, whether measured now or before.
        measured: how many were measured now.
        found: how many were in the study before.
        dropped: those left out, and why.
    """

    points: list[ServingPoint] = field(default_factory=list)
    measured: int = 0
    found: int = 0
    dropped: list[tuple[WantedPoint, str]] = field(default_factory=list)


def wanted_points(
    batches: Sequence[int], rates_per_s: Sequence[float] = (), settings: Sequence[Setting] = (AUTO,)
) -> tuple[WantedPoint, ...]:
    """Points of a sweep in the order to measure them: settings as they come, and at each rising batch sizes, then rates."""
    loads = [WantedPoint(batch) for batch in sorted(set(batches))]
    loads += [WantedPoint(None, rate) for rate in sorted(set(rates_per_s))]
    return tuple(WantedPoint(load.max_running, load.rate_per_s, setting) for setting in settings for load in loads)


def sweep_server(
    wanted: Sequence[WantedPoint],
    measure: MeasureLoad,
    served: Served,
    store: ServingStore | None,
    *,
    meter: EnergyMeter | None = None,
    devices: Sequence[Device] = (),
    progress: Progress | None = None,
    command: str | None = None,
    each: Callable[[ServingPoint], None] | None = None,
) -> ServerSweepOutcome:
    """Measure the steady state of a server at every point that is wanted, and keep each as it is made.

    Clocks are changed only where a setting says so, and given back however it ends.

    Args:
        wanted: points, those of a setting together, their loads rising.
        measure: measures one.
        served: what the server serves.
        store: to keep them in; ``None`` keeps nothing.
        meter: of the server's GPUs; ``None`` measures latency alone.
        devices: the server's GPUs, to set clocks of.
        progress: informed of every point.
        command: that resumes this, for the study to remember.
        each: called with every point as it is measured.

    Raises:
        ServerError: the server died or stopped answering; what was measured is kept.
        StudyError: the study cannot be written; what was measured before is kept.
        ClocksRefusedError: clocks cannot be set.
        DeviceError: a GPU does not respond.
    """
    progress = progress or Silent()
    evidence: PointEvidence = "measured" if meter is None else meter.evidence
    before = _kept(wanted, served, evidence, store)
    outcome = ServerSweepOutcome(found=len(before))
    progress.begin(len(wanted), 0)
    run: ServingRun | None = None
    for setting, group in groupby(wanted, key=lambda point: point.setting):
        loads = list(group)
        at = _AtSetting(setting, devices)
        unstable: dict[bool, str] = {}  # by whether requests arrive at a rate
        with at.stack:  # gives the clocks back
            for load in loads:
                point, arrive = before.get(load), load.rate_per_s is not None
                if arrive in unstable and point is None:
                    outcome.dropped.append((load, unstable[arrive]))
                    progress.step(f"{load}: left out")
                    continue
                if point is None:
                    refusal = at.request()
                    if refusal is not None:
                        outcome.dropped.append((load, refusal))
                        progress.step(f"{load}: not set")
                        continue
                    if store is not None and run is None:
                        run = store.begin(wanted, source=served.source, command=command)
                    point = _measured(load, measure, served, meter, evidence)
                    outcome.measured += 1
                    if run is not None:
                        run.keep(point)
                    if each is not None:
                        each(point)
                outcome.points.append(point)
                progress.step(str(load))
                if point.why_unstable.startswith(BROKEN_OFF):
                    kept = "" if store is None else f"; what was measured is kept in {store.study}"
                    raise ServerError(f"{served.source}: {load}: {point.why_unstable}{kept}")
                if _speaks_against_larger(point):
                    unstable.setdefault(arrive, f"{load} is unstable: {point.why_unstable}")
    if run is not None:
        run.finish()
    return outcome


def left_to_measure(
    wanted: Sequence[WantedPoint], served: Served, evidence: PointEvidence, store: ServingStore | None
) -> list[WantedPoint]:
    """The wanted points that a study does not hold yet."""
    before = _kept(wanted, served, evidence, store)
    return [load for load in wanted if load not in before]


def pareto(points: Sequence[ServingPoint]) -> list[ServingPoint]:
    """Stable points that no other beats in both energy for a token and median time between tokens, the fastest first."""
    known = [each for each in points if each.is_stable and None not in (each.itl.p50_s, each.energy_per_token_j)]
    if not known:
        return []
    gaps_s, energies_j = np.array([(each.itl.p50_s, each.energy_per_token_j) for each in known], dtype=np.float64).T
    return [known[index] for index in pareto_points(Groups.of_one(gaps_s, energies_j))]


def _kept(
    wanted: Sequence[WantedPoint], served: Served, evidence: PointEvidence, store: ServingStore | None
) -> dict[WantedPoint, ServingPoint]:
    """The wanted points that a study holds; those that broke off do not count, and of several the last does."""
    if store is None:
        return {}
    held: dict[WantedPoint, ServingPoint] = {}
    for point in store.points():
        load = WantedPoint(point.max_running if point.rate_per_s is None else None, point.rate_per_s, point.setting)
        same = load in wanted and served.made(point) and point.evidence == evidence
        if same and not point.why_unstable.startswith((BROKEN_OFF, NO_ENERGY)):
            held[load] = point
    return held


def _speaks_against_larger(point: ServingPoint) -> bool:
    """Whether a point is unstable for a reason that larger loads would share."""
    short = 0.0 < (point.steady_s or 0.0) < steady_state.LEAST_STEADY_S
    return not point.is_stable and not short and not point.why_unstable.startswith((NO_ENERGY, steady_state.TOO_SHORT))


def _measured(
    load: WantedPoint, measure: MeasureLoad, served: Served, meter: EnergyMeter | None, evidence: PointEvidence
) -> ServingPoint:
    if meter is None:
        return served.point(load, measure(load), None, evidence)
    with meter.watch() as watch:
        measured = measure(load)
        reached = measured.end_s > measured.begin_s
        used = watch.used(measured.begin_s, measured.end_s) if reached else EnergyUsed(None, None)
    return served.point(load, measured, used, evidence)


@dataclass(slots=True)
class _AtSetting:
    """Requests a setting once it is needed; nothing is touched for auto."""

    setting: Setting
    devices: Sequence[Device]
    requested: bool = False
    stack: ExitStack = field(default_factory=ExitStack)

    def request(self) -> str | None:
        """Request it, unless it is already; why the devices do not have it, if they do not."""
        if self.requested or self.setting.is_auto:
            return None
        try:
            for device in self.devices:
                self.stack.enter_context(device.clocks.claimed())
                self.stack.callback(device.clocks.release)
                device.clocks.request(self.setting)
        except ClocksRefusedError as error:
            self.stack.close()
            return str(error)
        self.requested = True
        return None
