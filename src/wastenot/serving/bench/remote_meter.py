"""Energy of GPUs of another machine, read where they are: from what that machine serves to Prometheus.

Understood are the counters of energy of dcgm-exporter and of wastenot itself (``wastenot monitor --metrics-port``, also
``apply`` and ``tune``), and, where an exporter has no counter, dcgm-exporter's gauge of power. A counter is read often and
its steps are dated by when they are first seen, as those of a GPU of this machine are, and
:mod:`wastenot.meters.window_energy` makes an energy with its standard error of them. An exporter that reads its GPUs every
30 s, as dcgm-exporter does unless told otherwise, makes steps of 30 s: no whole one lies in a steady state of 20 s, and what
then is not known is not told.
"""

from __future__ import annotations

import http.client
import math
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from wastenot.core.errors import BadInputError
from wastenot.core.suggest import suggestion
from wastenot.meters.power_log import PowerLog
from wastenot.meters.result import gauge_steps
from wastenot.meters.window_energy import SHORT, Steps, window_energy
from wastenot.serving.bench.energy import EnergyMeter, EnergyUsed, Watch, together
from wastenot.serving.bench.replies import reason
from wastenot.serving.bench.server_metrics import samples
from wastenot.serving.tables.records import PointEvidence

_BLANK = 9.2e18  # from which on DCGM's numbers say why there is none
_RESTARTED = 0.5  # a counter that falls below this much of its value has begun anew
_POLL_S = 0.2
_TIMEOUT_S = 3.0
_LARGEST = 1 << 24  # bytes of an answer
_SLOW_S = 2.0  # steps longer than this are worth a word
_LONGEST_WAIT_S = 65.0  # for the step after a window's end: two of the longest that are usual

_UNREADABLE = (OSError, ValueError, http.client.HTTPException)

Quantity = Literal["energy", "power"]


class _Known(NamedTuple):
    """A metric that is understood, and how."""

    quantity: Quantity
    scale: float
    identity: tuple[str, ...]  # labels that tell a GPU apart from all others, the best first
    number: str  # label that counts the GPUs of a machine
    model: str


_KNOWN = {
    "wastenot_gpu_energy_joules_total": _Known("energy", 1.0, ("gpu", "device"), "device", "model"),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": _Known("energy", 1e-3, ("UUID", "gpu"), "gpu", "modelName"),
    "DCGM_FI_DEV_POWER_USAGE": _Known("power", 1.0, ("UUID", "gpu"), "gpu", "modelName"),
}


@dataclass(frozen=True, slots=True)
class GpuSeries:
    """A GPU's energy or power as an exporter serves it.

    Attributes:
        key: identifies the GPU.
        number: of the GPU on its machine, as the exporter counts them.
        model: of the GPU, where the exporter says it.
        quantity: energy in joules since some moment, or power in watts.
        value: of it.
        simulated: whether the GPU is.
    """

    key: str
    number: str
    model: str
    quantity: Quantity
    value: float
    simulated: bool


def gpu_series(text: str) -> list[GpuSeries]:
    """The GPUs in what an exporter serves: their energy, or their power where there is no counter of energy."""
    found: dict[Quantity, dict[str, GpuSeries]] = {"energy": {}, "power": {}}
    for name, labels, raw in samples(text, tuple(_KNOWN)):
        known = _KNOWN.get(name)
        if known is None:
            continue
        value = raw * known.scale
        if not 0.0 <= value < _BLANK * known.scale:
            continue
        key = next((labels[name] for name in known.identity if labels.get(name)), "")
        number, model = labels.get(known.number, key), labels.get(known.model, "")
        simulated = labels.get("origin", "measured") != "measured"
        # A GPU that is cut into instances has several series of the same energy.
        found[known.quantity].setdefault(key, GpuSeries(key, number, model, known.quantity, value, simulated))
    energy = found["energy"]
    return list((energy or found["power"]).values())


def open_meter(url: str, gpus: Sequence[str] | None = None) -> EnergyMeter:
    """A meter of GPUs of another machine, at an address; see :func:`chosen_series`."""
    address, series = chosen_series(url, gpus)

    @contextmanager
    def watch() -> Iterator[Watch]:
        """Read it from a thread inside the context."""
        readings = _Readings(address, tuple(each.key for each in series), series[0].quantity)
        thread = threading.Thread(target=readings.follow, name="wastenot-meter", daemon=True)
        thread.start()
        try:
            yield readings
        finally:
            readings.stop.set()
            thread.join(2.0 * _TIMEOUT_S)

    evidence: PointEvidence = "simulated" if any(each.simulated for each in series) else "measured"
    return EnergyMeter(address, series[0].model or "unknown", len(series), evidence, watch)


def chosen_series(url: str, gpus: Sequence[str] | None = None) -> tuple[str, tuple[GpuSeries, ...]]:
    """The GPUs that serve, among those of an exporter, and the address that it is read at.

    Args:
        url: such as ``http://gpu-node:9400/metrics``; ``/metrics`` may be left out.
        gpus: which of its GPUs serve, by number or UUID; may be left out where it has one.

    Raises:
        BadInputError: nothing answers, no GPU's energy is served, there are several GPUs and none is named, or no such one.
    """
    address = url if "://" in url else f"http://{url}"
    if urlsplit(address).scheme not in ("http", "https"):
        raise BadInputError(f"`meter` {url}: not a valid address; write one such as http://gpu-node:9400/metrics")
    if urlsplit(address).path in ("", "/"):
        address = f"{address.rstrip('/')}/metrics"
    try:
        text = _fetch(address)
    except _UNREADABLE as error:
        raise BadInputError(f"`meter` {address}: {_reason(error)}; is an exporter of GPU metrics running there?") from None
    found = gpu_series(text)
    if not found:
        raise BadInputError(
            f"`meter` {address}: serves no GPU energy; for dcgm-exporter, "
            "enable DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, or run there: wastenot monitor --metrics-port 9401 -- COMMAND"
        )
    listed = ", ".join(f"{each.number} ({each.model or each.key})" for each in found)
    if gpus is None:
        if len(found) > 1:
            raise BadInputError(
                f"`meter` {address}: has {len(found)} GPUs; say which ones serve the model with `meter_gpus`: {listed}"
            )
        return address, (found[0],)
    chosen: dict[str, GpuSeries] = {}
    for name in gpus:
        matches = [each for each in found if name in (each.number, each.number.rpartition(":")[2], each.key)]
        if not matches:
            names = [each.number for each in found] + [each.key for each in found]
            raise BadInputError(f"`meter_gpus` {name}: {address} has {listed}; {suggestion(name, names)}")
        if len(matches) > 1:
            keys = ", ".join(each.key for each in matches)
            raise BadInputError(f"`meter_gpus` {name}: several GPUs of {address} have this number; give the UUID: {keys}")
        chosen[matches[0].key] = matches[0]
    return address, tuple(chosen.values())


def _fetch(url: str) -> str:
    request = urllib.request.Request(url, headers={"Accept": "text/plain"})
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy stands before machines of one's own
    with direct.open(request, timeout=_TIMEOUT_S) as reply:
        content: bytes = reply.read(_LARGEST)
    return content.decode("utf-8", errors="replace")


def _reason(error: BaseException) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"answers {error.code} {error.reason}"
    inner = getattr(error, "reason", None)
    cause = inner if isinstance(inner, BaseException) else error
    if isinstance(cause, http.client.HTTPException):
        return "does not speak HTTP"
    return reason(cause, _TIMEOUT_S)


class _Log(PowerLog):
    """What was seen of one GPU: readings of a gauge, or steps of a counter, each with the time in which it happened."""

    def __init__(self) -> None:
        super().__init__()
        self._read_s, self._last, self.fell = 0.0, math.nan, False

    def counted(self, value: float, now_s: float) -> None:
        if value < self._last:
            self.fell |= value < _RESTARTED * self._last
            return
        if value > self._last:  # the first value is no step: it has stood there for a time that is not known
            self.add_steps((0.5 * (self._read_s + now_s), now_s - self._read_s, value))
        self._last, self._read_s = value, now_s

    def all_steps(self, quantity: Quantity) -> Steps:
        """Steps of a counter; a gauge's readings integrated as one would."""
        whole = -math.inf, math.inf
        return self.steps(*whole) if quantity == "energy" else gauge_steps(self.samples(*whole))


class _Readings:
    """Reads an exporter again and again, and evaluates what was read."""

    def __init__(self, url: str, keys: tuple[str, ...], quantity: Quantity) -> None:
        self._url, self._quantity = url, quantity
        self._logs = {key: _Log() for key in keys}
        self._lock = threading.Lock()
        self._error = ""
        self.stop = threading.Event()

    def follow(self) -> None:
        """Read until stopped."""
        while not self.stop.is_set():
            begin_s = time.perf_counter()
            self._read()
            self.stop.wait(max(_POLL_S - (time.perf_counter() - begin_s), 0.01))

    def _read(self) -> None:
        asked_s = time.perf_counter()
        try:
            found = {each.key: each for each in gpu_series(_fetch(self._url))}
        except _UNREADABLE as error:
            self._error = _reason(error)
            return
        now_s = 0.5 * (asked_s + time.perf_counter())
        missing = ""
        with self._lock:
            for key, log in self._logs.items():
                if key not in found or found[key].quantity != self._quantity:
                    missing = "no longer serves the energy of all of these GPUs"
                elif self._quantity == "energy":
                    log.counted(found[key].value, now_s)
                else:
                    log.add_sample(now_s, found[key].value, *[None] * 6)
        self._error = missing

    def used(self, begin_s: float, end_s: float) -> EnergyUsed:
        """What all of the GPUs used; waits for the step after the end, as long as steps take here."""
        self._wait(end_s)
        with self._lock:
            return together([self._of(log, begin_s, end_s) for log in self._logs.values()])

    def _wait(self, end_s: float) -> None:
        begun_s = time.perf_counter()
        while not self.stop.is_set():
            with self._lock:
                logs = [(log.fell, log.all_steps(self._quantity).moment_s) for log in self._logs.values()]
            passed = all(fell or (len(moments) and moments[-1] > end_s) for fell, moments in logs)
            longest_s = max(float(np.diff(moments).max(initial=0.0)) for _, moments in logs)
            patience_s = min(1.0 + 2.0 * longest_s, _LONGEST_WAIT_S) if longest_s else _LONGEST_WAIT_S
            if self._error:
                patience_s = min(patience_s, _TIMEOUT_S)
            if passed or time.perf_counter() > max(end_s, begun_s) + patience_s:
                return
            time.sleep(0.5 * _POLL_S)

    def _of(self, log: _Log, begin_s: float, end_s: float) -> EnergyUsed:
        if log.fell:
            return EnergyUsed(None, None, (f"the meter's counter fell: {self._url} was restarted",))
        steps = log.all_steps(self._quantity)
        known = window_energy(steps, begin_s, end_s)
        if known is None:
            why = self._error or "its counter did not change"
            return EnergyUsed(None, None, (f"no energy from the meter {self._url}: {why}",))
        step_s = float(np.median(np.diff(steps.moment_s)))
        slow = (
            f"the meter updates every {step_s:.0f} s: make the exporter collect more often (dcgm-exporter "
            "--collect-interval 1000)"
        )
        if step_s > _SLOW_S and SHORT in known.flags:  # the load may have begun or ended in the one step that is known
            return EnergyUsed(None, None, (f"no whole update interval of the meter lies within the steady state; {slow}",))
        notes = list(known.flags)
        if self._quantity == "power":
            notes.append("energy integrated from readings of power: the meter has no counter of energy")
        return EnergyUsed(known.energy_j, known.error_j, (*notes, *((slow,) if step_s > _SLOW_S else ())))
