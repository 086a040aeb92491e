"""Preset files: what is refused and how; the presets that come with wastenot are whole and physically sane."""

from __future__ import annotations

import tomllib
from importlib import resources

import numpy as np
import pytest

from presets import judge_scaled
from presets.rtx_a4000 import FP32_KERNEL, fit
from testbed.toy_gpu import TOY as TOY_FILE
from wastenot.core.errors import BadInputError
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.open import open_device
from wastenot.devices.protocol import Task
from wastenot.devices.simulated.basis import basis_of, preset_names
from wastenot.devices.simulated.preset import find_preset, parse_preset, preset_toml, read_preset
from wastenot.workloads.build import build_workload

TOY = TOY_FILE.read_text()
CARDS = ["h200", "rtx-3080-ti", "rtx-a4000", "v100"]
NAMES = sorted([*CARDS, "a100", "b200", "h100", "mi300x"])


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("idle_w = 25.0", "", "idle_w: Field required"),
        ("idle_w = 25.0", "idle_w = -25.0", "idle_w: Input should be greater than 0"),
        ("idle_w = 25.0", "idle_w = nan", "idle_w: Input should be"),
        ("idle_w = 25.0", 'idle_w = "much"', "idle_w: Input should be a valid number"),
        ("idle_w = 25.0", "idle_w = 25.0\nidel_w = 3", "idel_w"),
        ("leakage_w = 15.0", "", "parameters.leakage_w: Field required"),
        ("leakage_w = 15.0", "leakage_w = -1.0", "parameters.leakage_w: Input should be greater than or equal to 0"),
        ("leakage_w = 15.0", "leakage_w = inf", "parameters.leakage_w: Input should be a finite number"),
        ("leakage_w = 15.0", "leakage_w = nan", "parameters.leakage_w: Input should be a finite number"),
        (
            "overlap_exponent = 4.0",
            "overlap_exponent = 0.5",
            "overlap_exponent: Input should be greater than or equal to 1",
        ),
        ("[1.0, 1.0, 1.15, 1.4]", "[1.0, 1.2, 1.15, 1.4]", "voltage_ratio: must not fall"),
        ("[1.0, 1.0, 1.15, 1.4]", "[1.0, 1.0, 1.15]", "voltage_ratio: 3 values for 4"),
        ("base_w = [30.0, 35.0, 60.0, 80.0]", "base_w = [30.0]", "base_w: 1 values for 4"),
        ("[ops.default]", "[ops.fallback]", "ops: 'default' is missing"),
        ("power_limits_w = [100.0, 350.0]", "power_limits_w = [400.0, 350.0]", "power_limits_w"),
        ("memory_mhz = [405.0, 810.0", "memory_mhz = [810.0, 405.0", "clocks: memory_mhz must be ascending"),
        ('schema = "wastenot.gpu/1"', 'schema = "wastenot.gpu/9"', "schema"),
        ("[clocks]", "[clocks", "not TOML"),
    ],
)
def test_what_cannot_be_is_refused_with_field_and_reason(old, new, says):
    assert old in TOY
    with pytest.raises(BadInputError) as refusal:
        parse_preset(TOY.replace(old, new, 1).encode(), "my.toml")
    assert says in str(refusal.value)
    assert str(refusal.value).startswith("my.toml: ") and "\n" not in str(refusal.value)


def test_a_kernel_that_takes_no_time_is_refused():
    nothing = "\n".join(
        f"{name} = 0.0"
        for name in (
            "core_s memory_s latency_core_s latency_memory_s fixed_s clock_w work_j memory_j".split()  # noqa: SIM905
        )
    )
    with pytest.raises(BadInputError, match="the kernel would take no time"):
        parse_preset(f"{TOY}\n[kernels.idle]\n{nothing}\n".encode(), "my.toml")


def test_files_that_are_not_there_or_not_text(tmp_path):
    with pytest.raises(BadInputError, match="No such file"):
        read_preset(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInputError, match="not TOML"):
        read_preset(tmp_path / "binary.toml")


def test_an_unknown_preset_is_answered_with_the_nearest():
    with pytest.raises(BadInputError, match="did you mean 'rtx-3080-ti'"):
        open_device("sim:rtx-3080ti")


def test_the_presets_there_are():
    assert preset_names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_preset_says_where_its_numbers_come_from(name):
    preset = find_preset(name)
    assert {
        "parameters",
        "ops",
        "clocks",
        "power_limits_w",
        "idle_w",
        "thermal",
        "dynamics",
        "switching",
        "noise",
        "sensors",
        "held_out",
    } <= set(preset.provenance)
    assert parse_preset(preset_toml(preset).encode(), name) == preset
    assert not preset.kernels  # measured data of others is not shipped


@pytest.mark.parametrize("name", NAMES)
def test_no_key_of_a_preset_is_left_to_its_default(name):
    """As make_presets writes them, comment apart, and with every key that the schema has and that is not None."""
    content = (resources.files("wastenot.devices.simulated") / "presets" / f"{name}.toml").read_text()
    preset = find_preset(name)
    assert content.partition("\n")[2] == preset_toml(preset)
    assert _keys(preset.model_dump(by_alias=True, exclude_none=True)) == _keys(tomllib.loads(content))


def _keys(part: object, path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    if isinstance(part, dict):
        return {path}.union(*(_keys(value, (*path, name)) for name, value in part.items()))
    return {path}


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_says_in_a_few_words_what_it_rests_on(name):
    """And says that constants are assumed: no preset is measured at every clock."""
    basis = basis_of(f"sim:{name}")
    assert basis == find_preset(name).basis
    assert "assumed" in basis and len(basis) < 100


def test_the_basis_of_other_devices(tmp_path):
    mine = tmp_path / "mine.toml"
    mine.write_text(preset_toml(find_preset("v100").model_copy(update={"basis": "fitted to my card"})))
    assert basis_of(f"sim:{mine}") == "fitted to my card"
    assert basis_of("nvidia:0") == basis_of("recorded:v100") == basis_of("sim:") == basis_of("sim:none") == ""
    assert basis_of(f"sim:{tmp_path / 'gone.toml'}") == ""
    mine.write_text(TOY)
    assert basis_of(f"sim:{mine}") == ""
    mine.write_text("[not toml")
    assert basis_of(f"sim:{mine}") == ""


def test_nothing_in_a_preset_is_recalled():
    for name in NAMES:
        assert "recalled" not in " ".join(find_preset(name).provenance.values())


def test_the_power_of_the_a4000_is_what_its_fit_gives():
    """The fit finds what points were made with; the preset holds the constants that it gave for the card's own points."""
    clocks = np.array([405, 585, 780, 960, 1155, 1335, 1530, 1710, 1755, 1745.0])
    power = np.minimum(FP32_KERNEL.power_w(clocks), 139.0)
    found = fit(clocks, power)
    for name in ("intercept_w", "w_per_ghz", "knee_mhz", "slope_per_ghz", "points"):
        assert getattr(found, name) == pytest.approx(getattr(FP32_KERNEL, name), rel=1e-4)
    parameters = find_preset("rtx-a4000").parameters
    assert parameters.base_w[-1] == FP32_KERNEL.intercept_w
    assert parameters.voltage_ratio == pytest.approx(FP32_KERNEL.voltage_ratio(np.array(parameters.voltage_clocks_mhz)))


@pytest.mark.parametrize("name", NAMES)
def test_every_preset_is_physically_sane(name):
    """At every clock: power between idle and the limit, time falls with the clocks, auto is the fastest."""
    device, preset = open_device(f"sim:{name}"), find_preset(name)
    table = preset.clocks
    cores = table.core_mhz[:: max(len(table.core_mhz) // 12, 1)]
    for kernel in {kernel.op: kernel for kernel in build_workload("gpt3-xl", optimizer="adamw").kernels}.values():
        task = Task.of_kernel(kernel)
        auto = device.truth(task, AUTO)
        times = []
        for memory in table.memory_mhz[-2:]:
            points = [device.truth(task, Setting(core, memory)) for core in cores]
            assert all(preset.idle_w < point.power_w <= preset.power_limits_w[1] * 1.001 for point in points)
            time = np.array([point.time_s for point in points])
            assert (np.diff(time) <= 1e-12).all()
            times.append(time)
        assert (times[-1] >= auto.time_s * (1 - 1e-9)).all()
        # A lower memory clock leaves a GPU at its power limit more for the core, so it may win there, by little.
        assert (times[-1] <= times[0] * 1.06).all()


@pytest.mark.parametrize("name", CARDS)
def test_a_large_gemm_runs_at_the_power_limit_and_streams_near_the_highest_clock(name):
    device, preset = open_device(f"sim:{name}"), find_preset(name)
    kernels = {kernel.name: kernel for kernel in build_workload("gpt3-xl").kernels}
    gemm = device.truth(Task.of_kernel(kernels["up_gemm"]), AUTO)
    assert gemm.throttled and gemm.power_w == pytest.approx(preset.power_limits_w[1], rel=0.001)
    stream = device.truth(Task.of_kernel(kernels["permute_qkv"]), AUTO)
    assert stream.core_mhz > gemm.core_mhz and stream.core_mhz > 0.95 * preset.clocks.boost_mhz
    moved = kernels["permute_qkv"].bytes_moved / stream.time_s
    assert moved == pytest.approx(PERMUTED_BYTES_PER_S[name], rel=0.1)


# 90 % of the memory's peak, but on the H200 as measured there: a transposition falls short of it.
PERMUTED_BYTES_PER_S = {"h200": 1.37e12, "rtx-3080-ti": 0.9 * 912e9, "rtx-a4000": 0.9 * 448e9, "v100": 0.9 * 900e9}


def test_the_h100_runs_kernels_of_another_card_as_its_preset_says():
    """Which nothing was fitted to: within 5 % of time and of power on average, a sensor's own error."""
    numbers = judge_scaled.h100_numbers(find_preset("h100"))
    assert numbers["time_mean"] < 0.05 and numbers["power_mean"] < 0.05
    assert abs(numbers["iteration_time"]) < 0.05 and abs(numbers["iteration_energy"]) < 0.05
    stated = find_preset("h100").provenance["ops"]
    assert f"times off by {numbers['time_mean']:.1%}" in stated and f"powers by {numbers['power_mean']:.1%}" in stated


def test_the_a100_saves_by_clock_what_a_published_profile_does(shared_data):
    numbers = judge_scaled.a100_numbers(find_preset("a100"))
    assert numbers["energy_by_clock"] < 0.05 and numbers["time_by_clock"] < 0.05
    assert f"energy by clock by {numbers['energy_by_clock']:.1%}" in find_preset("a100").provenance["ops"]


def test_h200_gemms_settle_where_ours_did():
    device = open_device("sim:h200")
    kernels = {kernel.name: kernel for kernel in build_workload("gpt3-xl").kernels}
    for name in ("qkv_gemm", "up_gemm", "down_gemm", "projection_gemm"):
        assert 1440 <= device.truth(Task.of_kernel(kernels[name]), AUTO).core_mhz <= 1520
    assert preset_clocks("h200") == ((2201.0, 3201.0), 345.0, 1980.0, 15.0)


def preset_clocks(name):
    table = find_preset(name).clocks
    return table.memory_mhz, table.core_from_mhz, table.core_to_mhz, table.core_step_mhz
