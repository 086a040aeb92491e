"""What Prometheus reads of an applied plan: every value is taken from the status when it is asked for, none is kept here.

An estimate may fall, so what was saved is a gauge, although its name ends in ``_total``: take differences of it (``delta``),
not ``rate`` or ``increase``, which would take a fall for a restart. Its interval, and that of the slowdown, are series of
their own. What is not known has no series, rather than a zero. Every series names the origin of its numbers, so that none of
a simulated GPU is added to a measured one.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from wastenot.control.status import Estimate, GpuStatus, Status
from wastenot.core.errors import BadInputError, ClocksRefusedError, DeviceError, MissingExtraError
from wastenot.core.install import install_line
from wastenot.devices.common.lease_states import LEASE_STATES, LeaseState, lease_states
from wastenot.meters.window import Window

LOCALHOST = "127.0.0.1"
_HERTZ_PER_MHZ = 1e6

Labels = Mapping[str, str]
Sample = tuple[Labels, float | None]
"""A value with its labels; ``None`` is not known, and left out."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric.

    Attributes:
        name: of its series.
        kind: a counter never falls while the process lives; a gauge may.
        meaning: for a reader of the metrics, with its unit.
        samples: its values in a status.
    """

    name: str
    kind: Literal["counter", "gauge"]
    meaning: str
    samples: Callable[[Status], Iterable[Sample]]


def _whole(value: Callable[[Status], float | None]) -> Callable[[Status], Iterable[Sample]]:
    """One value of the whole job."""
    return lambda status: [({"origin": status.origin}, value(status))]


def _each(value: Callable[[GpuStatus], float | None], **more: str) -> Callable[[Status], Iterable[Sample]]:
    """One value of each GPU."""
    return lambda status: [(_of_gpu(status, gpu) | more, value(gpu)) for gpu in status.gpus]


def _both(*parts: Callable[[Status], Iterable[Sample]]) -> Callable[[Status], Iterable[Sample]]:
    return lambda status: [sample for part in parts for sample in part(status)]


def _of_gpu(status: Status, gpu: GpuStatus) -> dict[str, str]:
    return {"device": gpu.device, "gpu": gpu.unique_id, "model": gpu.model, "origin": status.origin}


def _hertz(mhz: float | None) -> float | None:
    return None if mhz is None else _HERTZ_PER_MHZ * mhz


def _estimates(
    stem: str, unit: str, suffix: str, meaning: str, of: Callable[[Status], Estimate | None]
) -> tuple[Metric, ...]:
    """An estimate and the ends of its 95 % interval, as three metrics."""

    def part(name: str) -> Callable[[Status], float | None]:
        def value(status: Status) -> float | None:
            estimate = of(status)
            return None if estimate is None else getattr(estimate, name)

        return value

    return (
        Metric(f"wastenot_{stem}_{unit}{suffix}", "gauge", meaning, _whole(part("value"))),
        Metric(f"wastenot_{stem}_low_{unit}", "gauge", f"Lower 95 % limit of wastenot_{stem}_{unit}{suffix}",
               _whole(part("low"))),
        Metric(f"wastenot_{stem}_high_{unit}", "gauge", f"Upper 95 % limit of wastenot_{stem}_{unit}{suffix}",
               _whole(part("high"))),
    )  # fmt: skip


def _plan(status: Status) -> Iterable[Sample]:
    yield {
        "plan": status.plan,
        "digest": status.plan_digest,
        "workload": status.workload,
        "dry_run": str(status.dry_run).lower(),
        "origin": status.origin,
    }, 1.0  # fmt: skip


def _leases(status: Status) -> Iterable[Sample]:
    """A series for each state of each GPU that has a journal, or is measured; 1 for the one it is in."""
    known = {gpu.unique_id: _of_gpu(status, gpu) for gpu in status.gpus if status.origin == "measured"}
    states: dict[str, LeaseState] = dict.fromkeys(known, "free")
    try:
        states |= lease_states()
    except ClocksRefusedError:  # who sets clocks is not for this user to know
        return
    except DeviceError:
        states = dict.fromkeys(known, "unreadable")
    for gpu, present in states.items():
        labels = known.get(gpu, {"device": "", "gpu": gpu, "model": "", "origin": "measured"})
        for state in LEASE_STATES:
            yield {**labels, "state": state}, float(state == present)


METRICS: tuple[Metric, ...] = (
    Metric("wastenot_plan_info", "gauge", "The plan being applied; always 1", _plan),
    Metric("wastenot_gpu_energy_joules_total", "counter", "Energy that the GPU has used since the plan was applied",
           _each(lambda gpu: gpu.energy_j)),
    Metric("wastenot_gpu_power_watts", "gauge", "Latest reading of the GPU's power", _each(lambda gpu: gpu.power_w)),
    Metric("wastenot_gpu_temperature_celsius", "gauge", "Latest reading of the GPU's temperature",
           _each(lambda gpu: gpu.temperature_c)),
    Metric("wastenot_gpu_clock_target_hertz", "gauge", "Requested clock; no series while it is auto",
           _both(_each(lambda gpu: _hertz(gpu.target_core_mhz), clock="core"),
                 _each(lambda gpu: _hertz(gpu.target_memory_mhz), clock="memory"))),
    Metric("wastenot_gpu_clock_hertz", "gauge", "Clock in effect",
           _both(_each(lambda gpu: _hertz(gpu.core_mhz), clock="core"),
                 _each(lambda gpu: _hertz(gpu.memory_mhz), clock="memory"))),
    Metric("wastenot_gpu_power_limit_target_watts", "gauge", "Requested power limit; no series while it is auto",
           _each(lambda gpu: gpu.target_power_limit_w)),
    *_estimates("saved_energy", "joules", "_total", "Energy saved since the plan was applied, by all GPUs "
                "together. An estimate, which may fall: use delta(), not rate() or "
                "increase()", lambda status: status.proof.saved_j),
    *_estimates("slowdown", "ratio", "", "Measured time of an iteration relative to the default clocks, T/T_default - 1",
                lambda status: status.proof.time_change),
    Metric("wastenot_max_slowdown_ratio", "gauge", "The slowdown limit",
           _whole(lambda status: status.max_slowdown)),
    Metric("wastenot_predicted_slowdown_ratio", "gauge", "The slowdown that the plan predicts",
           _whole(lambda status: status.predicted_time_change)),
    *_estimates("energy_change", "ratio", "", "Measured energy of an iteration relative to the default "
                "clocks, E/E_default - 1; negative is saved", lambda status: status.proof.energy_change),
    Metric("wastenot_predicted_energy_change_ratio", "gauge", "The energy change that the plan predicts",
           _whole(lambda status: status.predicted_energy_change)),
    Metric("wastenot_iterations_total", "counter", "Iterations begun since the plan was applied",
           _whole(lambda status: None if status.iteration is None else status.iteration + 1.0)),
    Metric("wastenot_compared_iterations", "gauge", "Iterations that the comparison with the default clocks is based on",
           lambda status: [({"clocks": "plan", "origin": status.origin}, status.proof.plan_iterations),
                           ({"clocks": "default", "origin": status.origin}, status.proof.default_iterations)]),
    Metric("wastenot_at_default", "gauge", "1 while iterations run at the default clocks for comparison, else 0",
           _whole(lambda status: float(status.at_default))),
    Metric("wastenot_rung", "gauge", "Rung of the plan that is in use: 0 is the plan itself, higher ones are faster",
           _whole(lambda status: status.rung)),
    Metric("wastenot_rungs", "gauge", "Number of rungs; the last is the default clocks",
           _whole(lambda status: status.rungs)),
    Metric("wastenot_proxy_error_ratio", "gauge", "How far slowdown and energy change may be off by proxy; no series where "
           "the program reports its iterations",
           _whole(lambda status: None if status.proxy is None else status.proxy.error)),
    Metric("wastenot_gpu_lease_state", "gauge", "1 for the state of the GPU's lease and journal, else 0: "
           "free; held by a running process; stale, as one died before it reset the clocks; unrestored, as the driver "
           "refused to, which is tried again; or unreadable. No series where wastenotd is not for this user",
           _leases),
)  # fmt: skip


@contextmanager
def serve_metrics(port: int, status: Callable[[], Status], *, host: str = LOCALHOST) -> Iterator[int]:
    """Serve metrics to Prometheus at ``http://HOST:PORT/metrics`` inside the context.

    Args:
        port: 0 takes a free one.
        status: the present status; called in a thread of the server.
        host: address to listen at; by default only this machine reaches it.

    Yields:
        The port.

    Raises:
        BadInputError: the port cannot be opened.
        MissingExtraError: the ``serve`` extra is not installed.
    """
    with serve_registry(port, metrics_registry(status), host=host) as opened:
        yield opened


@contextmanager
def serve_registry(port: int, registry: Any, *, host: str = LOCALHOST) -> Iterator[int]:
    """Serve a registry of ``prometheus_client``; the rest is as of :func:`serve_metrics`."""
    try:
        server, thread = load_client().start_http_server(port, addr=host, registry=registry)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInputError(
            f"`metrics_port` {port}: cannot be opened ({reason}); take another, or 0 for a free one"
        ) from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def metrics_registry(status: Callable[[], Status]) -> Any:
    """A registry of ``prometheus_client`` with these metrics alone, for a program that serves them in its own way.

    Errors are those of :func:`load_client`, as for every registry.
    """
    return registry_of(lambda core: _families(core, status()))


def window_registry(window: Window) -> Any:
    """A registry with the energy and the mean power of each GPU of an open window, named as for an applied plan."""
    shown: dict[str, float] = {}

    def families(core: Any) -> Iterator[Any]:
        """Evaluates the window up to the last step of each energy counter."""
        labels = ["device", "gpu", "model", "origin"]
        energy = core.CounterMetricFamily(
            "wastenot_gpu_energy_joules", "Energy that the GPU used since measuring began", labels=labels
        )
        power = core.GaugeMetricFamily(
            "wastenot_gpu_mean_power_watts", "Mean power of the GPU since measuring began", labels=labels
        )
        result = window.so_far()
        for gpu in () if result is None else result.gpus:
            of_gpu = [gpu.device, gpu.unique_id, gpu.model, gpu.origin]
            if gpu.energy_j is not None:
                # How the first step is divided may be seen better with those that follow, and a counter never falls.
                shown[gpu.unique_id] = max(gpu.energy_j, shown.get(gpu.unique_id, 0.0))
                energy.add_metric(of_gpu, shown[gpu.unique_id])
            if gpu.mean_power_w is not None:
                power.add_metric(of_gpu, gpu.mean_power_w)
        yield energy
        yield power

    return registry_of(families)


def registry_of(families: Callable[[Any], Iterable[Any]]) -> Any:
    """A registry of ``prometheus_client`` with what a function makes of its ``metrics_core``, once for each request."""
    client = load_client()
    registry = client.CollectorRegistry(auto_describe=False)
    registry.register(_Collector(partial(families, client.metrics_core)))
    return registry


def load_client() -> Any:
    """The module ``prometheus_client``.

    Raises:
        MissingExtraError: it is not installed; says how to install it.
    """
    try:
        return importlib.import_module("prometheus_client")
    except ImportError as error:
        raise MissingExtraError(
            f"metrics need prometheus_client, which cannot be imported ({error}): {install_line('serve')}"
        ) from error


@dataclass(frozen=True, slots=True)
class _Collector:
    """What a registry asks."""

    collect: Callable[[], Iterable[Any]]


def _families(core: Any, status: Status) -> Iterator[Any]:
    """The metrics of a status."""
    for metric in METRICS:
        samples = [(labels, value) for labels, value in metric.samples(status) if value is not None]
        names = list(samples[0][0]) if samples else []
        kind = core.CounterMetricFamily if metric.kind == "counter" else core.GaugeMetricFamily
        family = kind(metric.name, metric.meaning, labels=names)
        for labels, value in samples:
            family.add_metric([labels[name] for name in names], value)
        yield family
