"""The check that no vendor is named outside its package, which ``make check`` runs, finds what is, and lets sentences be."""

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci" / "vendors.py"
check = runpy.run_path(str(SCRIPT))["main"]


def test_each_way_to_name_one_is_found(tmp_path, capsys):
    wrong = [
        "from wastenot.devices.nvidia import clocks",
        "from wastenot.devices.nvidia.clocks import NvidiaSetter as Setter",
        "import pynvml as library",
        'importlib.import_module("wastenot.devices." + "nvidia.clocks")',
        'device.startswith("nvidia:")',
        'kind in ("nvidia", "recorded")',
        'kind == "nvid" + "ia"',
        'name = f"nvidia:{index}"',
        'table = {"amd": 1}',
        'match = "NVIDIA H200" in model',
        'unique = re.compile(r" GPU-[0-9a-f-]+$")',
        "_NVIDIA = 1",
        "nvml.call(name)",
        'run(["nvidia-smi", "-L"])',
        'raw = b"nvidia:0"',
    ]
    (tmp_path / "wrong.py").write_text("\n".join(wrong))
    assert check(tmp_path) == 1
    found = {int(line.split(":")[1]) for line in capsys.readouterr().out.splitlines()}
    assert found == set(range(1, len(wrong) + 1))


@pytest.mark.parametrize(
    "line",
    [
        '"""Devices such as nvidia:0."""',
        'raise BadInputError("name the GPU, such as nvidia:0")',
        'source = "NVIDIA H200 datasheet (SXM)"',
        'unit = "GPU-hours"',
        'option = "--gpu-hour"',
        "# NVML says so",
    ],
)
def test_what_people_read_may_name_one(tmp_path, line):
    (tmp_path / "right.py").write_text(line)
    (tmp_path / "devices" / "nvidia").mkdir(parents=True)
    (tmp_path / "devices" / "nvidia" / "own.py").write_text('kind == "nvidia"')
    assert check(tmp_path) == 0
