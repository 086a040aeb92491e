"""What of timelines with PyTorch needs no GPU: clocks from stamps, the clock behind skipped cycles, data not random."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from wastenot.core.errors import BadInputError, CannotRunError, WastenotError  # noqa: E402
from wastenot.devices.torch.cycle_clock import Stamps  # noqa: E402
from wastenot.devices.torch.timeline import TorchTimelines, change_data, clock_over_counted  # noqa: E402


def test_clock_of_kernels_that_skip_cycles_follows_their_looks() -> None:
    subject = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    clock = np.array([1980.0, 1980.0, 1500.0, 1500.0, 1500.0, 1600.0, 1700.0, 1800.0])
    counted = clock * np.where(subject == 0, [0.8, 0.8, 0.9, 0.9, 1.0, 1.0, 1.0, 1.0], 1.0)
    looked = np.array([0, 3, 4, 7])
    found = counted * clock_over_counted(subject, counted, looked, clock[looked])
    assert found[[0, 3]] == pytest.approx(clock[[0, 3]])
    assert np.all(found[1:3] / counted[1:3] > 1.1)  # between the ratios on either side
    assert found[subject == 1] == pytest.approx(clock[subject == 1])


def test_look_that_the_regulator_disturbed_is_left_out() -> None:
    subject = np.zeros(9, dtype=np.intp)
    counted = np.full(9, 1350.0)
    looked = np.arange(0, 9, 2)
    seen = np.array([1500.0, 1500.0, 900.0, 1500.0, 1500.0])  # the clock fell between the third group and its look
    assert counted * clock_over_counted(subject, counted, looked, seen) == pytest.approx(np.full(9, 1500.0))


def test_no_looks_leave_the_counted_clock() -> None:
    none = np.empty(0, dtype=np.intp)
    assert np.all(clock_over_counted(np.zeros(3, dtype=np.intp), np.full(3, 1400.0), none, np.empty(0)) == 1.0)


def test_clock_between_stamps_is_the_median_of_multiprocessors() -> None:
    moments = np.array([[0.0, 0.1e-6, 0.0], [1e-3, 1.0001e-3, np.nan]])
    cycles = np.array([[1e6, 5e6, 9e6], [1e6 + 1.5e6, 5e6 + 1.5e6, np.nan]])
    stamps = Stamps(np.nanmean(moments, axis=1), cycles, moments)
    assert stamps.clock_mhz([0], [1]) == pytest.approx([1500.0], rel=1e-6)
    assert np.isnan(stamps.clocks_mhz([0], [1])[0, 2])


@pytest.mark.parametrize("data", ["zeros", "sparse", "equal rows"])
def test_data_other_than_random(data: str) -> None:
    left, right = torch.randn(64, 32), torch.randn(32, 64)
    before = left.clone()
    change_data([(left, right, 3)], data, "gemm")  # type: ignore[arg-type]
    if data == "zeros":
        assert not left.any()
    elif data == "sparse":
        assert 0.6 < float((left == 0).float().mean()) < 0.95
        assert torch.equal(left[left != 0], before[left != 0])
    else:
        assert torch.equal(left, before[:1].expand_as(left))


def test_kernel_whose_data_cannot_be_chosen() -> None:
    with pytest.raises(CannotRunError, match="lookup: its data cannot be chosen"):
        change_data([(torch.arange(4),), ()], "zeros", "lookup")


def test_timelines_need_a_gpu() -> None:
    with pytest.raises(BadInputError, match="cycles are counted on GPUs"):
        TorchTimelines("cpu")


def test_pytorch_that_compiles_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    from wastenot.devices.torch import cycle_clock

    cycle_clock._compiled.cache_clear()
    monkeypatch.delattr(torch.cuda, "_compile_kernel", raising=False)
    with pytest.raises(WastenotError, match=r"needs PyTorch 2\.8 or later"):
        cycle_clock._compiled("cuda:0")
