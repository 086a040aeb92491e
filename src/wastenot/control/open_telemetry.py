"""Metrics sent to an OpenTelemetry collector: those that Prometheus reads, under OpenTelemetry's names.

What was measured of a GPU has the names of the semantic conventions for hardware (``hw.energy``, ``hw.power`` and
``hw.temperature`` of a ``hw.type`` ``gpu``), so that it joins what other programs measured. All else, simulated GPUs among
it, stands under ``wastenot.``: ``wastenot_slowdown_ratio`` is ``wastenot.slowdown``, in unit ``1``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from wastenot.core.errors import BadInputError, MissingExtraError
from wastenot.core.install import install_line

EVERY_S = 10.0
_TIMEOUT_S = 5.0  # for which the end of a command may wait for a collector that does not answer
_SAME_S = 0.5  # within which all instruments are read from one collection
_HARDWARE = {
    "wastenot_gpu_energy_joules": "hw.energy",
    "wastenot_gpu_power_watts": "hw.power",
    "wastenot_gpu_temperature_celsius": "hw.temperature",
}
_UNITS = {"joules": "J", "watts": "W", "celsius": "Cel", "hertz": "Hz", "seconds": "s", "ratio": "1"}
_ATTRIBUTES = {"gpu": "hw.id", "device": "hw.name", "model": "hw.model"}


@contextmanager
def sent_metrics(endpoint: str, registry: Any, say: Callable[[str], None], *, every_s: float = EVERY_S) -> Iterator[None]:
    """Send the metrics of a registry to a collector inside the context, and once more at its end.

    A collector that does not answer is told of once, and tried again each time.

    Args:
        endpoint: of OTLP over HTTP, such as ``http://localhost:4318``. Headers and certificates are those of OpenTelemetry's
            environment variables.
        registry: of ``prometheus_client``.
        say: receives what does not work.
        every_s: seconds between two times.

    Raises:
        BadInputError: the endpoint is no address.
        MissingExtraError: the ``otel`` extra is not installed.
    """
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadInputError(f"`otlp` {endpoint!r}: expected the address of a collector, such as http://localhost:4318")
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
    except ImportError as error:
        raise MissingExtraError(f"OpenTelemetry's exporter cannot be imported ({error}): {install_line('otel')}") from error

    url = endpoint if parts.path.strip("/") else f"{endpoint.rstrip('/')}/v1/metrics"
    exporter = OTLPMetricExporter(url, timeout=_TIMEOUT_S)
    with _told_once(f"metrics: {url}", say):
        reader = PeriodicExportingMetricReader(exporter, 1e3 * every_s, 1e3 * _TIMEOUT_S)
        provider = MeterProvider([reader], Resource.create({"service.name": "wastenot"}), shutdown_on_exit=False)
        _instrument(provider.get_meter("wastenot"), registry)
        try:
            yield
        finally:
            provider.shutdown(1e3 * _TIMEOUT_S)


def _instrument(meter: Any, registry: Any) -> None:
    """An instrument for each metric, read when it is sent."""
    from opentelemetry.metrics import Observation

    latest: list[Any] = []  # when, and the samples by name

    def samples(name: str) -> list[Any]:
        if not latest or time.monotonic() - latest[0] > _SAME_S:
            latest[:] = time.monotonic(), {family.name: family.samples for family in registry.collect()}
        found: list[Any] = latest[1].get(name, [])
        return found

    def observed(name: str, hardware: bool) -> Callable[[Any], list[Any]]:
        def observe(_: Any) -> list[Any]:
            return [
                Observation(each.value, _attributes(each.labels, hardware))
                for each in samples(name)
                if hardware == (name in _HARDWARE and each.labels.get("origin") == "measured")
            ]

        return observe

    for family in registry.collect():
        make = meter.create_observable_counter if family.type == "counter" else meter.create_observable_gauge
        own, unit = _named(family.name)
        make(own, [observed(family.name, hardware=False)], unit, family.documentation)
        if family.name in _HARDWARE:
            make(_HARDWARE[family.name], [observed(family.name, hardware=True)], unit, family.documentation)


def _named(name: str) -> tuple[str, str]:
    """The name of a metric with a dot and without its unit, and the unit."""
    words = name.removesuffix("_total").split("_")
    unit = _UNITS.get(words[-1])
    return f"{words[0]}.{'_'.join(words[1:] if unit is None else words[1:-1])}", unit or "1"


def _attributes(labels: dict[str, str], hardware: bool) -> dict[str, str]:
    named = {_ATTRIBUTES.get(label, label): value for label, value in labels.items() if value}
    return named | {"hw.type": "gpu"} if hardware else named


@contextmanager
def _told_once(what: str, say: Callable[[str], None]) -> Iterator[None]:
    """The first fault that OpenTelemetry logs inside the context, as one line in place of its own."""
    logger = logging.getLogger("opentelemetry")
    told: list[logging.LogRecord] = []

    class Once(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if not told:
                told.append(record)
                say(f"{what}: not taken ({' '.join(record.getMessage().split())[:160]} …); tried again, not told again")

    handler, propagated = Once(logging.WARNING), logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagated
