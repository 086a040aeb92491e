"""wastenot device sensor: how sensors make their readings, to a person, as JSON and as a file."""

from __future__ import annotations

import json

import pytest

from wastenot.devices.simulated.preset import find_preset, preset_toml
from wastenot.meters.sensors import identify
from wastenot.meters.sensors.identity import read_sensors


def kept(function):
    """Its first answer, for all that ask."""
    answers = []

    def answer(*given, **named):
        if not answers:
            answers.append(function(*given, **named))
        return answers[0]

    return answer


def test_a_file_that_profiles_take_json_and_a_line_for_each_channel(wastenot, monkeypatch):
    monkeypatch.setattr(identify, "identify_sensors", kept(identify.identify_sensors))
    ran = wastenot("device", "sensor", "--device", "sim:v100", "--budget", "20s", "--out", "sensors.json", "--json")
    assert ran.code == 0, ran
    document = json.loads(ran.out)
    assert list(document) == ["schema", "device", "model", "kernel", "channels"]
    assert (document["schema"], document["device"]) == ("wastenot.sensors/2", "sim:v100")
    (total,) = document["channels"]
    assert list(total) == [
        "channel", "period_s", "period_se_s", "window_s", "window_se_s", "lag_s", "lag_se_s", "left_w", "other_left_w",
        "delay_s", "delay_se_s", "delay_drift", "delay_drift_se", "delay_at_s", "sample_s", "sample_se_s", "noise_idle_w",
        "noise_busy_w", "idle_w", "busy_w", "runs", "seconds", "notes",
    ]  # fmt: skip
    assert total["window_s"] == pytest.approx(find_preset("v100").sensors.power.window_s, rel=0.1) and total["lag_s"] is None
    found = read_sensors(wastenot.folder / "sensors.json")
    assert found.channel("total").source == "identified by wastenot device sensor"
    assert found.channels[0].window_s == total["window_s"]

    ran = wastenot("device", "sensor", "--device", "sim:v100", "--budget", "20s")
    assert ran.code == 0, ran
    (line,) = ran.out.splitlines()
    assert line.startswith("total") and "updated every 20" in line and "under load" in line
    assert "gain cannot be determined" in ran.err


def test_a_sensor_that_lags_and_whose_delay_drifts(wastenot):
    ran = wastenot("device", "sensor", "--device", "sim:h200", "--out", "sensors.json")
    assert ran.code == 0, ran
    (line,) = ran.out.splitlines()
    assert "lag 12." in line and "window" not in line and "ms per second" in line
    shown = " ".join(wastenot("show", "sensors.json").out.split())
    assert shown.startswith(" ".join(line.split())) and "note: a first-order lag leaves" in shown
    assert "a first-order lag leaves" in ran.err and "samples on its own clock" in ran.err
    (channel,) = read_sensors(wastenot.folder / "sensors.json").known("sim:h200")
    assert channel.lag_s == pytest.approx(0.0125, rel=0.1)
    assert channel.delay_drift == pytest.approx(2e-4, abs=5e-5) and channel.delay_error_s > 0.0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--device", "sim:h2000"], "h200"),
        (["--device", "sim:h200", "--budget", "much"], "--budget"),
        (["--device", "sim:h200", "--budget", "1s"], "at least"),
        (["--device", "sim:h200", "--kernel", "gem:4096"], "gemm"),
        (["--device", "sim:bare.toml"], "no power sensor"),
        ([], "--device"),
    ],
)
def test_refusals(wastenot, arguments, says):
    preset = find_preset("h200")
    bare = preset.model_copy(update={"sensors": preset.sensors.model_copy(update={"power": None})})
    (wastenot.folder / "bare.toml").write_text(preset_toml(bare))
    assert says in wastenot.refuse("device", "sensor", *arguments, "--out", "no.json")
    assert not (wastenot.folder / "no.json").exists()


def test_simulated_gpus_are_listed_with_how_far_they_were_off(wastenot):
    listed = json.loads(wastenot("device", "list", "--json").out)["simulated"]
    assert {"sim:a100", "sim:b200", "sim:h100", "sim:h200"} < {each["device"] for each in listed}
    shown = wastenot("device", "list").out
    assert all(each["device"] in shown for each in listed)
    assert "never compared with a card" in " ".join(shown.split())
