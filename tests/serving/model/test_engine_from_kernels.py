from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from wastenot.core.errors import BadInputError
from wastenot.core.setting import AUTO, Setting
from wastenot.frontiers.algebra import choice, repeat, sequence, tie
from wastenot.serving.model.from_kernels import default_settings, kernels_of, tables_of
from wastenot.serving.model.memory import cache_blocks, cache_token_bytes, card_bytes
from wastenot.study.sweep import Kernel, Sweep
from wastenot.workloads.named import find_model
from wastenot.workloads.serving_steps import StepPart

CLOCKS = (1000.0, 1500.0, 2000.0)
HEAVY, LIGHT = 600.0, 200.0  # watts at the highest clock

Physics = Callable[[StepPart, float], tuple[float, float]]


def simple(part: StepPart, clock: float) -> tuple[float, float]:
    """Products take time with the clock, all else does not; power grows with its square."""
    tokens = part.at[0] * (1.0 if len(part.at) == 1 else 1.0 + part.at[1] / 100.0)
    heavy = part.name == "product"
    time_s = (1e-6 + 1e-8 * tokens) * (2000.0 / clock if heavy else 1.0)
    return time_s, (HEAVY if heavy else LIGHT) * (clock / 2000.0) ** 2


def parts() -> list[StepPart]:
    found = [StepPart(name, "tokens", (tokens,), 4) for name in ("product", "norm") for tokens in (1, 100, 1000)]
    found += [StepPart("head", "sequences", (batch,), 1) for batch in (1, 100)]
    found += [StepPart("attention", "decode", (batch, context), 4) for batch in (1, 100) for context in (1, 500)]
    found += [StepPart("attention", "prefill", (tokens, past), 4) for tokens in (1, 1000) for past in (0, 500)]
    return found


def swept(physics: Physics, limit_w: float = np.inf, clocks: tuple[float, ...] = CLOCKS, auto: bool = True) -> Sweep:
    """A sweep of the parts on a card that lowers its clock where one of them exceeds the limit."""
    rows = []
    kernels = parts()
    for asked in (*clocks, *([np.nan] if auto else [])):
        for index, part in enumerate(kernels):
            clock = max(clocks) if np.isnan(asked) else asked
            while physics(part, clock)[1] > limit_w:
                clock -= 1.0
            time_s, power_w = physics(part, clock)
            rows.append((index, asked, clock, time_s, time_s * power_w))
    index, asked, clock, time_s, energy_j = (np.array(column) for column in zip(*rows, strict=True))
    nothing = np.full(len(rows), np.nan)
    return Sweep(
        tuple(Kernel(part.called, part.count) for part in kernels), index, asked, nothing, nothing, time_s, energy_j,
        nothing, nothing, clock, nothing, nothing, nothing, workload="test", device="test",
    )  # fmt: skip


def test_steps_at_measured_sizes_and_clocks_are_what_the_algebra_says() -> None:
    kernels = kernels_of(swept(simple))
    settings = tuple(Setting(clock) for clock in CLOCKS)
    tables = tables_of(kernels, settings, "simulated", idle_power_w=50.0)
    layer = [
        StepPart("product", "tokens", (100,), 4),
        StepPart("norm", "tokens", (100,), 4),
        StepPart("attention", "decode", (100, 500), 4),
    ]

    def ways(part: StepPart) -> list[tuple[float, float, object]]:
        return [(time, time * power, clock) for clock in CLOCKS for time, power in [simple(part, clock)]]

    step = tie(
        sequence(
            repeat(sequence(*(choice(ways(part)) for part in layer)), 4),
            choice(ways(StepPart("head", "sequences", (100,), 1))),
        )
    )
    for index, clock in enumerate(CLOCKS):
        expected = [point for point in step.pareto() if clock in point.choices]
        cost = tables.decode(index, 100, 500)
        for point in expected:
            assert cost.time_s == pytest.approx(point.time_s, rel=1e-9)
            assert cost.energy_j == pytest.approx(point.energy_j, rel=1e-9)
        assert expected


def test_the_limit_counts_for_the_whole_step() -> None:
    """A product alone is throttled; between light kernels it is not, as long as the mean is within the limit."""

    def longer(part: StepPart, clock: float) -> tuple[float, float]:
        time_s, power_w = simple(part, clock)
        return (time_s, power_w) if part.name == "product" else (3.0 * time_s, power_w)

    free = tables_of(kernels_of(swept(longer)), (AUTO,), "simulated", idle_power_w=0.0)
    power_w = free.decode(0, 100, 1).power_w
    assert LIGHT < power_w < HEAVY - 50.0
    within = tables_of(kernels_of(swept(longer, power_w + 50.0)), (AUTO,), "simulated", idle_power_w=0.0)
    assert within.decode(0, 100, 1).time_s == pytest.approx(free.decode(0, 100, 1).time_s, rel=0.01)
    assert within.decode(0, 100, 1).energy_j == pytest.approx(free.decode(0, 100, 1).energy_j, rel=0.02)
    limit_w = power_w - 60.0
    held = tables_of(kernels_of(swept(longer, limit_w)), (AUTO,), "simulated", idle_power_w=0.0).decode(0, 100, 1)
    assert held.power_w == pytest.approx(limit_w, rel=0.005)
    assert held.time_s > free.decode(0, 100, 1).time_s


def test_a_power_limit_of_the_setting_holds_the_step() -> None:
    kernels = kernels_of(swept(simple))
    cost = tables_of(kernels, (Setting(power_limit_w=300.0),), "forecast", idle_power_w=0.0).decode(0, 100, 1)
    assert cost.power_w == pytest.approx(300.0, rel=0.005)


def test_clocks_between_those_measured() -> None:
    tables = tables_of(kernels_of(swept(simple)), (Setting(1750.0),), "simulated", idle_power_w=0.0)
    product, others = simple(StepPart("product", "tokens", (100,), 4), 1750.0)[0], 0.0
    for part in (StepPart("norm", "tokens", (100,), 4), StepPart("attention", "decode", (100, 500), 4)):
        others += 4 * simple(part, 1750.0)[0]
    expected = 4 * product + others + simple(StepPart("head", "sequences", (100,), 1), 1750.0)[0]
    assert tables.decode(0, 100, 500).time_s == pytest.approx(expected, rel=0.005)


def test_sizes_between_those_measured_are_on_a_line_and_scores_on_their_square() -> None:
    def quadratic(part: StepPart, clock: float) -> tuple[float, float]:
        if part.size == "prefill":
            new, past = part.at
            return 1e-6 + 1e-12 * new * (past + 0.5 * new), 300.0
        return simple(part, clock)

    kernels = kernels_of(swept(quadratic))
    time_s, _ = kernels._of("prefill", np.array([317.0]), np.array([123.0]))
    assert time_s[-1, 0] == pytest.approx(4 * (1e-6 + 1e-12 * 317 * (123 + 0.5 * 317)), rel=1e-9)


def test_only_the_cards_own_clocks() -> None:
    kernels = kernels_of(swept(simple, clocks=(2000.0,), auto=True))
    assert default_settings(kernels)[-1] == AUTO
    alone = kernels_of(swept(simple, clocks=(2000.0,)))
    tables = tables_of(alone, (AUTO,), "forecast", idle_power_w=10.0, degree=2)
    time_s, power_w = simple(StepPart("product", "tokens", (100,), 4), 2000.0)
    assert tables.decode(0, 100, 500).energy_j > 2 * 4 * time_s * power_w
    assert tables.idle_power_w.tolist() == [20.0]


def test_time_to_exchange_data_is_added_at_the_power_of_the_lightest_kernel() -> None:
    kernels = kernels_of(swept(simple))
    rows = len(tables_of(kernels, (AUTO,), "simulated", idle_power_w=0.0).batches)
    more = tables_of(
        kernels, (AUTO,), "simulated", degree=2, idle_power_w=0.0, collective_s={"decode": np.full(rows, 0.001)}
    )
    plain = tables_of(kernels, (AUTO,), "simulated", degree=2, idle_power_w=0.0)
    assert more.decode(0, 100, 1).time_s - plain.decode(0, 100, 1).time_s == pytest.approx(0.001)
    assert more.decode(0, 100, 1).energy_j - plain.decode(0, 100, 1).energy_j == pytest.approx(2 * LIGHT * 0.001)
    assert more.prefill(0, 100).time_s == plain.prefill(0, 100).time_s


def test_bad_input_is_named() -> None:
    with pytest.raises(BadInputError, match="800 MHz: kernels were measured from 1000 to 2000"):
        tables_of(kernels_of(swept(simple)), (Setting(800.0),), "simulated", idle_power_w=0.0)
    sweep = swept(simple)
    strange = replace(sweep, kernels=(Kernel("softmax", 1), *sweep.kernels[1:]))
    with pytest.raises(BadInputError, match="'softmax' is not a kernel of an engine's steps"):
        kernels_of(strange)


def test_memory_for_the_cache() -> None:
    model = find_model("llama-8b")
    assert cache_token_bytes(model) == 131_072
    assert card_bytes("NVIDIA H200") == 141e9 and card_bytes("NVIDIA GH200 480GB") == 96e9
    assert card_bytes("NVIDIA H100 NVL") == 94e9 and card_bytes("a toaster") is None
    one, two = (cache_blocks(model, 141e9, degree=degree) for degree in (1, 2))
    assert one * 16 * 131_072 + 2 * model.parameters < 141e9
    assert two > 2 * one  # weights are there once
    with pytest.raises(BadInputError, match="take more GPUs"):
        cache_blocks(find_model("llama-70b"), 141e9)
