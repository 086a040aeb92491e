"""Kinds of kernels, what they demand in whole tiles, and how sim:h200 predicts operations that nothing was fitted to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from presets import h200, h200_fit
from presets.h200_data import read_all
from presets.h200_errors import errors_at_auto, predicted, time_ratio
from wastenot.devices.simulated import model
from wastenot.devices.simulated.demands import analytical_parameters, effective_flops
from wastenot.devices.simulated.kinds import kinds_of, traits_for
from wastenot.devices.simulated.preset import OpTraits, find_preset
from wastenot.workloads.build import build_workload
from wastenot.workloads.kernel import Call, KernelSpec
from wastenot.workloads.parts import Parts

GPT, FLASH = (
    {kernel.name: kernel for kernel in build_workload("gpt3-xl", attention=attention).kernels}
    for attention in ("unfused", "flash")
)
PART = Parts(2)


def gemm(m: int, n: int, k: int, batches: int = 1) -> KernelSpec:
    return PART.gemm(m, n, k, batches).placed("gemm", "GEMM", "", None, 1)


def captured(op: str, name: str, shape: tuple[int, ...], tensors: str, **bytes_moved: float) -> KernelSpec:
    call = Call(name, f'{{"args": [], "kwargs": {{}}, "tensors": [{tensors}], "storages": []}}')
    moved = {"bytes_read": 2e8, "bytes_written": 2e8} | bytes_moved
    return KernelSpec("x", "x", op, shape, 1e8, **moved, pass_name="", block=None, count=1, call=call, element_bytes=2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        (GPT["softmax"], "softmax-causal"),
        (GPT["softmax_backward"], "softmax-backward-causal"),
        (GPT["cross_entropy"], "softmax-loss"),
        (GPT["layernorm_first"], "layernorm"),
        (GPT["residual_1"], "layernorm-residual"),
        (GPT["layernorm_1_backward"], "layernorm-backward"),
        (GPT["gelu"], "elementwise-special"),
        (GPT["permute_qkv"], "permute-split"),
        (GPT["unpermute"], "permute"),
        (GPT["up_dbias"], "reduce-columns"),
        (GPT["qkv_gemm"], "gemm"),
        (gemm(16, 4096, 4096), "gemm-skinny"),
        (captured("permute", "aten.clone.default", (64, 32), '{"shape": [64, 32], "strides": [32, 1]}'), "permute-copy"),
        (
            captured("permute", "aten.clone.default", (64, 32), '{"shape": [64, 32], "strides": [1, 64]}'),
            "permute-transpose",
        ),
        (captured("permute", "aten.clone.default", (8, 4, 2), '{"shape": [8, 4, 2], "strides": [8, 2, 1]}'), "permute-copy"),
        (captured("permute", "aten.clone.default", (4, 8, 2), '{"shape": [4, 8, 2], "strides": [2, 8, 1]}'), "permute"),
        (captured("reduce", "aten.argmax.default", (8, 4), '{"shape": [8, 4], "strides": [4, 1]}'), "reduce-extremes"),
    ],
)
def test_kinds_follow_from_what_runs(kernel, kind):
    assert kinds_of(kernel)[0] == kind
    assert kinds_of(kernel)[-1] == kernel.op


def test_the_narrowest_kind_stated_counts():
    kernel = GPT["softmax_backward"]
    ops = {"default": 0, "softmax": 1}
    assert traits_for(GPT["gelu"], ops) == 0
    assert traits_for(kernel, ops) == 1
    assert traits_for(kernel, ops | {"softmax-backward": 2}) == 2
    assert traits_for(kernel, ops | {"softmax-backward": 2, "softmax-backward-causal": 3}) == 3


def test_whole_tiles_cost_what_they_compute():
    exact, one_more = gemm(4224, 4096, 4096), gemm(4225, 4096, 4096)
    assert effective_flops(exact, 0) == exact.flops
    assert effective_flops(one_more, 132) > 1.05 * effective_flops(exact, 132)  # 528 tiles are four waves, 544 are five
    assert exact.flops <= effective_flops(exact, 132) < 1.05 * exact.flops
    # A wave of 132 tiles of 128 × 256 costs as long as one of a few: but smaller tiles, or split sums, are found for these.
    few = gemm(256, 512, 4096)
    assert few.flops < effective_flops(few, 132) < 8 * few.flops
    attention = PART.attention(512, 512, 1024, 1024, 128, used=0.5).placed("attention", "", "", None, 1)
    whole = PART.attention(512, 512, 1024, 1024, 128, used=1.0).placed("attention", "", "", None, 1)
    assert attention.flops < effective_flops(attention, 132) < effective_flops(whole, 132)


@pytest.mark.parametrize(
    ("name", "heads", "groups", "tiles", "rows"),
    [
        ("attention", 2112, 528, 528, 128),  # the four queries of a group share a tile
        ("attention", 2116, 529, 529, 128),  # no wave for one
        ("attention_efficient", 2112, 2112, 2112, 64),
    ],
)
def test_decoding_costs_whole_tiles(name, heads, groups, tiles, rows):
    decode = PART.attention(heads, groups, 1, 4096, 128, used=1.0).placed(name, "", "", None, 1)
    assert effective_flops(decode, 132) == pytest.approx(4 * 128 * tiles * rows * (4096 + 96))  # beginning a tile is 96 keys
    begun = PART.attention(heads, groups, 1, 3970, 128, used=1.0).placed(name, "", "", None, 1)
    assert effective_flops(begun, 132) == pytest.approx(4 * 128 * tiles * rows * (3968 + 65 + 96))  # half of what is masked
    cudnn = replace(decode, name="attention_cudnn")
    assert effective_flops(cudnn, 132) == cudnn.flops


def test_few_tiles_of_decoding_are_split_by_keys():
    def time(heads: int, keys: int) -> float:
        decode = PART.attention(heads, heads, 1, keys, 128, used=1.0).placed("attention", "", "", None, 1)
        return effective_flops(decode, 132)

    assert time(8, 4096) < 0.3 * time(212, 4096)  # both in no more than two waves of whole tiles, but 212 are not split
    assert time(8, 128) < time(8, 1024) < time(8, 8192) < 2 * time(8, 4096)


def test_the_last_tile_of_a_causal_mask_is_waited_for():
    """What a few heads take beyond their share of many heads' time is what one longest tile takes."""
    few, many = (
        effective_flops(PART.attention(heads, heads, 1024, 1024, 128, used=0.5).placed("attention", "", "", None, 1), 132)
        for heads in (128, 512)
    )
    assert few - (many - few) / 3 == pytest.approx(4 * 128 * 132 * 128 * (1024 + 96))


def test_traits_that_are_not_stated_change_nothing():
    traits = OpTraits(flops_per_s=1e12, bytes_per_s=1e12, issue_bytes_per_s=2e12, fixed_s=1e-6, clock_w=1.0, flop_j=0.0,
                      issue_byte_j=0.0, byte_j=0.0)  # fmt: skip
    for kernel in GPT.values():
        demands = analytical_parameters(kernel, traits)
        assert demands.core_s == pytest.approx(kernel.flops / 1e12 + kernel.bytes_moved / 2e12)
        assert (demands.memory_s, demands.fixed_s) == (pytest.approx(kernel.bytes_moved / 1e12), 1e-6)


def test_no_core_clock_changes_what_rows_of_attentions_gradients_take():
    """Which kernels of their own clear, sum and convert, at the memory's pace: seen on shapes that nothing was fitted to."""
    quick = find_preset("h200").ops["attention"].model_copy(update={"row_s": 0.0})
    slow = quick.model_copy(update={"row_s": 1e-9})
    for name, apart in (("attention", False), ("attention_backward", True)):
        kernel, queries = FLASH[name], FLASH[name].shape[0] * FLASH[name].shape[2]
        with_rows, without = (analytical_parameters(kernel, traits) for traits in (slow, quick))
        rows_s = with_rows.core_s - without.core_s, with_rows.fixed_s - without.fixed_s
        assert rows_s == pytest.approx((0.0, 1e-9 * queries) if apart else (1e-9 * queries, 0.0), abs=1e-12)
    preset = find_preset("h200")
    held = [one for one in read_all() if one.held and one.kernel.op == "attention_backward"]
    ratios = [found for one in held if (found := time_ratio(preset, one)) is not None]
    assert len(ratios) == 3
    for said, measured in ratios:
        assert said == pytest.approx(measured, rel=0.01)


def test_the_fit_computes_times_and_powers_as_the_model_does():
    preset, clocks = find_preset("h200"), np.array([1400.0, 1700.0, 1980.0])
    clocked = h200_fit._Clocked(h200.parameters(), clocks)
    for kernel in GPT.values():
        demands = analytical_parameters(kernel, traits_for(kernel, preset.ops))
        time_s = clocked.time(demands.core_s, demands.memory_s, demands.fixed_s)
        power_w = clocked.power(time_s, demands.clock_w, demands.work_j, demands.memory_j)
        expected = predicted(preset, kernel, clocks)
        assert time_s == pytest.approx(expected[0]) and power_w == pytest.approx(expected[1])
    assert model.voltage(h200.parameters(), 1980.0) > 1.2


def test_a_fit_finds_the_traits_that_times_and_powers_were_made_with():
    preset = find_preset("h200")
    true = preset.ops["elementwise"].model_copy(update={"bytes_per_s": 4e12, "issue_bytes_per_s": 5e12})
    made = preset.model_copy(update={"ops": {"default": true}})
    operations = []
    for one in [one for one in read_all() if one.kernel.op == "elementwise" and one.times is not None][:8]:
        time_s, power_w = (float(each[0]) for each in predicted(made, one.kernel, np.array([one.core_mhz])))
        times = replace(one.times, value=predicted(made, one.kernel, one.times.core_mhz)[0])
        operations.append(replace(one, time_s=time_s, power_w=power_w, times=times, powers=None))
    lean = h200_fit.Lean(preset.ops["elementwise"], dict.fromkeys(h200_fit.FITTED, 0.5))
    found = made.model_copy(update={"ops": {"default": h200_fit.fit_kind(operations, h200.parameters(), lean)}})
    for one in operations:
        assert predicted(found, one.kernel, np.array([1500.0, 1975.0]))[0] == pytest.approx(
            predicted(made, one.kernel, np.array([1500.0, 1975.0]))[0], rel=0.02
        )


def test_operations_that_nothing_was_fitted_to_are_predicted_as_well_as_is_said():
    preset = find_preset("h200")
    never = [one for one in read_all() if one.held]
    errors = errors_at_auto(preset, never)
    assert len(errors) >= 100
    assert np.mean([abs(error.time) for error in errors]) <= 0.08
    assert np.mean([abs(error.power) for error in errors]) <= 0.05
    ratios = [ratio for one in never if (ratio := time_ratio(preset, one)) is not None]
    assert np.median([abs(said / measured - 1.0) for said, measured in ratios]) <= 0.02
