"""What ``wastenot serve bench`` measures: the load that it keeps on a server; the server's GPUs, their meter and clocks."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from wastenot.core.errors import BadInputError, DeviceError, MissingExtraError
from wastenot.core.setting import AUTO, Setting
from wastenot.core.wording import counted
from wastenot.terminal import quantities
from wastenot.terminal.option import option
from wastenot.terminal.options import ClockControlOptions

if TYPE_CHECKING:
    from wastenot.devices.protocol import Device
    from wastenot.serving.bench.energy import EnergyMeter
    from wastenot.serving.bench.loads import LoadPlan
    from wastenot.serving.model.requests import Requests

_BATCHES = "1,4,16,64"
_MOST_TOKENS = 10_000_000  # of a prompt or an answer, on average; no model takes as many


@dataclass(frozen=True, slots=True)
class ServerLoadOptions:
    """Which requests are sent to a server, and when."""

    batch: Annotated[
        quantities.Counts | None,
        option(
            f"Numbers of requests to keep running, one point each; default: {_BATCHES}.", "N,...", parser=quantities.counts
        ),
    ] = None
    rate: Annotated[
        str | None, option("Arrival rates in requests/s, one point each; own: the rate of the trace.", "R,...")
    ] = None
    prompt_tokens: Annotated[float, option("Mean length of made-up prompts.", "N")] = 512.0
    output_tokens: Annotated[float, option("Mean length of answers.", "N")] = 128.0
    spread: Annotated[
        float, option("Variation of lengths: standard deviation over mean.", "X", parser=quantities.relative)
    ] = 0.0
    requests: Annotated[Path | None, option("Requests to send: a 'prompt' or 'messages' on each line.", "FILE.jsonl")] = None
    trace: Annotated[
        Path | None, option("Trace to take lengths from, as CSV or JSON lines; with --rate also arrivals.", "FILE")
    ] = None
    lenient: Annotated[bool, option("Leave out invalid lines of the trace, and sort the others.")] = False

    def read(self, seed: int) -> tuple[LoadPlan, tuple[int, ...], tuple[float, ...]]:
        """The load.

        Raises:
            BadInputError: a file cannot be read, or a number makes no sense.
        """
        from wastenot.serving.bench.loads import Lengths, load_of_file, load_of_lengths, load_of_trace

        trace = None if self.trace is None else read_requests(self.trace, self.lenient)
        rates = _rates(self.rate, trace)
        batches = self.batch or (() if rates else quantities.counts(_BATCHES))
        if self.requests is not None:
            plan = load_of_file(self.requests, seed=seed)
        elif self.trace is not None and trace is not None:
            plan = load_of_trace(self.trace.name, trace)
        else:
            for flag, mean in (("--prompt-tokens", self.prompt_tokens), ("--output-tokens", self.output_tokens)):
                if not 1.0 <= mean <= _MOST_TOKENS:
                    raise BadInputError(f"{flag} {mean:g}: must be from 1 to {_MOST_TOKENS:,}")
            prompt, output = Lengths(self.prompt_tokens, self.spread), Lengths(self.output_tokens, self.spread)
            plan = load_of_lengths(prompt, output, seed=seed)
        return plan, batches, rates


def read_requests(path: Path, lenient: bool) -> Requests:
    """The requests of a trace; says which lines were left out and how many were moved."""
    from wastenot.serving.model.traces import read_trace
    from wastenot.terminal.output import say

    read = read_trace(path, lenient=lenient)
    if read.left_out:
        say(f"{counted(len(read.left_out), 'line')} left out, first {read.left_out[0]}")
    if read.moved:
        say(f"{path}: {counted(read.moved, 'request')} sorted into the order of arrival")
    return read.requests


def _rates(text: str | None, trace: Requests | None) -> tuple[float, ...]:
    if text is None:
        return ()
    if text == "own":
        if trace is None or len(trace) < 2 or not trace.arrival_s[-1] > trace.arrival_s[0]:
            raise BadInputError("--rate own: needs a trace with at least two arrival times: --trace FILE")
        return (float((len(trace) - 1) / (trace.arrival_s[-1] - trace.arrival_s[0])),)
    try:
        rates = tuple(float(item) for item in text.split(","))
    except ValueError:
        rates = (0.0,)
    if not all(0.0 < each < float("inf") for each in rates):
        raise BadInputError(f"--rate {text}: write rates in requests/s separated by commas, such as 0.5,1,2")
    return rates


_LOCAL = ("localhost", "127.0.0.1", "::1", "0.0.0.0")


def is_local(url: str) -> bool:
    """Whether a server runs on this machine."""
    host = urlsplit(url if "://" in url else f"http://{url}").hostname or ""
    return host in (*_LOCAL, socket.gethostname().lower())


def server_gpus(
    url: str, named: str | None, meter: str | None, clock_control: ClockControlOptions
) -> tuple[tuple[Device, ...], str]:
    """The server's GPUs on this machine: those named, or its only one; where there are none, why.

    Raises:
        BadInputError: there are several and none is named, or one cannot be measured.
    """
    from wastenot.meters.devices import measurable_devices, visible_names

    if named == "none":
        return (), "--device none"
    if named is None and (meter is not None or not is_local(url)):
        where = "(docs/serving-bench.md)"
        return (), f"the server is on another machine; give its meter: --meter http://ITS-HOST:9400/metrics {where}"
    if named is None:
        try:
            names = visible_names()
        except (DeviceError, MissingExtraError) as error:
            why = str(error).partition(";")[0]
            return (), f"no GPU can be read here ({why}); the meter of GPUs elsewhere: --meter URL"
        if len(names) > 1:
            raise BadInputError(
                f"--device: this machine has {len(names)} GPUs; name those that serve the model: --device {names[0]}"
            )
    else:
        names = tuple(name.strip() for name in named.split(","))
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise BadInputError(f"--device {named}: {twice} is given twice, and its energy would count twice")
    opened = tuple(
        _on_wall_time(name) if name.startswith("sim:") else clock_control.open_device(name, seed=0, workload=None)
        for name in names
    )
    return measurable_devices(opened, _on_wall_time), ""


def _on_wall_time(name: str) -> Device:
    from wastenot.devices.open import open_device

    return open_device(name, wall_time=True)


def settings_of(
    devices: Sequence[Device],
    core: Sequence[float] | None,
    memory: Sequence[float] | None,
    power_limit: Sequence[float] | None,
) -> tuple[Setting, ...]:
    """The driver's own clocks, then those asked for, which the GPUs have."""
    from wastenot.sweeping.grid import Grid

    if core is None and memory is None and power_limit is None:
        return (AUTO,)
    if not devices:
        raise BadInputError("--core, --memory, --power-limit: need the server's GPUs on this machine: --device nvidia:0")
    clocks = devices[0].clocks
    states = clocks.supported_clocks()
    memories = (max(states),) if core is not None and memory is None and states else memory
    grid = Grid(core_mhz=core, memory_mhz=memories, power_limit_w=power_limit)
    settings = grid.settings(states, clocks.power_limits_w())
    if memory is None:  # its memory clock is left to the driver
        settings = tuple(dict.fromkeys(replace(each, memory_mhz=None) for each in settings))
    return (AUTO, *settings)


def meter_of(devices: tuple[Device, ...], meter: str | None, meter_gpus: str | None) -> EnergyMeter | None:
    """The meter of these GPUs, or of those elsewhere; ``None`` where there is neither."""
    from wastenot.serving.bench.energy import local_meter
    from wastenot.serving.bench.remote_meter import open_meter

    if meter is not None:
        return open_meter(meter, None if meter_gpus is None else [each.strip() for each in meter_gpus.split(",")])
    return local_meter(devices) if devices else None
