"""The kernel-level DVFS paper on simulated GPUs: every table and figure, and our numbers beside the published ones.

It sits above all other rooms but the command line, because it uses the whole workflow: measuring, planning, validating,
transferring and reporting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wastenot.core.files import write_text
from wastenot.core.progress import Progress
from wastenot.core.setting import Setting
from wastenot.devices.open import open_device
from wastenot.devices.protocol import Device
from wastenot.kernels.page.page import plan_page
from wastenot.kernels.page.tables import comparison_table, kernel_table_by_pass
from wastenot.kernels.page.transfer_figure import transfer_figure
from wastenot.kernels.plan.overview import make_overview
from wastenot.kernels.run.interleaved import Transfer, estimate_interleaved, transfer, validate
from wastenot.meters.tasks import WorkloadTasks, tasks_of
from wastenot.pages.figure import export_figures
from wastenot.pages.formatting import change, changes
from wastenot.pages.table import Table
from wastenot.planning.comparison import Comparison
from wastenot.planning.objective import Objective
from wastenot.planning.plan import Plan
from wastenot.planning.planner import Planner
from wastenot.study.store import Study, open_study
from wastenot.sweeping.estimate import Estimate, estimate_sweep
from wastenot.sweeping.grid import Grid
from wastenot.sweeping.measure import BASELINE_ROUNDS, measure_sweep
from wastenot.workloads.build import build_workload

MODEL = "gpt3-xl"
CORE_STEP_MHZ = 210.0  # as in the paper (§4)
BATCHES = (40, 20, 10, 5, 2, 1)  # Fig. 7
DEGREES = (1, 2, 4, 8)  # Fig. 8
REPEATS = 10  # of the validation (§6)
TRANSFER_REPEATS = 5
_STRICT = Objective("waste", 0.0)

_CARDS = ("rtx-3080-ti", "rtx-a4000")
WRITING_S = 20.0
"""How long planning, reports and figures take beside the measuring, roughly."""


@dataclass(frozen=True, slots=True)
class CardResult:
    """The paper's experiment on one card.

    Attributes:
        device: the simulated card.
        plan: strict, global plan by kernel; validated.
        comparison: Table 2, with coarse plans summed from kernels.
        by_pass: strict plan of passes, each measured as one (§5).
    """

    device: str
    plan: Plan
    comparison: Comparison
    by_pass: Plan


@dataclass(frozen=True, slots=True)
class Reproduction:
    """All of the paper's experiments.

    Attributes:
        cards: each of the paper's cards.
        batches: the plan of the first card at other batch sizes (Fig. 7).
        tensor_parallel: the same at other tensor-parallel degrees (Fig. 8).
        summary: all tables in Markdown.
    """

    cards: tuple[CardResult, ...]
    batches: Transfer
    tensor_parallel: Transfer
    summary: str


def estimate_reproduction(folder: Path, seed: int = 0) -> tuple[Estimate, ...]:
    """The parts of :func:`reproduce`, in order: how many measurements each makes, and how long they take.

    Args:
        folder: folder to write to; sweeps that it holds are not made again. It need not exist.
        seed: seed of the simulated noise.
    """
    parts = []
    for name in _CARDS:
        card = _Card(folder / name, f"sim:{name}", seed)
        device, study, settings = card.open()
        for units in (card.kernels, card.passes):
            done = study.settings_done(units.key, device.identity.label)
            parts.append(estimate_sweep(device, units, settings, done, rounds=BASELINE_ROUNDS))
        parts.append(estimate_interleaved(device, card.kernels, repeats=REPEATS))
    device = open_device(f"sim:{_CARDS[0]}", seed=seed + 1)
    elsewhere = (*_at_batches(), *_at_degrees())
    return (*parts, *(estimate_interleaved(device, units, repeats=TRANSFER_REPEATS) for units in elsewhere))


def reproduce(folder: Path, parts: Sequence[Estimate], progress: Progress, seed: int = 0) -> Reproduction:
    """Measure, plan, validate and transfer on both of the paper's cards; write reports, figures and a summary.

    Resumes sweeps that an earlier, interrupted call left in the folder.

    Args:
        folder: folder to write to, created if missing.
        parts: of the work, by :func:`estimate_reproduction`.
        progress: informed of every measurement of all parts together.
        seed: seed of the simulated noise.

    Returns:
        The results; their summary is also written to ``reproduction.md``.
    """
    progress.begin(sum(part.points for part in parts), sum(part.found for part in parts))
    cards = [_card(_Card(folder / name, f"sim:{name}", seed), progress) for name in _CARDS]
    main = cards[0]
    device = open_device(main.device, seed=seed + 1)
    batches = transfer(device, main.plan, _at_batches(), repeats=TRANSFER_REPEATS, progress=_Part(progress, "batch sizes"))
    parallel = transfer(
        device, main.plan, _at_degrees(), repeats=TRANSFER_REPEATS, progress=_Part(progress, "tensor parallelism")
    )
    export_figures(
        [
            transfer_figure(batches, "fig7-batch", "The plan at other batch sizes", tuple(map(str, BATCHES)), "batch size"),
            transfer_figure(
                parallel, "fig8-tensor-parallel", "The plan at other tensor-parallel degrees",
                tuple(map(str, DEGREES)), "tensor-parallel degree (sequence-parallel above 1)",
            ),
        ],
        "simulated",
        folder,
    )  # fmt: skip
    summary = summary_of(cards, batches, parallel)
    write_text(folder / "reproduction.md", summary)
    return Reproduction(tuple(cards), batches, parallel, summary)


@dataclass(frozen=True, slots=True)
class _Part:
    """Progress of one part of the work, shown as that of the whole."""

    whole: Progress
    name: str

    def begin(self, steps: int, done: int = 0) -> None:
        """Nothing: the whole has begun, and counts what was done before."""

    def step(self, what: str) -> None:
        """One more step of the whole is done."""
        self.whole.step(f"{self.name}: {what}")

    def say(self, message: str) -> None:
        """Something a person should know."""
        self.whole.say(message)


@dataclass(frozen=True, slots=True)
class _Card:
    """What is measured on one card, and where it is kept."""

    folder: Path
    name: str
    seed: int

    @property
    def kernels(self) -> WorkloadTasks:
        return tasks_of(build_workload(MODEL))

    @property
    def passes(self) -> WorkloadTasks:
        return tasks_of(build_workload(MODEL), "pass")

    def open(self) -> tuple[Device, Study, tuple[Setting, ...]]:
        device = open_device(self.name, seed=self.seed)
        study = open_study(self.folder / "study.db", create=True, look=False)
        return device, study, Grid(CORE_STEP_MHZ).settings(device.clocks.supported_clocks())


def _at_batches() -> list[WorkloadTasks]:
    return [tasks_of(build_workload(MODEL, batch=batch)) for batch in BATCHES]


def _at_degrees() -> list[WorkloadTasks]:
    return [tasks_of(build_workload(MODEL, tensor_parallel=d, sequence_parallel=d > 1)) for d in DEGREES]


def _card(card: _Card, progress: Progress) -> CardResult:
    folder, name = card.folder, card.name
    folder.mkdir(parents=True, exist_ok=True)
    device, study, settings = card.open()
    kernels, passes = card.kernels, card.passes
    for units, what in ((kernels, "kernels"), (passes, "passes")):
        measure_sweep(device, units, study, settings, progress=_Part(progress, f"{name}, {what}"))
    sweep = study.read(kernels.name, granularity="kernel")
    plan = Planner(sweep).plan(_STRICT)
    # On a fresh device, so that validation gives the same numbers even if the sweep was interrupted and resumed.
    again = open_device(name, seed=card.seed + 100)
    plan = validate(plan, kernels, again, repeats=REPEATS, progress=_Part(progress, f"{name}, validation"))
    plan.write(folder / "plan.json")
    overview = make_overview(sweep, plan)
    page = plan_page(overview)
    page.write(folder / "report.html", command=f"wastenot reproduce --seed {card.seed}")
    page.export(folder / "figures")
    by_pass = Planner(study.read(passes.name, granularity="pass")).plan(_STRICT)
    return CardResult(name, plan, overview.comparison, by_pass)


def summary_of(cards: list[CardResult], batches: Transfer, parallel: Transfer) -> str:
    """Our numbers beside the published ones, the paper's tables, and both transfers, as Markdown."""
    main, other = cards
    validation, validation_other = main.plan.validation, other.plan.validation
    assert validation is not None and validation_other is not None
    rows = [
        ("pass-level, no slowdown, best of the numbers as measured: energy", "about −2 %", _potential(main.by_pass)),
        ("the same, promised: energy", "–", _promised(main.by_pass)),
        ("kernel-level, no slowdown, best of the numbers as measured: energy", "−15.64 %", _potential(main.plan)),
        ("the same, promised: energy", "–", _promised(main.plan)),
        ("the same, validated: energy", "−14.6 %", change(validation.energy_change.mean)),
        ("the same, validated: time", "+0.6 %", change(validation.time_change.mean)),
        ("largest time saving of any clocks", "(lost)", change(main.plan.fastest.time_change)),
        ("RTX A4000, kernel-level, best of the numbers as measured: energy", "(lost)", _potential(other.plan)),
        ("RTX A4000, promised: energy", "–", _promised(other.plan)),
        ("RTX A4000, validated: energy", "(lost)", change(validation_other.energy_change.mean)),
        ("RTX A4000, validated: time", "(lost)", change(validation_other.time_change.mean)),
    ]
    parts = [
        "# The paper on simulated GPUs\n",
        "All of our numbers are SIMULATED (`sim:rtx-3080-ti`, `sim:rtx-a4000`). Published numbers marked (lost) are missing "
        "from our copy of the text. Changes are against the default clocks; negative is saved.\n",
        _markdown(("quantity", "published", "ours, simulated"), rows),
        "\n## Table 2\n",
        *(f"{card.device}\n\n{_as_markdown(comparison_table(card.comparison))}\n" for card in cards),
        "## Figs. 7 and 8: the clocks of batch 40 elsewhere\n",
        *(_transfer_rows(each) + "\n" for each in (batches, parallel)),
        "## Table 1\n",
        *(f"{card.device}\n\n{_as_markdown(kernel_table_by_pass(card.plan))}\n" for card in cards),
    ]
    return "\n".join(parts)


def _potential(plan: Plan) -> str:
    """The paper's prediction: the optimum of the numbers as measured."""
    return "–" if plan.potential is None else change(plan.potential.energy_change)


def _promised(plan: Plan) -> str:
    """What the plan that is validated was expected to give."""
    return "–" if plan.expected is None else change(plan.expected.energy_change)


def _transfer_rows(transfer: Transfer) -> str:
    rows = [
        (
            row.workload,
            f"{change(row.time_change.mean, 3)} ({changes((row.time_change.low, row.time_change.high))})",
            f"{change(row.energy_change.mean)} ({changes((row.energy_change.low, row.energy_change.high))})",
        )
        for row in transfer.rows
    ]
    return _markdown(("workload", "time (95 % interval)", "energy (95 % interval)"), rows)


def _as_markdown(table: Table) -> str:
    rows = [(row.group or "", *row.texts) for row in table.rows]
    return _markdown(("", *(column.title for column in table.columns)), rows)


def _markdown(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [headings, tuple("---" for _ in headings), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
