"""Sweeps to test with: small ones by hand, large ones by formula, arbitrary ones by Hypothesis."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
from hypothesis import strategies as st

from wastenot.study.sweep import NUMBERS, SETTING, Kernel, Range, Sweep

HEADER = "kernel,count,core_mhz,memory_mhz,time_s,energy_j"
SMALL_CSV = f"{HEADER}\nqkv,24,,,0.5,100.0\nqkv,24,1200,,0.625,80.0\nmlp,12,,,0.25,50.0\n"
NUMBER_NAMES = tuple(column.name for column in NUMBERS)


def sweep_of(rows, *, workload="w", device="sim:x", origin="measured", **identity):
    """Rows of (Kernel, {column: value}); time and energy are 1 where not given."""
    kernels = tuple(dict.fromkeys(kernel for kernel, _ in rows))
    index = {kernel: position for position, kernel in enumerate(kernels)}
    defaults = {"time_s": 1.0, "energy_j": 1.0}
    numbers = {
        name: np.array([(defaults | row).get(name, np.nan) for _, row in rows], dtype=np.float64) for name in NUMBER_NAMES
    }
    kernel_index = np.array([index[kernel] for kernel, _ in rows], dtype=np.int64)
    return Sweep(
        kernels=kernels, kernel_index=kernel_index, workload=workload, device=device, origin=origin, **identity, **numbers
    )


def small_sweep(**names):
    a, b = Kernel("qkv", 24, "forward", "layer"), Kernel("mlp", 12, "backward")
    return sweep_of(
        [
            (a, {"time_s": 0.5, "energy_j": 100.0}),
            (a, {"time_s": 0.625, "energy_j": 80.0, "core_mhz": 1200.0, "effective_core_mhz": 1185.0}),
            (b, {"time_s": 0.25, "energy_j": 50.0}),
            (b, {"time_s": 0.75, "energy_j": 52.0}),
            (b, {"time_s": 0.25, "energy_j": 40.0, "power_limit_w": 350.0, "time_se_s": 0.0}),
        ],
        **names,
    )


def large_sweep(rows=100_000, *, workload="large"):
    rng = np.random.default_rng(7)
    kernels = tuple(Kernel(f"kernel.{number}", 24) for number in range(rows // 100))
    kernel_index = np.repeat(np.arange(len(kernels)), 100)
    core = np.tile(np.r_[np.nan, np.arange(210.0, 210 + 99 * 15, 15)], len(kernels))
    numbers = {name: np.full(len(kernel_index), np.nan) for name in NUMBER_NAMES}
    numbers |= {"core_mhz": core, "time_s": rng.random(len(core)) + 1e-9, "energy_j": rng.random(len(core)) + 1e-9}
    return Sweep(kernels=kernels, kernel_index=kernel_index, workload=workload, device="sim:x", **numbers)


def assert_same(one, other):
    """Equal to the last bit in every row, and in every name."""
    for field in fields(Sweep):
        left, right = getattr(one, field.name), getattr(other, field.name)
        if isinstance(left, np.ndarray):
            np.testing.assert_array_equal(left, right, err_msg=field.name, strict=True)
        else:
            assert left == right, field.name


_text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)
_text |= st.sampled_from(["a,b", 'say "x"', "two\nlines", "cr\rlf\r\n", " spaced ", "'", '"', "µ×α", "nan", "#x", "\ufeffk"])
_names = _text.filter(lambda text: text.strip() != "")
_positive = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
_values = {
    Range.POSITIVE: _positive,
    Range.NOT_NEGATIVE: st.floats(min_value=0, allow_infinity=False),
    Range.FINITE: st.floats(allow_nan=False, allow_infinity=False),
    Range.CODE: st.integers(0, 255).map(float),
}


@st.composite
def sweeps(draw):
    """Any sweep that the rules allow, whatever its names and numbers."""
    names = draw(st.lists(_names, min_size=1, max_size=4, unique=True))
    label = st.none() | _names
    kernels = [Kernel(name, draw(st.integers(1, 2**53)), draw(label), draw(label)) for name in names]
    rows = []
    for kernel in kernels:
        for auto in [True, *draw(st.lists(st.booleans(), max_size=3))]:
            row = {}
            for column in NUMBERS:
                if column.empty is None or (not (auto and column.name in SETTING) and draw(st.booleans())):
                    row[column.name] = draw(_values[column.range])
            rows.append((kernel, row))
    return sweep_of(rows)
