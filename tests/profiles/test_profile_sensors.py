"""Profiles with what wastenot device sensor found of the device."""

from __future__ import annotations

import json

from wastenot.cli.main import run

WHAT = {
    "period_s": 1e-3, "period_se_s": 1e-6, "window_s": 2e-5, "window_se_s": 1e-6, "lag_s": None, "lag_se_s": None,
    "left_w": None, "other_left_w": None, "delay_s": 0.0, "delay_se_s": 1e-6, "delay_drift": None, "delay_drift_se": None,
    "delay_at_s": None, "sample_s": None, "sample_se_s": None, "noise_idle_w": 2.0, "noise_busy_w": 2.5, "idle_w": 79.0,
    "busy_w": 690.0, "runs": 9, "seconds": 1.0,
}  # fmt: skip


def _file(tmp_path, device="sim:mi300x", **changed):
    channel = {"channel": "total"} | WHAT | changed
    path = tmp_path / "sensors.json"
    path.write_text(json.dumps({"schema": "wastenot.sensors/2", "device": device, "model": "x", "kernel": "gemm-4096",
                                "channels": [channel]}))  # fmt: skip
    return path


def test_they_are_taken_in_place_of_the_devices_own_word(tmp_path, capsys):
    path = _file(tmp_path, window_s=1.9e-5)
    assert (
        run(
            [
                "profile",
                "run",
                "gemm:8192",
                "--device",
                "sim:mi300x",
                "--sensors",
                str(path),
                "--runs",
                "40",
                "--budget",
                "20s",
                "--json",
            ]
        )
        == 0
    )
    total = json.loads(capsys.readouterr().out)["channels"][0]["channel"]
    assert total["window_s"] == 1.9e-5
    assert total["source"] == "identified by wastenot device sensor"


def test_those_of_another_device_are_refused(tmp_path, capsys):
    path = _file(tmp_path, device="nvidia:0")
    assert run(["profile", "run", "gemm:8192", "--device", "sim:mi300x", "--sensors", str(path)]) == 2
    assert "these sensors are of nvidia:0" in capsys.readouterr().err
