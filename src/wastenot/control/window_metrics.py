"""What Prometheus reads of GPUs that are only measured: their energy and power so far, named as for an applied plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wastenot.control.metrics import registry_of
from wastenot.meters.window import Window


def window_registry(window: Window) -> Any:
    """A registry of ``prometheus_client`` with the energy and the mean power of each GPU of an open window.

    Raises:
        MissingExtraError: the ``serve`` extra is not installed.
    """
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
