"""What Prometheus reads of GPUs that are only measured: their energy and power so far, by the names a plan at work uses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wastenot.control.metrics import load_client
from wastenot.meters.window import Window


def window_registry(window: Window) -> Any:
    """A registry of ``prometheus_client`` with the energy and the mean power of each GPU of an open window.

    Raises:
        MissingExtraError: the ``serve`` extra is not installed.
    """
    client = load_client()
    registry = client.CollectorRegistry(auto_describe=False)
    registry.register(_Collector(client, window))
    return registry


class _Collector:
    """Evaluates the window up to the last step of each energy counter, once for each request."""

    def __init__(self, client: Any, window: Window) -> None:
        self._client, self._window = client, window
        self._shown: dict[str, float] = {}

    def collect(self) -> Iterator[Any]:
        """The metrics as of now."""
        core = self._client.metrics_core
        labels = ["device", "gpu", "model", "origin"]
        energy = core.CounterMetricFamily(
            "wastenot_gpu_energy_joules", "Energy that the GPU used since measuring began", labels=labels
        )
        power = core.GaugeMetricFamily(
            "wastenot_gpu_mean_power_watts", "Mean power of the GPU since measuring began", labels=labels
        )
        result = self._window.so_far()
        for gpu in () if result is None else result.gpus:
            of_gpu = [gpu.device, gpu.unique_id, gpu.model, gpu.origin]
            if gpu.energy_j is not None:
                # How the first step is divided may be seen better with those that follow, and a counter never falls.
                self._shown[gpu.unique_id] = max(gpu.energy_j, self._shown.get(gpu.unique_id, 0.0))
                energy.add_metric(of_gpu, self._shown[gpu.unique_id])
            if gpu.mean_power_w is not None:
                power.add_metric(of_gpu, gpu.mean_power_w)
        yield energy
        yield power
