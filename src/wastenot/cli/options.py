"""Flags that mean the same wherever they stand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wastenot.origin import Origin
from wastenot.planning.objective import Granularity, ObjectiveKind, Scope

StudyOption = Annotated[
    str, typer.Option("--study", metavar="FILE|URL", help="The study: an SQLite file, or a database URL.")
]
WorkloadOption = Annotated[
    str | None, typer.Option("--workload", metavar="NAME", help="Which workload; needed where a study has several.")
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
OriginOption = Annotated[
    Origin, typer.Option("--origin", help="Where the numbers come from; shown wherever they are shown.")
]
