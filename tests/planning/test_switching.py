"""What is known of switching clocks by a device's name."""

import json

import pytest

from wastenot.core.errors import BadInputError
from wastenot.core.setting import AUTO, Setting
from wastenot.core.vendors import commands, undo_commands
from wastenot.devices.simulated.basis import preset_names
from wastenot.devices.simulated.preset import find_preset
from wastenot.planning.switching import SwitchTime, TargetTime, switch_time


@pytest.mark.parametrize("name", preset_names())
def test_simulated_gpus_take_as_long_as_their_presets_say(name):
    preset = find_preset(name)
    found = switch_time(f"sim:{name}")
    core_s = max(latency for _, latency in preset.switching.core_s)
    assert (found.core_s, found.basis) == (core_s, "stated")
    assert found.memory_s == max(core_s, preset.switching.memory_s)


@pytest.mark.parametrize(
    ("device", "core_s"),
    [
        ("NVIDIA A100-SXM4-80GB GPU-5e1c5a76-1111-2222-3333-444455556666", 0.023),
        ("NVIDIA H200 GPU-5e1c5a76-1111-2222-3333-444455556666", 0.03),
        ("Quadro RTX 6000", 0.35),
        ("NVIDIA RTX 6000 Ada Generation", 0.1),
        ("RTX 3080 Ti", 0.1),
        ("sim:my-gpu.toml", 0.1),
        # Parts of a unique name are no cards.
        ("NVIDIA GeForce RTX 4090 GPU-5e1c5a76-a100-2222-3333-444455556666", 0.1),
    ],
)
def test_real_gpus_are_assumed_to_switch_as_was_published(device, core_s):
    found = switch_time(device)
    assert (found.core_s, found.basis) == (core_s, "assumed")
    assert found.memory_s >= core_s and "IPDPSW 2025" in found.source


def test_what_was_measured_counts():
    found = switch_time("sim:h200", 0.004)
    assert (found.core_s, found.memory_s, found.basis) == (0.004, 0.004, "given")
    for wrong in (-0.1, float("nan"), float("inf")):
        with pytest.raises(BadInputError, match="switch_time_s"):
            switch_time("sim:h200", wrong)


@pytest.mark.parametrize(
    ("device", "setting", "expected"),
    [
        ("RTX 3080 Ti", Setting(1410.0, 9501.0), ("nvidia-smi -i 0 -lgc 0,1410", "nvidia-smi -i 0 -lmc 9501,9501")),
        ("sim:rtx-3080-ti", Setting(1410.0, None, 250.0), ("nvidia-smi -i 0 -lgc 0,1410", "nvidia-smi -i 0 -pl 250")),
        ("sim:h200", Setting(None, 2201.0), ("nvidia-smi -i 0 -lmcd 2201",)),
        ("sim:mi300x", Setting(1500.0), ("amd-smi set --gpu 0 --perf-determinism 1500",)),
        # The card that was measured, wherever it stands in the machine.
        (
            "NVIDIA H200 GPU-5e1c5a76-a100-2222-3333-444455556666",
            Setting(1500.0),
            ("nvidia-smi -i GPU-5e1c5a76-a100-2222-3333-444455556666 -lgc 0,1500",),
        ),
        ("sim:mi300x", Setting(1500.0, 900.0), ()),  # nothing sets its memory clock
        ("sim:my-gpu.toml", Setting(1410.0), ()),
        ("Test GPU", Setting(1410.0), ()),
        ("RTX 3080 Ti", AUTO, ()),
    ],
)
def test_commands_are_the_vendors(device, setting, expected):
    assert commands(device, setting) == expected


def test_a_memory_clock_in_effect_by_default_is_not_set():
    assert commands("sim:h200", Setting(1500.0, 3201.0), 3201.0) == ("nvidia-smi -i 0 -lgc 0,1500",)
    assert commands("sim:mi300x", Setting(1500.0, 1300.0), 1300.0) == ("amd-smi set --gpu 0 --perf-determinism 1500",)


def test_each_command_is_undone_on_the_card_that_it_set():
    assert undo_commands(("nvidia-smi -i 0 -lgc 0,1410", "nvidia-smi -i 0 -pl 250")) == (
        "nvidia-smi -i 0 -rgc",
        "nvidia-smi -i 0 -pl DEFAULT",
    )
    assert undo_commands(("amd-smi set --gpu 0 --power-cap 500",)) == ("amd-smi reset --gpu 0 --power-cap",)
    assert undo_commands(("nvidia-smi -lmcd 2201",)) == ("nvidia-smi -rmcd",)  # as older plan files have it


@pytest.mark.parametrize("name", preset_names())
def test_simulated_gpus_take_as_long_to_each_clock_as_their_presets_do(name):
    preset, found = find_preset(name), switch_time(f"sim:{name}")
    assert found.jitter == preset.switching.jitter
    assert (found.stall_s, found.memory_stall_s) == (preset.switching.stall_s, preset.switching.memory_stall_s)
    clocks = [None, *preset.clocks.core_mhz]
    for before, after in ((Setting(1.0), Setting(clock)) for clock in clocks):
        assert found.latency_s(before, after) == pytest.approx(preset.switching.latency_s(before, after))
    assert found.latency_s(AUTO, AUTO) == 0.0
    limit = Setting(power_limit_w=preset.power_limits_w[1])
    assert found.latency_s(AUTO, limit) == pytest.approx(preset.switching.latency_s(AUTO, limit))


def test_parts_change_side_by_side_and_targets_are_interpolated():
    core = tuple(TargetTime(mhz=mhz, seconds=seconds) for mhz, seconds in ((500.0, 0.02), (1500.0, 0.01)))
    found = SwitchTime(
        core_s=0.02, memory_s=0.1, basis="measured", source="", core_by_target=core, power_limit_s=0.3, memory_stall_s=1e-3
    )
    for core_mhz, seconds in ((400.0, 0.02), (1000.0, 0.015), (1500.0, 0.01), (2000.0, 0.01), (None, 0.01)):
        assert found.latency_s(Setting(100.0), Setting(core_mhz)) == pytest.approx(seconds)
    assert found.latency_s(Setting(500.0), Setting(1500.0, 810.0)) == 0.1
    assert found.latency_s(Setting(500.0), Setting(500.0, None, 250.0)) == 0.3
    assert (found.pause_s(AUTO, Setting(500.0)), found.pause_s(AUTO, Setting(500.0, 810.0))) == (0.0, 1e-3)
    with pytest.raises(ValueError, match="core_by_target: must be ascending"):
        SwitchTime(core_s=0.02, memory_s=0.1, basis="measured", source="", core_by_target=core[::-1])


def test_files_without_the_newer_fields_are_read():
    old = '{"core_s": 0.03, "memory_s": 0.1, "basis": "stated", "source": "the simulated GPU sim:rtx-3080-ti"}'
    found = SwitchTime.model_validate_json(old)
    assert found.latency_s(AUTO, Setting(500.0)) == 0.03
    assert SwitchTime.model_validate_json(found.model_dump_json()) == found
    assert json.loads(found.model_dump_json()) == json.loads(old)  # so that the digest of its plan stays right
    stated = switch_time("sim:h200")
    assert SwitchTime.model_validate_json(stated.model_dump_json()) == stated
