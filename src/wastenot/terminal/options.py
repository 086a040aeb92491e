"""Options that mean the same in every command, singly and in groups, and the values that they are read as."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from wastenot.core.errors import BadInputError
from wastenot.core.origin import Origin
from wastenot.core.vendors import vendor_named
from wastenot.pages.price import DEFAULT_PRICE, Price
from wastenot.planning.objective import Objective
from wastenot.planning.objective_kinds import KERNELS, ObjectiveKind, Scope
from wastenot.terminal import completing, quantities
from wastenot.terminal.option import option
from wastenot.workloads.identity import EnergyState, Granularity, WorkloadKey
from wastenot.workloads.kernel import DTYPE_BYTES
from wastenot.workloads.shape import Attention, Optimizer, Phase, Shape, default_batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from wastenot.devices.common.journal import Restore
    from wastenot.devices.protocol import Device
    from wastenot.pages.page import Page
    from wastenot.planning.plan import Plan
    from wastenot.study.sweep import Sweep

StudyOption = Annotated[str, option("The study: an SQLite file or a database URL.", "FILE|URL")]
WorkloadOption = Annotated[str | None, option("Which workload, if the study has several.", "NAME")]
EnergiesOption = Annotated[
    EnergyState | None,
    option(
        "Energies of kernels run back to back (ssp, the default), of their first execution at full speed (sse), of "
        "each after the kernel before it (context), or at clocks that the GPU passed through by itself (natural)."
    ),
]
MeasuredGranularityOption = Annotated[
    Granularity | None, option("Unit that was measured; default: the finest in the study.")
]
JsonOption = Annotated[bool, option("Print one JSON document and nothing else.", flag="--json")]
DryRunOption = Annotated[bool, option("Print what would be measured and how long it would take; measure and write nothing.")]
AssumedClocksOption = Annotated[
    bool, option("Also use clocks at which a simulated GPU was neither measured nor fitted; what rests on them is marked.")
]
OutOption = Annotated[Path | None, option("Write the result to this file.", "FILE")]
DeviceOption = Annotated[
    str, option("sim:NAME, sim:FILE.toml, recorded:STUDY or nvidia:INDEX.", "D", autocompletion=completing.devices)
]
SeedOption = Annotated[int, option("Seed of the noise of a simulated GPU.", "N", min=0)]
PowerLimitsOption = Annotated[
    quantities.Floats | None,
    option(
        "Power limits to try, with clocks left to the driver; with --core, --core-step or --memory, every combination.",
        "W,...",
        parser=quantities.power_limits,
    ),
]
ProfilesOption = Annotated[
    quantities.Names | None,
    option(
        "NVIDIA's workload power profiles to try besides, such as max-q; wastenot doctor lists them.",
        "NAME,...",
        parser=quantities.profiles,
    ),
]
BudgetOption = Annotated[
    float | None,
    option("Maximum device time to spend, such as 90s, 45m or 2h.", "TIME", parser=quantities.budget),
]
MaxSlowdownOption = Annotated[float, option("Slowdown limit, such as 2% or 0.02.", "X", parser=quantities.slowdown)]
ConfidenceOption = Annotated[
    float | None,
    option(
        "Stay within the slowdown limit with this confidence despite noise; 0.95 where the study has repeats or standard "
        "errors.",
        "C",
        parser=quantities.share,
    ),
]
AsMeasuredOption = Annotated[bool, option("Use the numbers as measured, favourable errors included; promises nothing.")]
GranularityOption = Annotated[
    Granularity, option("What gets its own clocks: each kernel, each pass, or the whole iteration.")
]
ToleranceOption = Annotated[
    float, option("How much the core clocks of kernels that share a setting may differ.", "MHZ", parser=quantities.megahertz)
]
OriginOption = Annotated[Origin, option("Where the numbers come from; shown wherever the numbers are.")]
DtypeOption = Annotated[
    str, option("Data type of activations and weights.", "|".join(DTYPE_BYTES), autocompletion=completing.dtypes)
]
OtlpOption = Annotated[
    str | None, option("Send metrics to this OpenTelemetry collector, such as http://localhost:4318.", "URL")
]
PageOption = Annotated[Path | None, option("Write a page to this file.", "FILE.html")]
FiguresOption = Annotated[Path | None, option("Write every figure as SVG, PDF and PNG.", "DIR")]


@dataclass(frozen=True, slots=True)
class PageOptions:
    """The page of a result, and its figures as files."""

    page: PageOption = None
    figures: FiguresOption = None

    def write(self, drawn: Callable[[], Page], command: str) -> list[str]:
        """Write what was asked for, and say so; returns the files.

        Args:
            drawn: makes the page.
            command: that makes the page again.
        """
        from wastenot.terminal.written_page import write_page

        if self.page is None and self.figures is None:
            return []
        files = write_page(drawn(), self.page, self.figures, command=command)
        return [str(file) for file in (self.page, *files) if file is not None]


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """Which sweep of a study to read."""

    study: StudyOption
    workload: WorkloadOption = None
    energies: EnergiesOption = None

    def read(self, granularity: Granularity = "kernel") -> Sweep:
        """The sweep that a plan by ``granularity`` is made of: measured by it, else finer."""
        from wastenot.study.plausible import implausible_rows
        from wastenot.study.store import open_study
        from wastenot.terminal.output import say

        sweep = open_study(self.study).read(self.workload, self.energies, granularity, finer=True)
        doubt = implausible_rows(sweep)
        if doubt is not None and doubt.rows < len(sweep):  # of every row the result itself says so
            say(f"warning: {self.study}: {doubt.text}")
        return sweep


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What a plan is to achieve."""

    objective: Annotated[
        ObjectiveKind, option("; ".join(f"{name}: {rules.help}" for name, rules in KERNELS.items()) + ".")
    ] = "waste"
    max_slowdown: Annotated[
        float | None,
        option(
            "Slowdown limit, such as 2% or 0.02; negative asks for a speed-up. Default: 0; no limit for "
            + " and ".join(name for name, rules in KERNELS.items() if rules.limit == "optional")
            + ".",
            "X",
            parser=quantities.slowdown,
        ),
    ] = None
    edp_exponent: Annotated[float, option("α in energy × time^α, at least 0.", "A")] = 1.0
    carbon_g_per_kwh: Annotated[
        str | None,
        option(
            "Grams of CO2e per kWh: a number, or a CSV file of the grid over a day with columns time and g_per_kwh.",
            "G|FILE",
        ),
    ] = None
    run_at: Annotated[str | None, option("When the run starts, with --run-time; default: any time of day.", "HH:MM")] = None
    run_time: Annotated[
        float | None, option("Run time at the default clocks, such as 8h.", "TIME", parser=quantities.seconds)
    ] = None
    confidence: ConfidenceOption = None
    as_measured: AsMeasuredOption = False
    granularity: GranularityOption = "kernel"
    scope: Annotated[
        Scope, option("What must stay within the slowdown limit: the whole iteration, or each unit by itself.")
    ] = "global"
    clock_tolerance: ToleranceOption = 0.0
    switch_time: Annotated[
        float | None,
        option(
            "How long the device takes to switch clocks, such as 30ms; decides what can be applied today. Default: as "
            "measured by 'wastenot device latency', else stated or assumed.",
            "SECONDS",
            parser=quantities.seconds,
        ),
    ] = None
    latency: Annotated[
        Path | None, option("Switching latencies, measured by 'wastenot device latency'; default: the study's.", "FILE")
    ] = None
    min_dwell: Annotated[
        float,
        option(
            "Minimum time between two clock changes of the plan's schedule, such as 100ms; never less than a switch takes.",
            "SECONDS",
            parser=quantities.seconds,
        ),
    ] = 0.0
    device: Annotated[
        str | None, option("GPU whose switching times to plan for, such as h200; default: the study's GPU.", "GPU")
    ] = None

    def plan(self, sweep: Sweep) -> Plan:
        """The plan of a sweep."""
        from wastenot.planning.carbon import carbon_intensity
        from wastenot.planning.planner import plan

        carbon = None
        if self.carbon_g_per_kwh is not None:
            carbon = carbon_intensity(self.carbon_g_per_kwh, self.run_at, self.run_time)
        return plan(
            sweep,
            Objective(self.objective, self.max_slowdown, self.edp_exponent, self.confidence, self.as_measured, carbon),
            granularity=self.granularity,
            scope=self.scope,
            clock_tolerance_mhz=self.clock_tolerance,
            switch_time_s=self.switch_time,
            latency=self.latency,
            min_dwell_s=self.min_dwell,
            device=self.device,
        )


@dataclass(frozen=True, slots=True)
class PriceOptions:
    """The price of electricity."""

    price_per_kwh: Annotated[float, option("Price of a kilowatt-hour of electricity.", "P")] = DEFAULT_PRICE.per_kwh
    currency: Annotated[str, option("Currency of that price.", "C")] = DEFAULT_PRICE.currency

    def price(self) -> Price:
        """The price."""
        return Price(self.price_per_kwh, self.currency)


@dataclass(frozen=True, slots=True)
class ShapeOptions:
    """The shape of a model's workload."""

    phase: Annotated[
        str,
        option("A training iteration, or a phase of serving.", "training|prefill|decode", autocompletion=completing.phases),
    ] = "training"
    batch: Annotated[
        int | None, option("Sequences per batch. Default: 40 in training, 4 in prefill, 64 in decode.", "N")
    ] = None
    sequence: Annotated[int, option("Tokens per sequence; in decode, tokens in the key-value cache.", "N")] = 1024
    tensor_parallel: Annotated[
        int, option("GPUs that share each matrix product; the workload is one GPU's kernels.", "N")
    ] = 1
    sequence_parallel: Annotated[bool, option("These GPUs also share norms, residuals, embedding and loss.")] = False
    dtype: DtypeOption = "bf16"
    attention: Annotated[
        str,
        option(
            "Attention implementation: unfused writes scores to memory, the others are fused kernels.",
            "unfused|flash|cudnn|efficient",
            autocompletion=completing.attentions,
        ),
    ] = "unfused"
    optimizer: Annotated[
        str, option("Whether a training iteration updates the weights.", "none|adamw", autocompletion=completing.optimizers)
    ] = "none"

    def shape(self) -> Shape:
        """The shape; impossible ones are refused when a workload is built from it."""
        phase = cast(Phase, self.phase)
        return Shape(
            phase,
            default_batch(phase) if self.batch is None else self.batch,
            self.sequence,
            self.tensor_parallel,
            self.sequence_parallel,
            self.dtype,
            cast(Attention, self.attention),
            cast(Optimizer, self.optimizer),
        )


SHAPE_OPTIONS = tuple(field.name for field in fields(ShapeOptions))
"""Names of the options that say how a model is run."""


@dataclass(frozen=True, slots=True)
class ClockControlOptions:
    """Whether and how the clocks of a real GPU may be changed."""

    allow_clock_control: Annotated[
        bool,
        option(
            "Allow changing the clocks of a real GPU; afterwards they are reset to the driver's defaults. "
            "WASTENOT_READ_ONLY=1 forbids it."
        ),
    ] = False
    restore_clocks: Annotated[
        str | None,
        option(
            "Core (and memory) clocks that a real GPU is locked to afterwards, instead of the driver's defaults: after "
            "nvidia-smi -lgc 0,1500, 0-1500.",
            "MIN-MAX[,MIN-MAX]",
        ),
    ] = None

    def open_device(self, name: str, *, seed: int, workload: WorkloadKey | None) -> Device:
        """Open the device of a command; once a real GPU's clocks are changed, say what becomes of them.

        Args:
            name: of the device.
            seed: of a simulated device.
            workload: that a recorded device replays; ``None`` for the only one.

        Raises:
            BadInputError: there is no such device, or ``--restore-clocks`` is not one or two ranges.
            DeviceError: it does not respond.
        """
        from wastenot.devices.common.clocks import LeasedClocks
        from wastenot.devices.common.shared_clocks import SharedClocks
        from wastenot.devices.open import open_device
        from wastenot.terminal.output import say

        ranges = parse_restore(self.restore_clocks)
        say_left_changed(name)
        device = open_device(
            name,
            seed=seed,
            workload=None if workload is None else workload.name,
            granularity=None if workload is None else workload.granularity,
            allow_clock_control=self.allow_clock_control,
            restore=ranges,
        )
        clocks = device.clocks
        if self.allow_clock_control and isinstance(clocks, SharedClocks):
            outcome = clocks.outcome()
            vendor = vendor_named(name) if ranges is None and isinstance(clocks, LeasedClocks) else None
            hint = "" if vendor is None else f"\n{_LOCK_HINT.format(vendor.lock)}"
            clocks.on_change = lambda: say(f"{name}: afterwards the clocks are {outcome}{hint}")
            clocks.on_interrupt = lambda: say(f"{name}: the clocks are {outcome}")
        return device


_LOCK_HINT = "  existing locks cannot be read: to keep one set by {}, pass --restore-clocks 0-1500"


def say_left_changed(name: str) -> None:
    """Say that opening a real GPU resets clocks that a killed process left changed, where there are any."""
    if vendor_named(name) is None:
        return
    from wastenot.devices.common.journal import stale
    from wastenot.devices.common.rights import forbidden
    from wastenot.terminal.output import say

    if forbidden() is None:
        for left in stale():
            say(f"{left.uuid}: {left.holder} died while controlling its clocks; they are first {left.restore.outcome}")


def parse_restore(text: str | None) -> Restore | None:
    """Ranges of locked clocks such as ``345-1980`` or ``345-1500,3201-3201``.

    Raises:
        BadInputError: it is something else.
    """
    from wastenot.devices.common.journal import Restore

    if text is None:
        return None
    ranges = []
    for item in text.split(","):
        low, _, high = item.partition("-")
        try:
            bounds = (float(low), float(high))
        except ValueError:
            bounds = (0.0, 0.0)
        if not (0.0 <= bounds[0] <= bounds[1] < float("inf") and bounds[1] > 0.0):
            raise BadInputError(
                f"--restore-clocks {text}: write a range of core clocks in MHz such as 345-1980, and one of memory clocks "
                "after a comma"
            )
        ranges.append(bounds)
    if len(ranges) > 2:
        raise BadInputError(f"--restore-clocks {text}: at most two ranges, one of core and one of memory clocks")
    return Restore(ranges[0], ranges[1] if len(ranges) == 2 else None)
