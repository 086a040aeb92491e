"""A model with few of its kernels, for tests of what is done with a workload rather than of how large one is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import wastenot as wn
from wastenot.workloads.build import build_workload


def write_few_kernels(path: Path, model: str = "gpt3-small", *, each: int = 6, **shape: Any) -> Path:
    """One kernel in ``each`` of a model, as a workload file."""
    whole = build_workload(model, **shape)
    wn.write_workload(replace(whole, name=path.stem, kernels=whole.kernels[::each]), path)
    return path
