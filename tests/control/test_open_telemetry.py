"""What an OpenTelemetry collector hears: real requests of OTLP, decoded by OpenTelemetry's own messages."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from testbed.applied import NO_PROOF, status
from wastenot.control.metrics import metrics_registry
from wastenot.control.open_telemetry import sent_metrics
from wastenot.core.errors import BadInputError

pytest.importorskip("prometheus_client")
service = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")


@contextmanager
def collector():
    """Its address, and the values of each export by metric and attributes."""
    heard = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.path == "/v1/metrics"
            heard.append(_values(service.ExportMetricsServiceRequest.FromString(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", heard
        finally:
            server.shutdown()


def _values(request):
    values = {}
    for resource in request.resource_metrics:
        assert any(
            each.key == "service.name" and each.value.string_value == "wastenot" for each in resource.resource.attributes
        )
        for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
            assert not metric.HasField("sum") or metric.sum.is_monotonic
            for point in metric.sum.data_points or metric.gauge.data_points:
                attributes = {each.key: each.value.string_value for each in point.attributes}
                values[metric.name, metric.unit, frozenset(attributes.items())] = point.as_double
    return values


def sent(present):
    with collector() as (url, heard):
        said = []
        with sent_metrics(url, metrics_registry(lambda: present), said.append, every_s=60):
            pass
    assert not said
    (values,) = heard
    return values


def of(values, name, **attributes):
    return [
        (unit, value)
        for (each, unit, have), value in values.items()
        if each == name and attributes.items() <= dict(have).items()
    ]


def test_a_measured_gpu_has_the_names_of_the_conventions():
    values = sent(status(origin="measured"))
    gpu = {"hw.type": "gpu", "hw.name": "sim:rtx-3080-ti"}
    assert of(values, "hw.energy", **gpu) == [("J", 52_000.0)]
    assert of(values, "hw.power", **gpu) == [("W", 289.5)]
    assert of(values, "hw.temperature", **gpu)[0][0] == "Cel"
    assert all(dict(have).get("hw.id") for name, _, have in values if name.startswith("hw."))
    assert not of(values, "wastenot.gpu_energy")
    assert of(values, "wastenot.slowdown") == [("1", 0.001)]
    assert of(values, "wastenot.saved_energy_high") == [("J", 4_500.0)]
    assert of(values, "wastenot.gpu_clock_target", clock="core") == [("Hz", 1.47e9)]


def test_a_simulated_gpu_is_never_among_the_measured():
    values = sent(status())
    assert not any(name.startswith("hw.") for name, _, _ in values)
    assert of(values, "wastenot.gpu_energy", origin="simulated") == [("J", 52_000.0)]


def test_what_is_not_known_is_not_sent():
    assert not any("saved" in name for name, _, _ in sent(status(proof=NO_PROOF)))


def test_a_collector_that_is_not_there_is_told_of_once():
    said = []
    with sent_metrics("http://127.0.0.1:9", metrics_registry(status), said.append, every_s=0.2):
        threading.Event().wait(1.0)
    assert len(said) == 1
    assert said[0].startswith("metrics: http://127.0.0.1:9/v1/metrics: ")


@pytest.mark.parametrize("endpoint", ["localhost:4318", "", "http://", "ftp://collector"])
def test_an_endpoint_that_is_no_address_is_refused(endpoint):
    with pytest.raises(BadInputError, match="expected the address of a collector"), sent_metrics(endpoint, None, print):
        pass
