"""Programmes suit the kernel, fill what is missing, and come to an end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from wastenot.devices.instrument import Channel
from wastenot.devices.open import open_device
from wastenot.devices.timeline import REST, Phase, Subject, Timeline
from wastenot.kernels.natural.programmes import next_programme
from wastenot.workloads.build import build_workload
from wastenot.workloads.primitives import primitive


@dataclass(frozen=True, slots=True)
class Run:
    timeline: Timeline
    subjects: tuple[tuple[str, str], ...]
    channels: tuple[Channel, ...]


def swept(name: str, left_s: float = 18.0) -> tuple[list[Run], list[tuple[Phase, ...]]]:
    kernel = next(one for one in build_workload("gpt3-xl").kernels if one.name == name)
    subjects = (Subject(kernel), Subject(primitive("gemm:8192")[0]))
    recorder = open_device("sim:h200").timelines()
    runs: list[Run] = []
    programmes = []
    with recorder.prepare(subjects) as prepared:
        while phases := next_programme(runs, prepared.call_s, left_s):
            timeline = prepared.run(phases)
            left_s -= float(timeline.end_s[-1] - timeline.begin_s[0])
            named = tuple((one.kernel.name, one.data) for one in subjects)
            runs.append(Run(timeline, named, recorder.channels))
            programmes.append(phases)
    return runs, programmes


def test_a_light_kernel_is_seen_at_all_clocks_between_products_and_its_own() -> None:
    runs, programmes = swept("softmax")
    clocks = np.concatenate([run.timeline.core_mhz[run.timeline.subject == 0] for run in runs])
    assert all(np.sum(np.abs(clocks - clock) < 25.0) >= 12 for clock in np.arange(1550.0, 1980.0, 50.0))
    assert 3 <= len(programmes) <= 8
    assert not any(phase.subject == REST for phases in programmes for phase in phases)


def test_a_product_is_seen_above_its_own_clock_by_resting_it() -> None:
    runs, programmes = swept("projection_gemm")
    clocks = np.concatenate([run.timeline.core_mhz[run.timeline.subject == 0] for run in runs])
    assert np.quantile(clocks, 0.05) < 1500.0 < 1700.0 < np.quantile(clocks, 0.95)
    assert any(phase.subject == REST for phases in programmes for phase in phases)


@pytest.mark.parametrize("left_s", [0.5, 2.0, 5.0])
def test_a_limit_of_time_is_kept(left_s: float) -> None:
    runs, _ = swept("gelu", left_s)
    took_s = sum(float(run.timeline.end_s[-1] - run.timeline.begin_s[0]) for run in runs)
    assert took_s < 1.3 * left_s + 0.8  # the first phase always runs
