"""``wn.serve_bench``: a running server measured, from finding it to the points of its sweep."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from wastenot.core.errors import BadInputError, ClocksRefusedError
from wastenot.core.progress import Progress
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.open import open_device
from wastenot.devices.protocol import Device
from wastenot.meters.devices import measurable_devices
from wastenot.serving.bench.energy import EnergyMeter, local_meter
from wastenot.serving.bench.loads import Api, Lengths, LoadPlan, load_of_lengths
from wastenot.serving.bench.loops import Steady
from wastenot.serving.bench.measure import Served, ServerSweepOutcome, left_to_measure, sweep_server, wanted_points
from wastenot.serving.bench.point import Found, find, measure_point
from wastenot.serving.bench.remote_meter import open_meter
from wastenot.serving.bench.server import Target
from wastenot.serving.bench.steady_state import MeasuredPoint
from wastenot.serving.tables.records import PointEvidence, ServingPoint
from wastenot.serving.tables.store import ServingStore, WantedPoint
from wastenot.study.store import Study, open_study

BATCHES = (1, 4, 16, 64)
PROMPT_TOKENS, OUTPUT_TOKENS = 512.0, 128.0
STEADY_S = 20.0

_EACH_S = 15.0  # beside the steady state: filling the batch, and answers that are on their way
_MOST_S = 300.0
_USER = re.compile(r"(?<=://)[^/@\s]*@")


@dataclass(frozen=True, slots=True)
class ServerBench:
    """A server that was found and is about to be measured; get one from :func:`prepare_bench`.

    Attributes:
        found: the server.
        served: what it serves and on what.
        load: kept on it.
        wanted: points to measure.
        todo: those of them that the study does not hold.
        meter: of its GPUs; ``None`` for latency alone.
        devices: whose clocks are set.
        steady_s: least length of each steady state.
        store: to keep points in.
    """

    found: Found
    served: Served
    load: LoadPlan
    wanted: tuple[WantedPoint, ...]
    todo: tuple[WantedPoint, ...]
    meter: EnergyMeter | None
    devices: tuple[Device, ...]
    steady_s: float
    store: ServingStore | None

    @property
    def least_s(self) -> float:
        """How long it takes at least, about."""
        return len(self.todo) * (self.steady_s + _EACH_S)

    def run(
        self,
        *,
        progress: Progress | None = None,
        command: str | None = None,
        each: Callable[[ServingPoint], None] | None = None,
    ) -> ServerSweepOutcome:
        """Measure; arguments and errors are those of :func:`wastenot.serving.bench.measure.sweep_server`."""
        return sweep_server(
            self.wanted, self._measure, self.served, self.store,
            meter=self.meter, devices=self.devices, progress=progress, command=command, each=each,
        )  # fmt: skip

    def _measure(self, wanted: WantedPoint) -> MeasuredPoint:
        steady = Steady(self.steady_s, max(_MOST_S, self.steady_s))
        if wanted.rate_per_s is None:
            return measure_point(self.found, self.load.closed, wanted.max_running, steady=steady)
        return measure_point(self.found, lambda prompts: self.load.opened(prompts, wanted.rate_per_s), None, steady=steady)


def serve_bench(
    url: str,
    study: str | os.PathLike[str] | Study | None = None,
    *,
    batches: Sequence[int] | None = None,
    rates_per_s: Sequence[float] = (),
    load: LoadPlan | None = None,
    devices: str | Device | Iterable[str | Device] | None = None,
    meter: str | EnergyMeter | None = None,
    meter_gpus: Sequence[str] | None = None,
    settings: Sequence[Setting] = (AUTO,),
    steady_s: float = STEADY_S,
    model: str | None = None,
    api: Api | None = None,
    api_key: str | None = None,
    task: str | None = None,
    gpu: str | None = None,
    gpus: int | None = None,
    tensor_parallel: int | None = None,
    precision: str = "",
    seed: int = 0,
    progress: Progress | None = None,
) -> ServerSweepOutcome:
    """Measure a running LLM server at one batch size after another: energy per token, and latencies.

    Keeps a number of requests running, or lets them arrive at a rate, and measures the steady state of each. What the
    study has already is not measured again; see docs/serving-bench.md.

    Args:
        url: of a server with OpenAI's interface, such as ``http://localhost:8000``.
        study: file or URL of the study to keep the points in; created if missing. ``None`` keeps nothing.
        batches: requests to keep running; 1, 4, 16 and 64 by default, or none where there are ``rates_per_s``.
        rates_per_s: at which requests arrive, whatever is running.
        load: the requests; by default prompts of 512 tokens and answers of 128.
        devices: the server's GPUs on this machine, or their names, to measure; nothing is measured by default.
        meter: what tells the energy of GPUs elsewhere: an address that serves it to Prometheus, or a meter.
        meter_gpus: which of the GPUs there serve, by number or UUID.
        settings: of ``devices`` to measure at, auto first.
        steady_s: least length of each steady state; below 20 s points are unstable.
        model: to request; by default the first that the server lists.
        api: streaming API to use; by default completions, if the server has it.
        api_key: sent as a bearer token.
        task: name of the load in the study.
        gpu: model of the GPUs, if no meter reports it.
        gpus: number of GPUs the engine runs on, if no meter reports it.
        tensor_parallel: degree; by default the number of GPUs.
        precision: of the weights, to be kept with the points.
        seed: of lengths and arrivals; the words of prompts are others each time.
        progress: receives each point.

    Returns:
        The points, and what was left out and why.

    Raises:
        BadInputError: an argument makes no sense, nothing answers at an address, or a device does not run in real time.
        ServerError: the server failed; what was measured before is kept.
        StudyError: the study cannot be written.
        ClocksRefusedError: clocks may not be set.
        DeviceError: a GPU does not respond.
        MissingExtraError: the ``serve`` extra is not installed.
    """
    if devices is not None and meter is not None:
        raise BadInputError("`meter`: has no effect with `devices`, which are measured here; give only one of the two")
    opened: tuple[Device, ...] = ()
    if devices is not None:
        opened = measurable_devices(devices, lambda name: open_device(name, wall_time=True))
    watched = open_meter(meter, meter_gpus) if isinstance(meter, str) else meter
    bench = prepare_bench(
        Target(url, model=model, api=api, key=api_key), load, study, batches=batches, rates_per_s=rates_per_s,
        meter=local_meter(opened) if opened else watched, devices=opened, settings=settings, steady_s=steady_s, task=task,
        gpu=gpu, gpus=gpus, tensor_parallel=tensor_parallel, precision=precision, seed=seed,
    )  # fmt: skip
    return bench.run(progress=progress)


def prepare_bench(
    target: Target,
    load: LoadPlan | None = None,
    study: str | os.PathLike[str] | Study | None = None,
    *,
    batches: Sequence[int] | None = None,
    rates_per_s: Sequence[float] = (),
    meter: EnergyMeter | None = None,
    devices: tuple[Device, ...] = (),
    settings: Sequence[Setting] = (AUTO,),
    steady_s: float = STEADY_S,
    task: str | None = None,
    gpu: str | None = None,
    gpus: int | None = None,
    tensor_parallel: int | None = None,
    precision: str = "",
    seed: int = 0,
) -> ServerBench:
    """Check all that can be checked, and find the server, before anything is measured or written.

    Args and errors are those of :func:`serve_bench`.
    """
    for name, number in (("gpus", gpus), ("tensor_parallel", tensor_parallel)):
        if number is not None and number < 1:
            raise BadInputError(f"`{name}` {number}: must be at least 1")
    if not 0.1 <= steady_s < float("inf"):
        raise BadInputError(f"`steady_s` {steady_s:g}: must be a number of seconds, at least 0.1")
    if batches is None:
        batches = () if rates_per_s else BATCHES
    if not (batches or rates_per_s) or min((*batches, *rates_per_s)) <= 0:
        raise BadInputError("`batches`, `rates_per_s`: give numbers above 0 of concurrent requests, or of requests/s")
    _check_clocks(devices, settings)
    store = None
    if study is not None:
        store = ServingStore(open_study(study, create=True))
    load = load or load_of_lengths(Lengths(PROMPT_TOKENS), Lengths(OUTPUT_TOKENS), seed=seed)
    if load.api is not None and target.api is None:
        target = replace(target, api=load.api)
    found = find(target)
    evidence: PointEvidence = "measured" if meter is None else meter.evidence
    many = meter.gpus if meter is not None else gpus or 1
    served = Served(
        source=_USER.sub("", found.server.url),
        model=found.server.model,
        gpu=gpu or (meter.gpu if meter is not None else "unknown"),
        gpus=many,
        task=task or load.name,
        tensor_parallel=tensor_parallel or many,
        precision=precision,
    )
    wanted = wanted_points(batches, rates_per_s, settings)
    todo = tuple(left_to_measure(wanted, served, evidence, store))
    return ServerBench(found, served, load, wanted, todo, meter, devices, steady_s, store)


def _check_clocks(devices: Sequence[Device], settings: Sequence[Setting]) -> None:
    """Refuse settings that could not be requested, before anything is measured at the others."""
    if all(setting.is_auto for setting in settings):
        return
    if not devices:
        raise BadInputError("`settings`: clocks are set on the server's GPUs on this machine; name them with `devices`")
    for device in devices:
        refusal = device.clocks.refusal()
        if refusal is not None:
            raise ClocksRefusedError(f"{device.identity.name}: clocks cannot be set: {refusal}")
