"""Flags that mean the same wherever they stand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer

from wastenot.origin import Origin
from wastenot.planning.objective import ObjectiveKind, Scope
from wastenot.workloads.identity import EnergyState, Granularity
from wastenot.workloads.kernel import DTYPE_BYTES
from wastenot.workloads.shape import Attention, Optimizer, Phase, Shape, default_batch

StudyOption = Annotated[
    str, typer.Option("--study", metavar="FILE|URL", help="The study: an SQLite file, or a database URL.")
]
WorkloadOption = Annotated[
    str | None, typer.Option("--workload", metavar="NAME", help="Which workload; needed where a study has several.")
]
EnergiesOption = Annotated[
    EnergyState | None,
    typer.Option(
        "--energies",
        help="Of kernels back to back (ssp, the default), of their first execution at full speed (sse), or each after the "
        "kernel before it (context).",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
OutOption = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the result to this file.")]
ObjectiveOption = Annotated[
    ObjectiveKind,
    typer.Option(
        "--objective",
        help="waste: least energy within the slowdown allowed; edp: least energy × time^A; or the least of one.",
    ),
]
SlowdownOption = Annotated[
    float | None,
    typer.Option(
        "--max-slowdown",
        metavar="X",
        help="Slowdown allowed: 0.02 is 2 %; negative asks for a speed-up. Waste: 0 unless given; EDP: no bound.",
    ),
]
ExponentOption = Annotated[float, typer.Option("--edp-exponent", metavar="A", help="α of energy × time^α, at least 0.")]
ConfidenceOption = Annotated[
    float | None,
    typer.Option(
        "--confidence",
        metavar="C",
        help="Keep the slowdown with this confidence in spite of noise, such as 0.95; needs repeats or standard errors.",
    ),
]
MeasuredGranularityOption = Annotated[
    Granularity | None,
    typer.Option("--granularity", help="What was measured as one; by default the finest that there is."),
]
GranularityOption = Annotated[Granularity, typer.Option("--granularity", help="What gets clocks of its own.")]
ScopeOption = Annotated[
    Scope,
    typer.Option("--scope", help="Who must keep the slowdown: the whole iteration, or each unit by itself."),
]
ToleranceOption = Annotated[
    float,
    typer.Option(
        "--clock-tolerance", metavar="MHZ", help="How far core clocks of kernels that share a setting may be apart."
    ),
]
PriceOption = Annotated[float, typer.Option("--price-per-kwh", metavar="P", help="Price of electricity for a kWh.")]
CurrencyOption = Annotated[str, typer.Option("--currency", metavar="C", help="What that price is in.")]
SeedOption = Annotated[int, typer.Option("--seed", metavar="N", help="Of a simulated GPU's noise.")]
OriginOption = Annotated[
    Origin, typer.Option("--origin", help="Where the numbers come from; shown wherever they are shown.")
]
PhaseOption = Annotated[
    str, typer.Option("--phase", metavar="training|prefill|decode", help="A training iteration, or a part of serving.")
]
BatchOption = Annotated[
    int | None,
    typer.Option("--batch", metavar="N", help="Sequences at once. By default 40 in training, 4 in prefill, 64 in decode."),
]
SequenceOption = Annotated[
    int, typer.Option("--sequence", metavar="N", help="Tokens of a sequence; in decode those in the key-value cache.")
]
TensorParallelOption = Annotated[
    int,
    typer.Option("--tensor-parallel", metavar="N", help="GPUs that share each matrix product; one's kernels count."),
]
SequenceParallelOption = Annotated[
    bool, typer.Option("--sequence-parallel", help="These GPUs also share norms, residuals, embedding and loss.")
]
DtypeOption = Annotated[
    str, typer.Option("--dtype", metavar="|".join(DTYPE_BYTES), help="Data type of activations and weights.")
]
AttentionOption = Annotated[
    str, typer.Option("--attention", metavar="unfused|flash", help="Scores in memory, or attention in one kernel.")
]
OptimizerOption = Annotated[
    str, typer.Option("--optimizer", metavar="none|adamw", help="Whether a training iteration updates the weights.")
]


def chosen_shape(
    phase: str,
    batch: int | None,
    sequence: int,
    tensor_parallel: int,
    sequence_parallel: bool,
    dtype: str,
    attention: str,
    optimizer: str,
) -> Shape:
    """The shape that the options say; what cannot be is refused when a workload is built of it."""
    return Shape(
        cast(Phase, phase),
        default_batch(cast(Phase, phase)) if batch is None else batch,
        sequence,
        tensor_parallel,
        sequence_parallel,
        dtype,
        cast(Attention, attention),
        cast(Optimizer, optimizer),
    )
