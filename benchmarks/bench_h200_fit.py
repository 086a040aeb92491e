"""What sim:h200 says of kernels that it was not fitted to, beside measurements (data/h200): the judge of its fit.

Random halves: everything that was measured is split in two at random, each half is fitted and predicts the other; kernels
of the same work are always on the same side. Held out: operations that nothing was ever fitted to, chosen before any were
measured, by the preset that comes with wastenot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from benchmarks.verdict import Verdict, run_alone
from presets import h200_data, h200_errors
from presets.h200_data import Measured
from presets.h200_errors import energy_ratio, time_ratio
from wastenot.devices.simulated.kinds import kinds_of
from wastenot.devices.simulated.preset import Preset, find_preset
from wastenot.workloads.attention import attention_backend

FEW = 10


def main(verdict: Verdict) -> None:
    operations, preset = h200_data.read_all(), find_preset("h200")
    halves = [h200_errors.errors_of_halves(preset, operations, seed) for seed in range(h200_errors.HALVES)]
    for what, goal in (("time", 8.0), ("power", 5.0)):
        each = [mean_percent(errors, what) for errors in halves]
        print(f"  {what}: {h200_errors.HALVES} random halves, mean error from {min(each):.1f} to {max(each):.1f} %")
        verdict.at_most(f"mean over random halves, {what}, %", float(np.mean(each)), goal)
    apart = [h200_errors.errors_of_halves(preset, operations, seed, apart=True) for seed in range(FEW)]
    for what in ("time", "power"):
        mean = np.mean([mean_percent(errors, what) for errors in apart])
        print(f"  {what}: mean over {FEW} random halves where kernels of the same work share one {mean:.1f} %")
    together = [error for errors in halves for error in errors]
    table(together, lambda error: kinds_of(error.measured.kernel)[0])
    attention = [error for error in together if error.measured.kernel.op.startswith("attention")]
    for group, errors in grouped(attention, backend_and_length).items():
        verdict.at_most(f"random halves, {group}: mean error in time, %", mean_percent(errors, "time"), 10.0)
    streaming = [error for error in together if is_streaming(error.measured)]
    verdict.at_most("random halves, streaming kernels: mean error in time, %", mean_percent(streaming, "time"), 8.0)
    never = [one for one in operations if one.held]
    errors = h200_errors.errors_at_auto(preset, never)
    print(f"  {len(never)} operations that nothing was fitted to:")
    table(errors, lambda error: kinds_of(error.measured.kernel)[0])
    verdict.at_most("held out: mean error in time, %", mean_percent(errors, "time"), 8.0)
    verdict.at_most("held out: mean error in power, %", mean_percent(errors, "power"), 5.0)
    judge_by_clock(verdict, preset, never)


def judge_by_clock(verdict: Verdict, preset: Preset, operations: Sequence[Measured]) -> None:
    """Time and energy at 1.50 GHz relative to 1.975, of operations that were seen near both."""
    for what, find, median in (("time", time_ratio, 2.0), ("energy", energy_ratio, 3.0)):
        found = [(one, found) for one in operations if (found := find(preset, one)) is not None]
        off = {one.kernel.name: 100.0 * (ratio / measured - 1.0) for one, (ratio, measured) in found}
        percent = np.abs(list(off.values()))
        print(f"  {what} at 1.50 GHz against 1.975, {len(found)} operations, mean error {percent.mean():.2f} %")
        for name, value in sorted(off.items(), key=lambda item: -abs(item[1]))[:8]:
            print(f"    {name:44} {value:+.1f} %")
        verdict.at_most(f"held out: {what} by clock, median error, %", float(np.median(percent)), median)
        verdict.at_most(f"held out: {what} by clock, largest error, %", float(percent.max()), 8.0)


def backend_and_length(error: h200_errors.Off) -> str:
    """Such as ``cudnn attention_backward of 4096``."""
    kernel = error.measured.kernel
    few = "decoding with " if kernel.shape[2] <= 16 else ""
    return f"{attention_backend(kernel)} {kernel.op}, {few}{kernel.shape[3]} keys"


def is_streaming(one: Measured) -> bool:
    """Whether a kernel moves bytes and little else, and enough for its start not to matter."""
    return one.kernel.op not in ("gemm", "attention", "attention_backward", "embedding_backward") and one.time_s > 1e-5


def mean_percent(errors: Iterable[h200_errors.Off], what: str) -> float:
    """Mean absolute error."""
    return 100.0 * float(np.mean([abs(getattr(error, what)) for error in errors]))


def grouped(
    errors: Iterable[h200_errors.Off], group_of: Callable[[h200_errors.Off], str]
) -> dict[str, list[h200_errors.Off]]:
    """Errors by group, by name."""
    found: dict[str, list[h200_errors.Off]] = {}
    for error in errors:
        found.setdefault(group_of(error), []).append(error)
    return dict(sorted(found.items()))


def table(errors: Sequence[h200_errors.Off], group_of: Callable[[h200_errors.Off], str]) -> None:
    """Mean errors by group."""
    for group, those in grouped(errors, group_of).items():
        kernels = {id(error.measured) for error in those}
        print(
            f"    {group:32} {len(kernels):4} kernels  time {mean_percent(those, 'time'):5.1f} %  "
            f"power {mean_percent(those, 'power'):5.1f} %"
        )


if __name__ == "__main__":
    run_alone(main)
