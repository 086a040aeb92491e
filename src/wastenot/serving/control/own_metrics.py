"""What Prometheus reads of a controller of servers: the clock of each, whether it is controlled, and why not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from wastenot.control.metrics import load_client
from wastenot.core.errors import WastenotError
from wastenot.serving.control.instance import Instance

_HERTZ_PER_MHZ = 1e6


def control_registry(instances: Sequence[Instance]) -> Any:
    """A registry of ``prometheus_client`` with the metrics of instances.

    Raises:
        MissingExtraError: the ``serve`` extra is not installed.
    """
    client = load_client()
    registry = client.CollectorRegistry(auto_describe=False)
    registry.register(_Collector(client, instances))
    return registry


def _energy_j(instance: Instance) -> float | None:
    """What the energy counters of its GPUs say together; ``None`` where one has none or does not answer."""
    try:
        told = [device.sensors.energy_j() for device in instance.devices]
    except WastenotError:
        return None
    known = [each for each in told if each is not None]
    return sum(known) if known and len(known) == len(told) else None


def _age(instance: Instance) -> float | None:
    readings = instance.policy.recent.readings
    return time.monotonic() - readings[-1][0] if readings else None


_GAUGES: tuple[tuple[str, str, Callable[[Instance], float | None]], ...] = (
    ("wastenot_serve_controlled", "1 while the clocks are chosen from the server's metrics, 0 while the driver sets them",
     lambda each: float(each.state == "controlled")),
    ("wastenot_serve_clock_target_hertz", "Core clock that is requested, or would be; no series while the driver sets it",
     lambda each: None if each.setting.core_mhz is None else _HERTZ_PER_MHZ * each.setting.core_mhz),
    ("wastenot_serve_steps_up", "Steps above the profile's choice, because measured latencies missed the deadlines",
     lambda each: float(each.policy.feedback.steps)),
    ("wastenot_serve_reading_age_seconds", "Age of the latest reading of the server's metrics", _age),
    ("wastenot_serve_latency_seconds", "Time from requesting the latest reading until its clock was set",
     lambda each: each.latency_s),
    ("wastenot_serve_requests_per_second", "Upper bound on the request rate that the clock is chosen for",
     lambda each: None if each.policy.load is None else each.policy.load.rate_per_s),
)  # fmt: skip
# Joules per request are the rate of the first by that of the second; Prometheus divides over whatever time is of interest.
_COUNTERS: tuple[tuple[str, str, Callable[[Instance], float | None]], ...] = (
    ("wastenot_serve_energy_joules", "Energy counters of the server's GPUs, all together", _energy_j),
    (
        "wastenot_serve_requests",
        "Requests that have had their first token while the controller ran",
        lambda each: each.requests,
    ),
    ("wastenot_serve_clock_changes", "Clock changes so far", lambda each: float(each.sets)),
)


class _Collector:
    """Looks at the instances once for each request."""

    def __init__(self, client: Any, instances: Sequence[Instance]) -> None:
        self._client, self._instances = client, instances

    def collect(self) -> Iterator[Any]:
        """The metrics as of now."""
        core, labels = self._client.metrics_core, ["server", "dry_run"]
        of = {each.name: [each.name, str(each.rules.dry_run).lower()] for each in self._instances}
        for of_kind, listed in ((core.GaugeMetricFamily, _GAUGES), (core.CounterMetricFamily, _COUNTERS)):
            for name, meaning, value in listed:
                family = of_kind(name, meaning, labels=labels)
                for each in self._instances:
                    known = value(each)
                    if known is not None:
                        family.add_metric(of[each.name], known)
                yield family
